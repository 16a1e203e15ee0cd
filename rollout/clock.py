"""The only room that reads a clock. Everything else is given a `Clock`, so that tests skip days."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the engine sees it."""

    def now(self) -> datetime:
        """Wall time, aware, UTC. May jump; deadlines that must survive a reboot use it."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a fake clock moves itself instead."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
