"""Error rates by simulation with fixed seeds: the whole judge, window by window, on traffic of known truth.

430 rollouts of a canary identical to stable, seven kinds of traffic, two metrics, at least 40 windows each; and canaries exactly at the
unacceptable margins. The bounds are the claimed rate plus three standard deviations. The last part shows that the traffic is a trap: a
judge that pools its windows, or does not know the replica's noise, walks into it.
"""

import math
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from rollout.analysis import Window, absorb, new_state
from rollout.analysis.samples import ArmWindow
from tests.unit.analysis.simulated import WINDOWS, Drifting, World, bursting, drifting, ends, one_replica_a_side

ALPHA, BETA = 0.01, 0.05
COARSE: dict[str, Any] = {"windows": WINDOWS, "rate": 5.0, "share": 0.25}
RAMP = Drifting(ramp=True, windows=WINDOWS, rate=5.0)
IDENTICAL: dict[str, tuple[int, World]] = {
    "iid": (100, drifting(Drifting(drift=False, **COARSE))),
    "drift": (100, drifting(Drifting(**COARSE))),
    "ramp": (100, drifting(RAMP)),
    "noise 5 %, fitted": (20, drifting(Drifting(noise=0.05, **COARSE), fitted=True)),
    "noise 15 %, fitted": (20, drifting(Drifting(noise=0.15, **COARSE), fitted=True)),
    "in flight, 1+1": (30, one_replica_a_side()),
    "bursts": (60, bursting()),
}
QUIET, NOISY = ("iid", "drift", "ramp", "bursts"), ("noise 5 %, fitted", "noise 15 %, fitted", "in flight, 1+1")
PROMOTABLE = {
    "iid": 0.7,
    "drift": 0.7,
    "ramp": 0.7,
    "noise 5 %, fitted": 0.4,
    "noise 15 %, fitted": 0.05,
    "in flight, 1+1": 0.03,  # one balanced rung, and its 400 requests prove no error rate in most of them
    "bursts": 0.1,
}
AT_THE_MARGIN: dict[str, tuple[int, World, str]] = {
    "iid, +20 %": (40, drifting(Drifting(drift=False, slow=1.2, **COARSE)), "ttft body"),
    "drift, +20 %": (40, drifting(Drifting(slow=1.2, **COARSE)), "ttft body"),
    "ramp, +20 %": (40, drifting(replace(RAMP, slow=1.2)), "ttft body"),
    "noise 15 %, fitted, +20 %": (20, drifting(Drifting(noise=0.15, slow=1.2, **COARSE), fitted=True), "ttft body"),
    "in flight, 1+1, +20 %": (24, one_replica_a_side(1.2), "ttft body"),
    "bursts, +20 %": (40, bursting(1.2), "ttft body"),
    "drift, errors +1 pp": (40, drifting(Drifting(errors=0.012, **COARSE)), "errors"),
    "bursts, errors +1 pp": (40, bursting(failing=0.01), "errors"),
}


def at_most(rate: float, rollouts: int) -> int:
    """The largest count that is not three standard deviations above `rate`."""
    return math.floor(rollouts * rate + 3 * math.sqrt(rollouts * rate * (1 - rate)))


@pytest.mark.parametrize("kinds", [QUIET, NOISY], ids=["quiet", "noisy"])
def test_identical_canaries_are_not_rolled_back_on_any_traffic(kinds: tuple[str, ...]) -> None:
    """One in a hundred of each kind and of all together; and most can be promoted, otherwise never rolling back would be no merit."""
    found = {kind: ends(*IDENTICAL[kind]) for kind in kinds}
    wrong = {kind: sum(end.failed is not None for end in some) for kind, some in found.items()}
    assert sum(wrong.values()) <= at_most(ALPHA, sum(map(len, found.values()))), wrong
    assert all(count <= at_most(ALPHA, len(found[kind])) for kind, count in wrong.items()), wrong
    proved = {kind: sum(end.proved.keys() >= {"ttft body", "errors"} for end in some) / len(some) for kind, some in found.items()}
    assert all(part >= PROMOTABLE[kind] for kind, part in proved.items()), proved


def test_of_identical_canaries_more_than_four_hundred_are_rolled_out() -> None:
    assert sum(count for count, _ in IDENTICAL.values()) >= 400
    assert PROMOTABLE.keys() == IDENTICAL.keys() == {*QUIET, *NOISY}


@pytest.mark.parametrize("kind", AT_THE_MARGIN)
def test_canaries_at_an_unacceptable_margin_are_not_promoted(kind: str) -> None:
    """The claim that is false must not be proved at any look, a rollback before it or not."""
    count, world, claim = AT_THE_MARGIN[kind]
    assert sum(claim in end.proved for end in ends(count, world, first=1000)) <= at_most(BETA, count)


def test_a_fifth_slower_is_found_in_a_few_hundred_requests() -> None:
    """The reference figure is 327 canary requests at tolerated +5 %, 10 requests a second, a tenth to the canary."""
    found = [end.failed for end in ends(25, drifting(Drifting(slow=1.2)))]
    assert sum(f is not None for f in found) >= 24
    assert 200 <= median(f or math.inf for f in found) <= 480


def test_gross_regressions_are_found() -> None:
    doubled = [end.failed for end in ends(20, drifting(Drifting(slow=2.0, windows=WINDOWS)))]
    assert median(f or math.inf for f in doubled) <= 60
    assert sum(end.failed is not None for end in ends(20, bursting(2.0))) >= 19
    assert sum(end.failed is not None for end in ends(20, bursting(failing=0.08))) >= 19
    assert sum(end.failed is not None for end in ends(10, one_replica_a_side(2.5))) >= 9


def pooled(windows: list[Window]) -> Window:
    """All windows as if they had been one: what a judge must not do."""
    arms = []
    for side in ("stable", "canary"):
        every = [getattr(w, side) for w in windows]
        ttft = every[0].ttft
        for other in every[1:]:
            ttft = ttft.plus(other.ttft)
        arms.append(ArmWindow(sum(a.requests for a in every), sum(a.errors for a in every), ttft))
    return Window(0, 0, 30.0 * len(windows), arms[0], arms[1], (), 1.0)


def test_the_ramp_is_a_trap_for_a_judge_that_pools_its_windows() -> None:
    wrong = 0
    for seed in range(20):
        told, windows = drifting(Drifting(ramp=True))(seed)
        wrong += absorb(told, new_state(told), pooled(list(windows))).crossing is not None
    assert wrong >= 6


def test_a_noisy_replica_is_a_trap_for_a_judge_that_does_not_know_its_noise() -> None:
    assert sum(end.failed is not None for end in ends(30, drifting(Drifting(noise=0.25, **COARSE)))) >= 6
