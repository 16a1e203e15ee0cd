"""How one wanted end is brought about: look, write, and look again until it shows. Knows no route and no deployment.

After an answer that leaves the outcome open (timeout, reset, 5xx, 409, an unreadable body) the world is looked at before
anything is sent again. A write that was accepted and does not show is an error, never a success.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rollout.clients.errors import HttpRefused
from rollout.clock import Clock
from rollout.errors import BadAnswer, Refused, ServerError, Unreachable

Json = Any
S = TypeVar("S")
ATTEMPTS = 3
PATIENCE = 15.0
"""seconds after which an open outcome is not tried again here; the next tick observes first"""
PAUSE = 0.2
POLL = 0.1
SETTLE = 5.0
"""seconds a target may take to become active (usually 0.1 to 0.6)"""


def _always(_seen: object) -> bool:
    return True


@dataclass(frozen=True)
class End(Generic[S]):
    """A wanted end. `look` reads afresh and may raise Refused when the end must not be brought about; `applied` says whether
    what was read is as wanted; `write` sends one call, built from what was read; `settled` says whether it also took effect."""

    what: str
    look: Callable[[], Awaitable[S]]
    applied: Callable[[S], bool]
    write: Callable[[S], Awaitable[object]]
    settled: Callable[[S], bool] = _always


@dataclass(frozen=True)
class Brought(Generic[S]):
    """How it went: what the last look saw, whether nothing had to be sent, seconds of the write, whether it took effect."""

    seen: S
    already: bool
    seconds: float
    settled: bool

    def receipt(self, **more: Json) -> dict[str, Json]:
        """JSON for the journal."""
        return {"already": self.already, "seconds": round(self.seconds, 4), **more}


class Hand:
    """Carries out wanted ends with one clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def bring(self, end: End[S]) -> Brought[S]:
        """Raises Unreachable (it may have been applied), Refused, or BadAnswer when the write was accepted and does not show."""
        seen = await end.look()
        if end.applied(seen):
            settled = end.settled(seen)
            if not settled:
                seen, settled = await self._read_back(end)
            return Brought(seen, True, 0.0, settled)
        seconds = await self._write(end, seen)
        seen, settled = await self._read_back(end)
        return Brought(seen, False, seconds, settled)

    async def _write(self, end: End[S], seen: S) -> float:
        """Seconds of the write that was answered, or of the last one that was found applied."""
        began = self.clock.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            sent = self.clock.monotonic()
            failure = await self._attempt(end, seen)
            if failure is None:
                return self.clock.monotonic() - sent
            seen = await end.look()
            if end.applied(seen):
                return self.clock.monotonic() - sent
            if isinstance(failure, Refused) or attempt == ATTEMPTS or self.clock.monotonic() - began > PATIENCE:
                raise failure
            await self.clock.sleep(PAUSE)
        raise AssertionError(end.what)

    async def _attempt(self, end: End[S], seen: S) -> ServerError | None:
        """None when the write was answered; the error when its outcome is open; raises when it was refused for good."""
        try:
            await end.write(seen)
        except (Unreachable, BadAnswer) as error:
            return error
        except HttpRefused as error:
            # 409 and 404 may be the echo of our own earlier call
            if error.conflict or error.not_found:
                return error
            raise
        return None

    async def _read_back(self, end: End[S]) -> tuple[S, bool]:
        deadline = self.clock.monotonic() + SETTLE
        while True:
            seen = await end.look()
            applied = end.applied(seen)
            if applied and end.settled(seen):
                return seen, True
            if self.clock.monotonic() >= deadline:
                break
            await self.clock.sleep(POLL)
        if applied:
            return seen, False
        raise BadAnswer(
            f"{end.what}: the server accepted the write, but does not show it.",
            why=f"it was read back for {SETTLE:g} s",
            hint="Another writer or a controller may revert it: look at the route on the server, then resume or roll back.",
        )
