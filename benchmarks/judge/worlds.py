"""Traffic with known truth, many rollouts at once: arrays of counts by rollout, window and bucket. Random numbers only, no judge in here.

`Drifting` is the published reference traffic: 10 requests a second, shared load drift, a ramp, a noise of the canary's own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rollout.analysis import ArmWindow, Histogram, QualityPair, Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
SECONDS = 30.0
STABLE_RIGHT, PROMPTS = 0.92, 10  # share of right answers, prompts replayed in a window
TAIL_FROM = 0.5  # seconds: the first edge of the reference's tail (exceedance 2 to 20 %)
_RAMP = (0.05, 0.1, 0.25, 0.5)
_LOG_EDGES = np.log(np.array(EDGES))
_GRID = np.linspace(-8.0, 8.0, 3201)
_NORMAL = np.array([NormalDist().cdf(z) for z in _GRID])


@dataclass(frozen=True, eq=False)
class Traffic:
    """Counts of R rollouts over T windows. `*_ttft`: (R, T, buckets); `*_errors`: (R, T); `share`, `load_ratio`, `rung`, `moved`: (T,).

    `right`: (R, T, prompts, 2), whether stable's and the canary's answer to each replayed prompt was right.
    """

    canary_ttft: Ints
    stable_ttft: Ints
    canary_errors: Ints
    stable_errors: Ints
    share: Floats
    load_ratio: Floats
    rung: Ints
    moved: NDArray[np.bool_]
    right: NDArray[np.bool_] | None = None

    @property
    def rollouts(self) -> int:
        """R."""
        return len(self.canary_errors)

    @property
    def windows(self) -> int:
        """T."""
        return len(self.share)

    def canary_requests(self) -> Ints:
        """(R, T): requests of the canary up to and including each window."""
        return np.asarray(self.canary_ttft.sum(axis=2).cumsum(axis=1))

    def window(self, rollout: int, t: int) -> Window:
        """One window as the judge eats it."""
        ours, theirs = histogram(self.canary_ttft[rollout, t]), histogram(self.stable_ttft[rollout, t])
        n, m = ours.total, theirs.total
        return Window(
            t,
            int(self.rung[t]),
            SECONDS,
            ArmWindow(m, int(self.stable_errors[rollout, t]), theirs),
            ArmWindow(n, int(self.canary_errors[rollout, t]), ours),
            load_ratio=float(self.load_ratio[t]),
            expected_share=float(self.share[t]),
            share_counts=(n, n + m),
            weight_changed=bool(self.moved[t]),
            quality=() if self.right is None else tuple(QualityPair(float(s), float(c)) for s, c in self.right[rollout, t]),
        )

    def one(self, rollout: int) -> Iterator[Window]:
        """All windows of one rollout."""
        return (self.window(rollout, t) for t in range(self.windows))


@dataclass(frozen=True)
class Drifting:
    """One kind of traffic and one kind of canary. `noise`: sd of the canary's own log latency (correlation 0.8; stable a third).

    `slow`: factor on the canary's latency, from window `onset` on; `tail`, `tail_factor`: part of its requests made that much slower on
    top; `tail_odds`: its odds of exceeding each tail edge over stable's; `errors`: its rate; `more_errors`: what it fails more than stable;
    `right`: its share of right answers to replayed prompts (None: none are replayed).
    """

    drift: bool = True
    ramp: bool = False
    noise: float = 0.0
    slow: float = 1.0
    onset: int = 0
    tail: float = 0.0
    tail_factor: float = 6.0
    tail_odds: float = 1.0
    errors: float = 0.002
    more_errors: float = 0.0
    right: float | None = None
    share: float = 0.1
    windows: int = 120
    rate: float = 10.0

    def references(self, rng: Rng, count: int) -> list[Histogram]:
        """An hour of stable before each rollout."""
        load, _, _ = self._load(rng, count)
        return [histogram(row) for row in rng.multinomial(300, buckets(np.exp(load))).sum(axis=1)]

    def histories(self, rng: Rng, count: int) -> list[list[tuple[Histogram, Histogram]]]:
        """An hour of A/A before each rollout: one replica with the canary's own noise against the rest, sharing load."""
        load, _, rate = self._load(rng, count)
        total = rng.poisson(self.rate * SECONDS * rate)
        mine = total // 3
        own = _ar1(rng, load.shape, 0.8, self.noise)
        a, b = rng.multinomial(mine, buckets(np.exp(load + own))), rng.multinomial(total - mine, buckets(np.exp(load)))
        return [[(histogram(x), histogram(y)) for x, y in zip(ours, rest, strict=True)] for ours, rest in zip(a, b, strict=True)]

    def traffic(self, rng: Rng, count: int) -> Traffic:
        """The windows of `count` rollouts."""
        load, overload, rate = self._load(rng, count)
        quarter = np.minimum(3, 4 * np.arange(self.windows) // self.windows)
        share = np.array(_RAMP)[quarter] if self.ramp else np.full(self.windows, self.share)
        total = rng.poisson(self.rate * SECONDS * rate)
        n = rng.binomial(total, share)
        m = total - n
        ours, theirs = load + _ar1(rng, load.shape, 0.8, self.noise), load + _ar1(rng, load.shape, 0.8, self.noise / 3)
        worse = np.where(overload, 5.0, 1.0)
        return Traffic(
            canary_ttft=rng.multinomial(n, self._canary(np.exp(ours))),
            stable_ttft=rng.multinomial(m, buckets(np.exp(theirs))),
            canary_errors=rng.binomial(n, np.minimum(1.0, self.errors * worse + self.more_errors)),
            stable_errors=rng.binomial(m, 0.002 * worse),
            share=share,
            load_ratio=np.ones(self.windows),
            rung=quarter if self.ramp else np.zeros(self.windows, dtype=np.int64),
            moved=np.zeros(self.windows, dtype=bool),
            right=None if self.right is None else answers(rng, (*load.shape, PROMPTS), self.right),
        )

    def _canary(self, load: Floats) -> Floats:
        scale = load * np.where(np.arange(self.windows) >= self.onset, self.slow, 1.0)
        found = (1 - self.tail) * buckets(scale)
        if self.tail:
            found = found + self.tail * buckets(scale * self.tail_factor)
        return raised_tail(found, self.tail_odds) if self.tail_odds != 1.0 else found

    def _load(self, rng: Rng, count: int) -> tuple[Floats, NDArray[np.bool_], Floats]:
        shape = (count, self.windows)
        overload = np.zeros(shape, dtype=bool)
        if not self.drift:
            return np.zeros(shape), overload, np.ones(shape)
        turns = 2 * np.pi * np.arange(self.windows) * SECONDS / 7200
        for t in range(1, self.windows):
            overload[:, t] = rng.random(count) < np.where(overload[:, t - 1], 0.85, 0.03)
        phase = rng.uniform(0, 2 * np.pi, (2, count, 1))
        load = 0.35 * np.sin(turns + phase[0]) + _ar1(rng, shape, 0.9, 0.2) + 0.7 * overload
        return load, overload, np.exp(0.4 * np.sin(turns + phase[1]))


def answers(rng: Rng, shape: tuple[int, ...], right: float) -> NDArray[np.bool_]:
    """Whether stable's (92 %) and the canary's (`right`) answers are right: (*shape, 2). Half the prompts are as hard for both."""
    luck, other = rng.random(shape), rng.random(shape)
    return np.stack((luck < STABLE_RIGHT, np.where(rng.random(shape) < 0.5, luck, other) < right), axis=-1)


def _ar1(rng: Rng, shape: tuple[int, ...], phi: float, sd: float) -> Floats:
    shocks = rng.normal(size=shape) * sd
    for t in range(1, shape[1]):
        shocks[:, t] = phi * shocks[:, t - 1] + math.sqrt(1 - phi * phi) * shocks[:, t]
    return shocks


def buckets(scale: Floats) -> Floats:
    """Bucket probabilities of 97 % lognormal(0.22 s, 0.5) + 3 % lognormal(1.2 s, 0.5), all times `scale`: one axis more than `scale`."""
    below = np.zeros((*scale.shape, len(EDGES) + 1))
    log = np.log(scale)[..., None]
    for part, median in ((0.97, 0.22), (0.03, 1.2)):
        below[..., :-1] += part * np.interp((_LOG_EDGES - math.log(median) - log) / 0.5, _GRID, _NORMAL, left=0.0, right=1.0)
    below[..., -1] = 1.0
    return np.maximum(np.diff(below, axis=-1, prepend=0.0), 0.0)


def raised_tail(probabilities: Floats, odds: float) -> Floats:
    """The same buckets with the odds of exceeding each edge from `TAIL_FROM` on multiplied, the body left as it is."""
    above = 1.0 - probabilities.cumsum(axis=-1)[..., :-1]
    tail = np.array(EDGES) >= TAIL_FROM
    raised = np.where(tail, odds * above / (1.0 + (odds - 1.0) * above), above)
    raised = np.minimum.accumulate(np.clip(raised, 0.0, 1.0), axis=-1)
    below = np.concatenate((1.0 - raised, np.ones((*raised.shape[:-1], 1))), axis=-1)
    return np.maximum(np.diff(below, axis=-1, prepend=0.0), 0.0)


def histogram(counts: Ints) -> Histogram:
    """A histogram on `EDGES`."""
    return Histogram(EDGES, tuple(counts.tolist()))
