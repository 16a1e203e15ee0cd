"""What stands before stdout and stderr while a command runs: a reader that went away is no fault, and a full disk is said.

Changes no text. It is put in front by `app.main` and taken away again.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from rollout.errors import RolloutError

CLOSED = 141
"""128 + SIGPIPE: how a program ends whose reader went away"""


class OutputClosedError(BaseException):
    """Whoever read the output has gone (`| head`): nothing is left to say, and nobody to say it to."""


class OutputFailed(RolloutError):
    """The output could not be written."""


class Outlet:
    """A text stream that tells these two apart from a fault of ours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _told():
            return self._stream.write(text)

    def flush(self) -> None:
        with _told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        hint = "make room or name another place, then run the same command again; what the command did stays done."
        raise OutputFailed("the output could not be written", why=error.strerror or str(error), hint=hint) from None


@contextlib.contextmanager
def outlets() -> Iterator[None]:
    """Both streams, until the block is left; what is still buffered is written then."""
    _stand_in()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Outlet(stream)) for stream in before)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def last_words(text: str) -> None:
    """A line on stderr at the end of a command. When nobody can hear it, the exit code still says it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _nowhere(sys.stderr)


def abandon() -> None:
    """Let what is buffered go nowhere, so that the interpreter does not stumble over it at its end."""
    _nowhere(sys.stdout)


def _nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _stand_in() -> None:
    """A stream that was closed before we began (`>&-`) is none at all: what is written to it goes nowhere.

    And one that cannot carry a sign (a Latin-1 terminal, our check marks) shows `?` in its place, instead of ending the command.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
