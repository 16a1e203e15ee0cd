"""Rollouts of known truth for the error rates in `test_simulation`: each world gives a config and its windows, the judge says how it ends.

All of the whole judge on two metrics, time to first token and failures; at least 40 windows a rollout.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.judge.queues import queue_references, queue_traffic
from benchmarks.judge.worlds import Drifting, Traffic
from rollout.analysis import ArmWindow, Histogram, JudgeConfig, JudgeState, Window, absorb_many, config_for, new_state
from rollout.analysis.design import design_of, log_pass
from rollout.analysis.fit import fit_noise
from tests.unit.analysis.bursts import BOUNDS, LOOK, Request, binned, looks, traffic

WINDOWS = 40
TOGETHER = 20  # rollouts of the queues simulated side by side
LADDER = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
BURST_LADDER = (0.1, 0.3, 0.5, 0.5)
World = Callable[[int], tuple[JudgeConfig, Iterable[Window]]]


@dataclass(frozen=True)
class End:
    """`failed`, `proved`: after how many canary requests the judge would roll back, and each claim was proved; absent = never."""

    failed: int | None
    proved: dict[str, int]


def ends(count: int, world: World, first: int = 0) -> list[End]:
    """`count` rollouts of a world, each with a seed of its own, in lockstep.

    Every window is taken in: a rollback does not end a rollout, so that a false proof after one is counted too.
    """
    rollouts = [world(seed) for seed in range(first, first + count)]
    told = [config for config, _ in rollouts]
    states, found = [new_state(config) for config in told], [End(None, {}) for _ in told]
    requests, seen = [0] * count, 0
    for windows in zip(*(windows for _, windows in rollouts), strict=True):
        states, seen = absorb_many(told, states, windows), seen + 1
        requests = [n + window.canary.requests for n, window in zip(requests, windows, strict=True)]
        found = [_noted(*one) for one in zip(found, told, states, requests, strict=True)]
    assert seen >= WINDOWS
    return found


def _noted(end: End, told: JudgeConfig, state: JudgeState, requests: int) -> End:
    failed = end.failed
    if failed is None and (state.crossing or state.breaker.tripped):
        failed = requests
    newly = {claim: requests for claim, log in log_pass(design_of(told), state).items() if log >= -math.log(told.beta)}
    return End(failed, newly | end.proved)


def drifting(world: Drifting, fitted: bool = False) -> World:
    """The published traffic. `fitted`: the canary's own noise is estimated on a history of the same replica, as before a real rollout."""

    def once(seed: int) -> tuple[JudgeConfig, Iterable[Window]]:
        rng = np.random.default_rng((11, seed))
        reference = world.references(rng, 1)[0]
        noise = fit_noise(reference, world.histories(rng, 1)[0]) if fitted else (0.0, 0.0)
        rungs = 4 if world.ramp else 1
        return config_for("rich", rungs=rungs, reference_ttft=reference, noise=noise), world.traffic(rng, 1).one(0)

    return once


def one_replica_a_side(slow: float = 1.0) -> World:
    """Latency depends on the requests in flight; one replica a side over the whole ladder, judged by the defaults for that case."""

    def once(seed: int) -> tuple[JudgeConfig, Iterable[Window]]:
        references, found = queues(slow, seed // TOGETHER)
        number = seed % TOGETHER
        return config_for("rich", rungs=len(LADDER), reference_ttft=references[number]), found.one(number)

    return once


@lru_cache(maxsize=4)
def queues(slow: float, block: int) -> tuple[list[Histogram], Traffic]:
    """References and windows of a block of such rollouts: many side by side cost little more than one."""
    rng = np.random.default_rng((12, block))
    return queue_references(rng, TOGETHER, 20), queue_traffic(rng, TOGETHER, slow=slow, rungs=LADDER, each=7)


def bursting(slow: float = 1.0, failing: float = 0.0) -> World:
    """The bursty traffic of `bursts`, request by request."""
    each = WINDOWS // len(BURST_LADDER)

    def windows(seed: int) -> Iterator[Window]:
        seen = looks(traffic(seed, BURST_LADDER, each * LOOK, slow, failing), WINDOWS)
        for index, requests in enumerate(seen):
            sides = [[r for r in requests if r.canary is canary] for canary in (False, True)]
            stable, canary = map(arm, sides)
            share, changed = BURST_LADDER[index // each], index > 0 and index % each == 0
            counts = (canary.requests, len(requests))
            yield Window(index, index // each, LOOK, stable, canary, (), 1.0, share, counts, weight_changed=changed)

    def once(seed: int) -> tuple[JudgeConfig, Iterable[Window]]:
        before = [r for look in looks(traffic(100_000 + seed, (0.0,), WINDOWS * LOOK), WINDOWS) for r in look]
        reference = Histogram(BOUNDS, binned(before))
        return config_for("rich", rungs=len(BURST_LADDER), reference_ttft=reference, noise=(0.0, 0.0)), windows(seed)

    return once


def arm(requests: list[Request]) -> ArmWindow:
    """One side of a look."""
    return ArmWindow(len(requests), sum(r.failed for r in requests), Histogram(BOUNDS, binned(requests)))
