"""Time that a wrong wall clock cannot move: windows and deadlines are counted on the machine's own steady clock.

A rollout is anchored once: wall time and steady time of one boot. From then on "now" is the anchor plus the steady time that has
passed, whatever the wall clock does, and in every process of that boot. After a reboot, or on another host, it is anchored anew:
never earlier than it already was, and not ahead of the clock of the server that is rolled out on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rollout.clock import Clock, boot_of
from rollout.domain.state import RolloutState

Json = Any
FACT = "clock"
AHEAD = 60.0
"""seconds by which a fresh anchor may be ahead of the server's clock"""


def anchor(clock: Clock, not_before: datetime | None = None) -> dict[str, Json]:
    """Where the time of a rollout is fixed to the steady clock of this boot."""
    wall = clock.now()
    return {"wall": max(wall, not_before or wall).isoformat(), "steady": clock.monotonic(), "boot": boot_of(clock)}


@dataclass(frozen=True)
class TrustedClock:
    """A `Clock` that follows the steady clock from its anchor."""

    clock: Clock
    at: dict[str, Json]

    @classmethod
    def of(cls, clock: Clock, state: RolloutState) -> TrustedClock:
        """For a stored rollout: its own anchor within the same boot, else a new one."""
        known = state.fact(FACT)
        if known and known["boot"] and known["boot"] == boot_of(clock):
            return cls(clock, known)
        return cls(clock, anchor(clock, state.entered))

    def checked(self, server: datetime | None, not_before: datetime) -> TrustedClock:
        """A fresh anchor beside the server's clock: a wall clock that is ahead opens no window early. Slow is only late."""
        if server is None or (self.now() - server).total_seconds() <= AHEAD:
            return self
        return TrustedClock(self.clock, {**self.at, "wall": max(server, not_before).isoformat(), "steady": self.clock.monotonic()})

    def now(self) -> datetime:
        passed = self.clock.monotonic() - float(self.at["steady"])
        return datetime.fromisoformat(self.at["wall"]) + timedelta(seconds=passed)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
