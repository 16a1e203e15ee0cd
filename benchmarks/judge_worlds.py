"""Traffic for judging the judge: windows of two arms with known truth. Random numbers only, no judge in here.

`Drifting`: the published reference traffic (10 requests a second, shared load drift, a ramp, a noise of the canary's own).
`queue_rollout`: two replicas whose latency depends on the requests in flight, one each side, over a ladder of rungs.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rollout.analysis import ArmWindow, Histogram, Window

EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
SECONDS = 30.0
_LOG_EDGES = np.log(np.array(EDGES))
_GRID = np.linspace(-8.0, 8.0, 3201)
_NORMAL = np.array([NormalDist().cdf(z) for z in _GRID])


@dataclass(frozen=True)
class Drifting:
    """One kind of traffic and one kind of canary. `noise`: sd of the canary's own log latency (correlation 0.8; stable a third).

    `slow`: factor on the canary's latency; `tail`, `tail_factor`: part of its requests made that much slower on top; `errors`: its rate.
    """

    drift: bool = True
    ramp: bool = False
    noise: float = 0.0
    slow: float = 1.0
    tail: float = 0.0
    tail_factor: float = 6.0
    errors: float = 0.002
    share: float = 0.1
    windows: int = 120
    rate: float = 10.0

    def reference(self, rng: np.random.Generator) -> Histogram:
        """An hour of stable before the rollout."""
        load, _, _ = self._load(rng)
        total = sum(rng.multinomial(300, _buckets(math.exp(x))) for x in load)
        return _histogram(np.asarray(total))

    def history(self, rng: np.random.Generator) -> list[tuple[Histogram, Histogram]]:
        """An hour of A/A: one replica with the canary's own noise against the rest, sharing load."""
        load, _, rate = self._load(rng)
        own, pairs = self._own(rng, self.noise), []
        for t, x in enumerate(load):
            total = int(rng.poisson(self.rate * SECONDS * rate[t]))
            mine = total // 3
            a, b = (rng.multinomial(n, _buckets(math.exp(x + u))) for n, u in ((mine, own[t]), (total - mine, 0.0)))
            pairs.append((_histogram(a), _histogram(b)))
        return pairs

    def rollout(self, rng: np.random.Generator) -> Iterator[Window]:
        """The windows of one rollout."""
        load, overload, rate = self._load(rng)
        canary_noise, stable_noise = self._own(rng, self.noise), self._own(rng, self.noise / 3)
        for t in range(self.windows):
            share = (0.05, 0.1, 0.25, 0.5)[min(3, 4 * t // self.windows)] if self.ramp else self.share
            total = int(rng.poisson(self.rate * SECONDS * rate[t]))
            n = int(rng.binomial(total, share))
            worse = 5.0 if overload[t] else 1.0
            base = 0.002 * worse
            ours = (1 - self.tail) * _buckets(math.exp(load[t] + canary_noise[t]) * self.slow)
            if self.tail:
                ours = ours + self.tail * _buckets(math.exp(load[t] + canary_noise[t]) * self.slow * self.tail_factor)
            canary = _arm(rng, n, ours, min(1.0, self.errors * worse))
            stable = _arm(rng, total - n, _buckets(math.exp(load[t] + stable_noise[t])), base)
            rung = min(3, 4 * t // self.windows) if self.ramp else 0
            yield Window(t, rung, SECONDS, stable, canary, load_ratio=1.0, expected_share=share, share_counts=(n, total))

    def _load(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        minutes = np.arange(self.windows) * SECONDS / 60
        if not self.drift:
            return np.zeros(self.windows), np.zeros(self.windows, dtype=bool), np.ones(self.windows)
        overload = np.zeros(self.windows, dtype=bool)
        for t in range(1, self.windows):
            overload[t] = rng.random() < (0.85 if overload[t - 1] else 0.03)
        daily = 0.35 * np.sin(2 * np.pi * minutes / 120 + rng.uniform(0, 2 * np.pi))
        load = daily + _ar1(rng, self.windows, 0.9, 0.2) + 0.7 * overload
        return load, overload, np.exp(0.4 * np.sin(2 * np.pi * minutes / 120 + rng.uniform(0, 2 * np.pi)))

    def _own(self, rng: np.random.Generator, sd: float) -> NDArray[np.float64]:
        return _ar1(rng, self.windows, 0.8, sd)


def _ar1(rng: np.random.Generator, length: int, phi: float, sd: float) -> NDArray[np.float64]:
    out = np.empty(length)
    x = rng.normal() * sd
    for t in range(length):
        out[t] = x
        x = phi * x + sd * math.sqrt(1 - phi * phi) * rng.normal()
    return out


def _buckets(scale: float) -> NDArray[np.float64]:
    """Bucket probabilities of 97 % lognormal(0.22 s, 0.5) + 3 % lognormal(1.2 s, 0.5), all times `scale`."""
    below = np.zeros(len(EDGES))
    for part, median in ((0.97, 0.22), (0.03, 1.2)):
        below += part * np.interp((_LOG_EDGES - math.log(median * scale)) / 0.5, _GRID, _NORMAL, left=0.0, right=1.0)
    return np.maximum(np.diff(np.concatenate(([0.0], below, [1.0]))), 0.0)


def _histogram(counts: NDArray[np.int64]) -> Histogram:
    return Histogram(EDGES, tuple(int(c) for c in counts))


def _arm(rng: np.random.Generator, requests: int, buckets: NDArray[np.float64], errors: float) -> ArmWindow:
    return ArmWindow(requests, int(rng.binomial(requests, errors)), _histogram(rng.multinomial(requests, buckets)))


class Replica:
    """One server: time to first token and total time grow with the requests in flight when a request arrives."""

    def __init__(self, rng: np.random.Generator, slow: float) -> None:
        self.rng, self.slow, self.ends = rng, slow, list[float]()

    def serve(self, now: float) -> float:
        """Time to first token of a request that arrives `now`."""
        while self.ends and self.ends[0] <= now:
            heapq.heappop(self.ends)
        crowd = len(self.ends)
        first = 0.12 * self.slow * (1 + 0.2 * crowd) * math.exp(0.35 * self.rng.normal())
        heapq.heappush(self.ends, now + first + self.rng.exponential(1.2) * self.slow * (1 + 0.04 * crowd))
        return first


def queue_reference(rng: np.random.Generator, rate: float, windows: int = 120) -> Histogram:
    """Stable alone, carrying everything, before the rollout."""
    replica = Replica(rng, 1.0)
    times = np.cumsum(rng.exponential(1 / rate, int(rate * SECONDS * windows)))
    return _histogram(_binned([replica.serve(t) for t in times]))


def queue_rollout(rng: np.random.Generator, rate: float, slow: float, rungs: tuple[float, ...], each: int) -> Iterator[Window]:
    """1+1 replicas over `rungs` of `each` windows: identical for slow = 1, and still one side crowded and the other idle."""
    canary, stable = Replica(rng, slow), Replica(rng, 1.0)
    now, id_ = 0.0, 0
    for index, share in enumerate(rungs):
        for window in range(each):
            end, ours, theirs = (id_ + 1) * SECONDS, list[float](), list[float]()
            while (now := now + rng.exponential(1 / rate)) < end:
                side = rng.random() < share
                (ours if side else theirs).append((canary if side else stable).serve(now))
            yield Window(
                id_,
                index,
                SECONDS,
                ArmWindow(len(theirs), int(rng.binomial(len(theirs), 0.002)), _histogram(_binned(theirs))),
                ArmWindow(len(ours), int(rng.binomial(len(ours), 0.002)), _histogram(_binned(ours))),
                load_ratio=share / (1 - share),
                expected_share=share,
                share_counts=(len(ours), len(ours) + len(theirs)),
                weight_changed=window == 0,
            )
            id_ += 1


def _binned(times: list[float]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(np.array(EDGES), np.array(times)), minlength=len(EDGES) + 1)
