"""The error tree, its exit codes and its remedies. Imports nothing of ours.

RolloutError                      1   anything we did not foresee
├── UsageError                    2   the command line is wrong
├── PlanError                     3   the plan file is wrong (all findings at once)
├── PreflightError                3   the world does not fit the plan
├── StoreError                   20   the store cannot be read or written now
│   ├── NotAStore                 2   what was named is no store that this release can use
│   └── StoreDamaged             13   something else changed or cut the store: a person is needed
│       └── JournalBroken        13   a journal row was changed after it was written
├── NotFound                      2   no such rollout
├── ServerError                  20   a server answered in a way we cannot use
│   ├── Unreachable              20   a server did not answer (temporary)
│   ├── Refused                   3   a server said no (permanent)
│   │   └── KeyRefused            3   a server does not know the key, or the key may not do that
│   └── BadAnswer                20   a server answered something that is not its contract
├── StableLost               13   the old side does not serve: a person is needed now
├── RollbackIncomplete           21   rollback could not finish
├── WindowOpen                   22   the rollback window is still open
├── RollbackImpossible           23   what a rollback needs is gone
├── RouteTaken                   30   another rollout holds the route
└── FencedOff                    31   another engine took this rollout over
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """What a shell may rely on."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    REFUSED = 3
    ROLLED_BACK = 10
    HOLDING = 11
    INCONCLUSIVE = 12
    HALTED = 13
    WAIT_TIMEOUT = 14
    UNREACHABLE = 20
    ROLLBACK_INCOMPLETE = 21
    WINDOW_OPEN = 22
    ROLLBACK_IMPOSSIBLE = 23
    ROUTE_TAKEN = 30
    FENCED_OFF = 31


EXIT_MEANING: dict[ExitCode, str] = {
    ExitCode.DONE: "promoted, done, or nothing to do",
    ExitCode.UNEXPECTED: "unexpected error",
    ExitCode.USAGE: "wrong usage",
    ExitCode.REFUSED: "plan or preflight refused",
    ExitCode.ROLLED_BACK: "rolled back or aborted",
    ExitCode.HOLDING: "holding: waits for a reason that a person can end",
    ExitCode.INCONCLUSIVE: "inconclusive: no verdict within the deadline",
    ExitCode.HALTED: "halted: a person is needed now",
    ExitCode.WAIT_TIMEOUT: "`wait` timed out, or what was waited for cannot come any more",
    ExitCode.UNREACHABLE: "a server, or the store, is unreachable after retries",
    ExitCode.ROLLBACK_INCOMPLETE: "rollback incomplete",
    ExitCode.WINDOW_OPEN: "the rollback window is still open",
    ExitCode.ROLLBACK_IMPOSSIBLE: "rollback impossible: what it needs is gone",
    ExitCode.ROUTE_TAKEN: "the route is taken by another rollout",
    ExitCode.FENCED_OFF: "fenced off: another engine took this rollout over",
}


class RolloutError(Exception):
    """Something failed that we did not foresee."""

    exit_code: ClassVar[ExitCode] = ExitCode.UNEXPECTED
    hint: str = ""

    def __init__(self, message: str = "", *, why: str = "", hint: str = "") -> None:
        """`message` says what, `why` the cause, `hint` what to do next. The class docstring is the default."""
        text = message or (self.__doc__ or "").strip()
        super().__init__(text)
        self.message = text
        self.why = why
        self.hint = hint or type(self).hint


class UsageError(RolloutError):
    """The command line does not make sense."""

    exit_code = ExitCode.USAGE


class NotFound(RolloutError):
    """What was named does not exist."""

    exit_code = ExitCode.USAGE
    hint = "`rollout list` shows what this store knows; `--store` names another one."


class PlanError(RolloutError):
    """The plan is not valid."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str = "", *, findings: Sequence[object] = (), why: str = "", hint: str = "") -> None:
        """`findings`: everything that is wrong, ordered by line; `str()` of each is one line for a screen."""
        super().__init__(message, why=why, hint=hint)
        self.findings = tuple(findings)


class PreflightError(RolloutError):
    """The world does not fit the plan."""

    exit_code = ExitCode.REFUSED


class StoreError(RolloutError):
    """The store cannot be read or written now. The same command goes on once it can."""

    exit_code = ExitCode.UNREACHABLE


class NotAStore(StoreError):
    """What was named is no store that this release can use."""

    exit_code = ExitCode.USAGE


class StoreDamaged(StoreError):
    """Something else than rollout changed the store, or cut it. Nothing is decided from it."""

    exit_code = ExitCode.HALTED


class JournalBroken(StoreDamaged):
    """A journal row does not fit the chain: it was changed after it was written."""


class ServerError(RolloutError):
    """A server answered in a way we cannot use."""

    exit_code = ExitCode.UNREACHABLE


class Unreachable(ServerError):
    """A server did not answer. Temporary: look again before acting again."""


class BadAnswer(ServerError):
    """A server answered something that its contract does not allow."""


class Refused(ServerError):
    """A server refused the call. Permanent: the same call will be refused again."""

    exit_code = ExitCode.REFUSED


class KeyRefused(Refused):
    """A server refused the key: it is wrong, expired, deleted, or lacks the scope."""


class StableLost(RolloutError):
    """The old side does not serve, so nothing is taken from the new one."""

    exit_code = ExitCode.HALTED
    hint = "Bring it back in GPUStack, then say this again."


class RollbackIncomplete(RolloutError):
    """The rollback could not finish."""

    exit_code = ExitCode.ROLLBACK_INCOMPLETE


class WindowOpen(RolloutError):
    """The rollback window is still open."""

    exit_code = ExitCode.WINDOW_OPEN


class RollbackImpossible(RolloutError):
    """What a rollback needs is gone."""

    exit_code = ExitCode.ROLLBACK_IMPOSSIBLE


class RouteTaken(RolloutError):
    """Another rollout holds this route."""

    exit_code = ExitCode.ROUTE_TAKEN


class FencedOff(RolloutError):
    """Another engine took this rollout over; this one writes nothing more."""

    exit_code = ExitCode.FENCED_OFF
