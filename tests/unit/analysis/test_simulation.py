"""Error rates by simulation, coarse and with fixed seeds: the whole judge, window by window.

Three kinds of traffic: the reference traffic with shared drift and a ramp, replicas whose latency depends on the requests in flight, and a
plain bursty one written for this test alone (with the standard library's random numbers).
"""

import bisect
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks.judge_simulation import Outcome, configured, judged, judged_over_ladder
from benchmarks.judge_worlds import Drifting, queue_reference, queue_rollout
from rollout.analysis import ArmWindow, Histogram, Window, config_for

COARSE: dict[str, Any] = {"windows": 40, "rate": 5.0, "share": 0.25}
BOUNDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def outcomes(count: int, once: Callable[[int], Outcome]) -> list[str]:
    return [once(seed).kind for seed in range(count)]


def drifting(world: Drifting, promote: bool = False) -> Callable[[int], Outcome]:
    def once(seed: int) -> Outcome:
        rng = np.random.default_rng((11, seed))
        return judged(configured(world, rng, {}), world.rollout(rng), promote)

    return once


def test_identical_canaries_under_drift_and_a_ramp_are_not_rolled_back() -> None:
    """200 rollouts at alpha 1 %: six would be three standard deviations above it."""
    kinds = outcomes(100, drifting(Drifting(**COARSE))) + outcomes(100, drifting(Drifting(ramp=True, windows=40, rate=5.0)))
    assert kinds.count("fail") <= 6


def test_canaries_at_the_unacceptable_margins_are_not_promoted() -> None:
    """5 % + 3 sigma of 40 is 6."""
    still = replace(Drifting(**COARSE), drift=False)
    for world in (replace(still, slow=1.2), replace(still, errors=0.012)):
        assert outcomes(40, drifting(world, promote=True)).count("pass") <= 6


def test_a_fifth_slower_is_found_in_a_few_hundred_requests() -> None:
    """The reference figure is 327 canary requests at tolerated +5 %, 10 requests a second, a tenth to the canary."""
    found = [drifting(Drifting(slow=1.2))(seed) for seed in range(30)]
    assert [o.kind for o in found].count("fail") >= 29
    assert 200 <= median(o.requests for o in found) <= 480


def test_a_doubled_latency_is_found_at_once() -> None:
    found = [drifting(Drifting(slow=2.0))(seed) for seed in range(20)]
    assert median(o.requests for o in found) <= 60


def one_replica_a_side(slow: float) -> Callable[[int], Outcome]:
    def once(seed: int) -> Outcome:
        rng = np.random.default_rng((12, seed))
        config = config_for("thin", rungs=6, reference_ttft=queue_reference(rng, 4.0, 20))
        return judged_over_ladder(config, queue_rollout(rng, 4.0, slow, (0.05, 0.1, 0.25, 0.5, 0.75, 0.9), 6))

    return once


def test_one_idle_and_one_crowded_replica_are_no_evidence_of_a_difference() -> None:
    assert outcomes(25, one_replica_a_side(1.0)).count("fail") <= 1
    assert outcomes(25, one_replica_a_side(1.2)).count("pass") <= 4
    assert outcomes(8, one_replica_a_side(2.5)).count("fail") >= 7


def bursty(seed: int, slow: float, windows: int = 40) -> Iterator[Window]:
    """Exponential latencies whose mean jumps between three moods common to both arms; the share moves from window to window."""
    rnd, mood = random.Random(seed), 0.2
    for i in range(windows):
        if rnd.random() < 0.2:
            mood = rnd.choice((0.1, 0.2, 0.5))
        arms = []
        for size, factor in ((rnd.randint(20, 120), 1.0), (rnd.randint(5, 60), slow)):
            counts = [0] * (len(BOUNDS) + 1)
            for _ in range(size):
                counts[bisect.bisect_left(BOUNDS, rnd.expovariate(1 / (mood * factor)))] += 1
            errors = sum(rnd.random() < 0.01 for _ in range(size))
            arms.append(ArmWindow(size, errors, Histogram(BOUNDS, tuple(counts))))
        yield Window(i, i // 20, 30.0, arms[0], arms[1], (), 1.0)


def test_bursts_and_wandering_shares_do_not_fool_it() -> None:
    before = [w.stable.ttft for w in bursty(0, 1.0)]
    reference = Histogram(BOUNDS, tuple(sum(h.counts[b] for h in before if h) for b in range(len(BOUNDS) + 1)))
    config = config_for("rich", rungs=2, reference_ttft=reference, noise=(0.0, 0.0))
    assert outcomes(60, lambda seed: judged(config, bursty(seed + 1, 1.0), promote=False)).count("fail") <= 3
    assert outcomes(20, lambda seed: judged(config, bursty(seed + 1, 2.0), promote=False)).count("fail") >= 19
