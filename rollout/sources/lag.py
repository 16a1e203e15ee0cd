"""How far a measurement can be trusted: the event loop's own lag, the send delay, and the words "client-bound".

A load generator that measures itself prints its own queue as latency; this room makes that visible. It must not hide a bad
figure: what it finds is reported beside the result, and the caller throws the result away.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rollout.clock import Clock

BEAT = 0.01
"""seconds between two heartbeats of the loop"""
SHARE = 0.05
"""lag or send delay above this share of the latency that is judged makes the result client-bound"""
BUSY = 0.8
"""own CPU above this share of one core does the same"""


def quantile(values: Sequence[float], q: float) -> float | None:
    """The nearest-rank quantile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


class Heartbeat:
    """Measures, while its block runs, by how much a 10 ms sleep overshoots, and this process's CPU time.

    The overshoot holds the timer's own step of up to 1 ms. A loop that is blocked at the end of the block counts with what is due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lags: list[float] = []
        self.busy = 0.0
        """own CPU seconds per second"""

    async def __aenter__(self) -> Self:
        self._began, self._cpu = self._clock.monotonic(), _cpu()
        self._due = self._began + BEAT
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        now = self._clock.monotonic()
        self.lags.append(max(0.0, now - self._due))
        self.busy = (_cpu() - self._cpu) / (now - self._began) if now > self._began else 0.0

    @property
    def p99(self) -> float:
        """Seconds: the error bar of every time that was measured inside the block."""
        return quantile(self.lags, 0.99) or 0.0

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(BEAT)
            now = self._clock.monotonic()
            self.lags.append(max(0.0, now - self._due))
            self._due = now + BEAT


def client_bound(lag: float, delays: Sequence[float], judged: float | None, busy: float = 0.0) -> str | None:
    """Why the client's own slowness is in the result, in words; None when it is not. Times in seconds.

    `lag`: loop lag p99; `delays`: send delays; `judged`: the median latency that is compared, None when nothing was answered.
    """
    if judged is None:
        return None
    bound = SHARE * judged
    if lag > bound:
        return f"client-bound: loop lag p99 {_ms(lag)} is over {SHARE:.0%} of the median {_ms(judged)}"
    delay = quantile(delays, 0.99) or 0.0
    if delay > bound:
        return f"client-bound: send delay p99 {_ms(delay)} is over {SHARE:.0%} of the median {_ms(judged)}"
    if busy > BUSY:
        return f"client-bound: this process used {busy:.0%} of a core"
    return None


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
