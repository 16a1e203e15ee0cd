"""Two replicas, one a side, whose latency depends on the requests in flight: identical servers look different at almost every share.

All rollouts advance together, request by request; the arrays hold when each request in flight will end.
"""

import numpy as np

from benchmarks.judge.worlds import EDGES, PROMPTS, SECONDS, Floats, Ints, Rng, Traffic, answers, histogram
from rollout.analysis import Histogram

RUNGS = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90)
RATE = 4.0  # requests a second
_SLOTS = 64  # requests in flight a replica can remember
_BUCKETS = len(EDGES) + 1


class _Replicas:
    """Both servers of R rollouts: time to first token and total time grow with the requests in flight when a request arrives."""

    def __init__(self, rng: Rng, count: int, slow: float, slow_first: float, tail: float) -> None:
        self.rng, self.slow, self.slow_first, self.tail = rng, slow, slow_first, tail
        self.ends = np.zeros((count, 2, _SLOTS))
        self.all = np.arange(count)

    def serve(self, now: Floats, canary: Ints) -> Floats:
        """Time to first token of one request in each rollout, arriving at `now` on the canary (1) or on stable (0)."""
        ends = self.ends[self.all, canary]
        crowd = (ends > now[:, None]).sum(axis=1)
        slow = np.where(canary == 1, self.slow, 1.0)
        first = (
            0.12 * slow * np.where(canary == 1, self.slow_first, 1.0) * (1 + 0.2 * crowd) * np.exp(0.35 * self.rng.normal(size=len(now)))
        )
        if self.tail:
            first = first * np.where((canary == 1) & (self.rng.random(len(now)) < self.tail), 6.0, 1.0)
        rest = self.rng.exponential(1.2, len(now)) * slow * (1 + 0.04 * crowd)
        self.ends[self.all, canary, ends.argmin(axis=1)] = now + first + rest
        return np.asarray(first)


def queue_references(rng: Rng, count: int, windows: int = 120) -> list[Histogram]:
    """Stable alone, carrying everything, before each rollout."""
    found = _simulated(rng, _Replicas(rng, count, 1.0, 1.0, 0.0), np.zeros(windows))
    return [histogram(counts) for counts in found[:, 0].sum(axis=1)]


def queue_traffic(
    rng: Rng,
    count: int,
    *,
    slow: float = 1.0,
    slow_first: float = 1.0,
    tail: float = 0.0,
    more_errors: float = 0.0,
    right: float | None = None,
    rungs: tuple[float, ...] = RUNGS,
    each: int = 15,
) -> Traffic:
    """1+1 replicas over `rungs` of `each` windows. `slow`: factor on all the canary does; `slow_first`: on its first tokens only (the
    load stays nearly the same); `tail`: part of its requests whose first token takes six times as long.
    """
    share = np.repeat(rungs, each)
    counts = _simulated(rng, _Replicas(rng, count, slow, slow_first, tail), share)
    canary, stable = counts[:, 1], counts[:, 0]
    return Traffic(
        canary_ttft=canary,
        stable_ttft=stable,
        canary_errors=rng.binomial(canary.sum(axis=2), 0.002 + more_errors),
        stable_errors=rng.binomial(stable.sum(axis=2), 0.002),
        share=share,
        load_ratio=share / (1 - share),
        rung=np.repeat(np.arange(len(rungs)), each),
        moved=np.arange(len(share)) % each == 0,
        right=None if right is None else answers(rng, (count, len(share), PROMPTS), right),
    )


def _simulated(rng: Rng, replicas: _Replicas, share: Floats) -> Ints:
    """(R, 2, T, buckets): requests that arrived in each window, stable first."""
    count, windows = len(replicas.all), len(share)
    counts = np.zeros((count, 2, windows, _BUCKETS), dtype=np.int64)
    now = rng.exponential(1 / RATE, count)
    bounds = np.array(EDGES)
    while True:
        window = (now / SECONDS).astype(np.int64)
        going = window < windows
        if not going.any():
            return counts
        at = np.minimum(window, windows - 1)
        canary = (rng.random(count) < share[at]).astype(np.int64)
        bucket = np.searchsorted(bounds, replicas.serve(now, canary))
        counts[replicas.all[going], canary[going], at[going], bucket[going]] += 1
        now = now + rng.exponential(1 / RATE, count)
