"""The `rollout` command with a clock that runs faster: `python -m tests.e2e.fast run plan.yaml`, at `ROLLOUT_TEST_SPEED` times the pace.

Everything else is the real command. Each duration of a plan becomes shorter by that factor; margins and error bounds do not change.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta

import rollout.clock

SPEED = "ROLLOUT_TEST_SPEED"


class Fast:
    """The machine's clock, faster from the moment it was made."""

    def __init__(self) -> None:
        self._speed, self._began, self._zero = float(os.environ[SPEED]), datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._zero) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


if __name__ == "__main__":
    rollout.clock.SystemClock = Fast  # type: ignore[misc,assignment]  # before the commands are imported
    from rollout.cli.app import main

    sys.exit(main())
