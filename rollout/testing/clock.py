"""A clock that tests move: sleeping is instant and advances it. Satisfies `rollout.clock.Clock`; reads no real time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)


class FakeClock:
    """Wall time and monotonic time, moved together by `sleep` and `advance`, apart by `jump`."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Advance by `seconds` and let other tasks run once."""
        self.slept.append(seconds)
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """The wall clock alone is set forward or back; no time has passed."""
        self._now += timedelta(seconds=seconds)

    def reboot(self) -> None:
        """The monotonic clock starts again, the wall clock goes on."""
        self._monotonic = 0.0
