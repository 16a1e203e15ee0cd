"""The only room that reads a clock. Everything else is given a `Clock`, so that tests skip days."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""counts through a suspend where the system can; the same for every process of one boot"""


class Clock(Protocol):
    """Time as the engine sees it."""

    def now(self) -> datetime:
        """Wall time, aware, UTC. It may jump: windows and deadlines are counted on `monotonic`."""

    def monotonic(self) -> float:
        """Seconds that never go back, the same for every process of one boot."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a fake clock moves itself instead."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        import asyncio  # who sleeps has it loaded; a command that only says a word does not pay for it

        await asyncio.sleep(seconds)

    def boot(self) -> str:
        """Names this boot of this machine; empty where the system does not say."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""


def boot_of(clock: Clock) -> str:
    """Which boot a clock's steady time belongs to; empty = this process only."""
    boot = getattr(clock, "boot", None)
    return str(boot()) if callable(boot) else ""
