"""The client says when it is the client that is slow."""

import asyncio
import time

import pytest

from rollout.clock import SystemClock
from rollout.sources.lag import Heartbeat, client_bound, quantile


@pytest.mark.parametrize(("q", "expected"), [(0.5, 5), (0.95, 10), (0.99, 10), (0.0, 1)])
def test_quantiles_are_nearest_rank(q, expected):
    assert quantile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], q) == expected


def test_the_quantile_of_nothing_is_unknown():
    assert quantile([], 0.5) is None


@pytest.mark.parametrize(
    ("lag", "delays", "busy", "word"),
    [(0.011, [], 0.0, "loop lag"), (0.0, [0.001] * 50 + [0.02], 0.0, "send delay"), (0.0, [], 0.9, "of a core")],
)
def test_each_kind_of_slowness_is_named(lag, delays, busy, word):
    reason = client_bound(lag, delays, 0.2, busy)
    assert reason is not None
    assert reason.startswith("client-bound: ")
    assert word in reason


def test_a_quick_client_is_not_bound_and_nothing_is_judged_without_answers():
    assert client_bound(0.009, [0.001], 0.2) is None
    assert client_bound(9.0, [9.0], None) is None


class StepClock(SystemClock):
    """Monotonic time that only its own sleeps and `jump` move."""

    def __init__(self):
        self.t = 0.0

    def monotonic(self):
        return self.t

    async def sleep(self, seconds):
        self.t += seconds
        await asyncio.sleep(0)


def test_a_block_at_the_end_counts_although_no_beat_follows():
    async def blocked():
        clock = StepClock()
        async with Heartbeat(clock) as beat:
            await asyncio.sleep(0)
            clock.t += 3.0
        return beat

    assert asyncio.run(blocked()).p99 == pytest.approx(3.0, abs=0.02)


def test_a_loop_that_is_not_blocked_has_no_lag_on_a_perfect_clock():
    async def calm():
        async with Heartbeat(StepClock()) as beat:
            for _ in range(50):
                await asyncio.sleep(0)
        return beat

    beat = asyncio.run(calm())
    assert beat.p99 == 0.0
    assert len(beat.lags) > 20


def test_a_blocking_call_is_seen_on_the_real_clock():
    async def blocking():
        async with Heartbeat(SystemClock()) as beat:
            await asyncio.sleep(0.02)
            time.sleep(0.06)  # noqa: ASYNC251 - the fault under test
            await asyncio.sleep(0.02)
        return beat

    assert asyncio.run(blocking()).p99 >= 0.045
