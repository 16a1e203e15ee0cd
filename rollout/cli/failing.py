"""Failures in three lines: what, why, what next. A traceback goes to the log file, never to the user.

Decides on exit codes for everything that was raised; starts nothing and retries nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

import typer

from rollout.cli.outlet import last_words
from rollout.cli.secrets import redact
from rollout.errors import ExitCode, RolloutError
from rollout.settings import DEBUG, Settings

NEXT: dict[ExitCode, str] = {
    ExitCode.USAGE: "`rollout --help` lists the verbs.",
    ExitCode.REFUSED: "correct what is named above and start again; nothing was changed.",
    ExitCode.UNREACHABLE: "check the address and the network, then run the same command again: it goes on where it was.",
    ExitCode.ROLLBACK_INCOMPLETE: "`rollout status ID` says what is left; `rollout rollback ID --reason …` goes on with it.",
    ExitCode.WINDOW_OPEN: "`rollout status ID` says when the window ends.",
    ExitCode.ROLLBACK_IMPOSSIBLE: "`rollout journal ID` has the recorded spec of the old deployment: a plan with it goes back.",
    ExitCode.ROUTE_TAKEN: "`rollout list` shows who holds the route; wait for it, or roll it back.",
    ExitCode.FENCED_OFF: "`rollout status ID` shows the new owner's work; nothing is to be done here.",
}


def explain(error: BaseException) -> int:
    """Say what failed on stderr and return the exit code."""
    if isinstance(error, RolloutError):
        show(*parts(error), findings=findings(error))
        if Settings.read().debug:
            _trace(error)
        return int(error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        show("interrupted", "Ctrl-C ended this command", "nothing was undone; `rollout status ID` says where a rollout is.")
        return 130
    if isinstance(error, typer.TyperException):
        return _usage(error)
    return _unexpected(error)


def parts(error: RolloutError) -> tuple[str, str, str]:
    """What, why, what next; never empty."""
    cause = error.__cause__
    reason = f"{type(cause).__name__}: {cause}" if cause is not None else (type(error).__doc__ or "").strip()
    why = error.why or (reason if reason != error.message else "the journal and the log have the details.")
    following = error.hint or NEXT.get(error.exit_code, f"the log has the details; {DEBUG}=1 shows them here.")
    return error.message, why, following


def findings(error: RolloutError) -> list[str]:
    """One line each for errors that carry several findings."""
    return [str(one) for one in getattr(error, "findings", ())]


def show(what: str, why: str, following: str, *, findings: Iterable[str] = (), word: str = "error") -> None:
    """The three lines, with findings between what and why."""
    lines = [f"{word}: {what}", *(f"  - {one}" for one in findings), f"  why:  {why}", f"  next: {following}"]
    last_words(redact("\n".join(lines)))


def _usage(error: typer.TyperException) -> int:
    """Typer's own complaints: a wrong option, a missing argument, no verb at all."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        last_words(getattr(error, "message", str(error)))
        return int(ExitCode.USAGE)
    path = context.command_path if context is not None else "rollout"
    told = getattr(error, "format_message", lambda: str(error))()
    first, *rest = told.splitlines() or ["wrong usage"]
    why = " ".join(line.strip() for line in rest) or (context.get_usage() if context is not None else "the command line is wrong")
    show(first[:1].lower() + first[1:].rstrip("."), " ".join(why.split()).replace("Usage: ", "usage is "), f"`{path} --help` has examples.")
    return int(ExitCode.USAGE)


def _unexpected(error: BaseException) -> int:
    settings = Settings.read()
    where = _log(error, settings.log)
    what = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    show(what, "this is a fault in rollout, or in what it runs on", f"the log is {where}; {DEBUG}=1 shows it here.")
    if settings.debug:
        _trace(error)
    return int(ExitCode.UNEXPECTED)


def _trace(error: BaseException) -> None:
    last_words(redact("".join(traceback.format_exception(error))).rstrip())


def _log(error: BaseException, path: Path) -> str:
    """Append the traceback to the log; the place, or why there is none."""
    from rollout.clock import SystemClock

    head = f"{SystemClock().now().isoformat(timespec='seconds')} pid {os.getpid()} {' '.join(sys.argv[:2])}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(head + redact("".join(traceback.format_exception(error))) + "\n")
    except OSError as failed:
        return f"not written ({failed.strerror})"
    return str(path)
