"""Two outlets: results on stdout, progress on stderr. Colour only on a terminal, never the only carrier of a meaning."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout.cli.secrets import redact
from rollout.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def result(text: str) -> None:
    """One result for whoever called, person or script."""
    print(redact(text))


def progress(text: str) -> None:
    """One line about what goes on."""
    print(redact(text), file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    """The result as JSON, one document."""
    print(redact(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def json_line(value: Any) -> None:
    """One document of several, on a line of its own, at once."""
    print(redact(json.dumps(value, ensure_ascii=False, default=str)), flush=True)


def to_file(path: Path, text: str) -> None:
    """A result in the file that a person named: whole, or the file is as it was. A device or a pipe is written to, never replaced.

    UsageError when it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, "utf-8")
        else:
            _whole(path.resolve(), text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written", why=error.strerror or "the system said no", hint="Give another path.") from None


def _whole(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, "utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def plain() -> bool:
    """Whether nothing but text may be written: no colour, no bold, no moving cursor."""
    return os.environ.get("NO_COLOR", "") != ""


PIPE = 120
"""columns where there is no terminal to ask"""


def console() -> Console:
    """A rich console for results that obeys NO_COLOR and plain pipes; imported late, because it is slow to load."""
    from rich.console import Console
    from rich.segment import Segment

    class Redacted(Console):
        """Shows no text that was not looked through; colours are added after that."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(redact(segment.text), segment.style)

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Redacted(highlight=False, width=None if known else PIPE, color_system=None if plain() else "auto")
