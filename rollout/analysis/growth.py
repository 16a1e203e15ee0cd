"""How fast evidence grows on traffic that is not there yet: gains of the real e-processes on windows drawn from the reference.

A `Source` holds what single windows would add to the log likelihood ratios of one process, by alternative; `add_up` lays many of them
end to end, so that a path of evidence over hours costs a matrix product. Drawn with a fixed seed: the same question gets the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from rollout.analysis.betting import PROBE_ODDS
from rollout.analysis.errors import ALTERNATIVES, harmless_gain
from rollout.analysis.hypergeometric import Counts, Floats, Ints
from rollout.analysis.latency import FAIL_STEPS, PASS_STEPS, LatencyTest, ordinal_odds
from rollout.analysis.noise import Noise
from rollout.analysis.quality import quality_kept, quality_lost
from rollout.analysis.samples import QualityPair

PATHS = 200
_SEED = 20
_DRAWN = (64, 512)  # windows drawn for one estimate, at least and at most
_RARE = 2048  # the same for errors, of which a window has few
_WORK = 20_000  # requests drawn for one estimate, about
_FEW = 40  # windows that are added one by one; more by their mean and covariance
_H = 1e-3  # step in log odds for the slope of a likelihood


@dataclass(frozen=True, eq=False)
class Source:
    """`gains`: (windows drawn, columns) of log e, only of windows that compare anything; `informative`: how often a window does.

    `information`: by column, what a window tells about a shift of the log odds (inverse variance), for what replica noise takes away.
    """

    gains: Floats
    informative: float
    information: Floats

    @property
    def columns(self) -> int:
        """Processes and alternatives."""
        return int(self.gains.shape[1])

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """Mean of a window's gains, and a root of their covariance, the windows that compare nothing included."""
        mean = self.gains.mean(axis=0) * self.informative
        square = self.gains.T @ self.gains / len(self.gains) * self.informative - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(square)
        return mean, vectors * np.sqrt(np.maximum(values, 0.0))


@dataclass(frozen=True)
class Flow:
    """Requests a window brings each side, on average."""

    canary: float
    stable: float

    @property
    def both(self) -> float:
        """How often a window has a request on either side: only then anything is compared."""
        return -math.expm1(-self.canary) * -math.expm1(-self.stable)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """Requests of each side in `count` windows that have some on both."""
        return _at_least_one(rng, self.canary, count), _at_least_one(rng, self.stable, count)

    @property
    def windows(self) -> int:
        """Windows to draw: fewer where each holds many requests and looks like the others."""
        return int(np.clip(_WORK / max(1.0, self.canary + self.stable), *_DRAWN))


def _at_least_one(rng: np.random.Generator, mean: float, count: int) -> Ints:
    """Poisson, given that it is not 0."""
    if mean > 30:
        return np.maximum(1, rng.poisson(mean, count))
    k = np.arange(1, int(mean + 12 * math.sqrt(mean) + 12))
    logs = k * math.log(mean) - np.array([math.lgamma(i + 1.0) for i in k])
    law = np.exp(logs - logs.max())
    return np.asarray(rng.choice(k, size=count, p=law / law.sum()), dtype=np.int64)


@lru_cache(maxsize=256)
def slower(test: LatencyTest, flow: Flow, slowdown: float) -> tuple[Source, Source]:
    """The rollback side of a latency, when the canary is slower by `slowdown` and nothing else: threshold part and ordinal part.

    Columns: edge by edge its alternatives; the ordinal alternatives.
    """
    rng = np.random.default_rng(_SEED)
    canary, stable = (_histograms(rng, test, n, s) for n, s in zip(flow.draw(rng, flow.windows), (slowdown, 0.0), strict=True))
    margins = np.array([test.reference.shift(e, test.tolerated) for e in test.edges]).reshape(-1, 1)
    truth = np.array([test.reference.shift(e, slowdown) for e in test.edges])
    edges = _above(test, test.edges, canary, stable, margins + FAIL_STEPS, truth)
    information = _edge_information(test, test.edges, flow, len(FAIL_STEPS) - 1)
    return Source(edges, flow.both, information), _ordinal(test, flow, canary, stable, slowdown)


@lru_cache(maxsize=64)
def harmless(test: LatencyTest, flow: Flow) -> Source:
    """The promotion side of a latency for a canary that is like stable. Columns: body edges, then tail edges, each its alternatives."""
    rng = np.random.default_rng(_SEED)
    canary, stable = (_histograms(rng, test, n, 0.0) for n in flow.draw(rng, flow.windows))
    at = test.body + test.tail
    gains = _above(test, at, canary, stable, np.array(test.pass_margins).reshape(-1, 1) + PASS_STEPS, np.zeros(len(at)))
    return Source(gains, flow.both, _edge_information(test, at, flow, len(PASS_STEPS) - 1))


@lru_cache(maxsize=256)
def more_errors(flow: Flow, rate: float, worse: float, tolerated_odds: float) -> Source:
    """The rollback side of errors: stable fails at `rate`, the canary at `rate + worse`."""
    rng = np.random.default_rng(_SEED)
    return _quiet(_failing(rng, *flow.draw(rng, _RARE), rate, worse, tolerated_odds), flow.both)


@lru_cache(maxsize=256)
def more_errors_of_pairs(batch: int, rate: float, worse: float, tolerated_odds: float) -> Source:
    """The same for probe pairs: one batch a "window"."""
    each = np.full(_RARE, batch, dtype=np.int64)
    return _quiet(_failing(np.random.default_rng(_SEED), each, each, rate, worse, tolerated_odds), 1.0)


def _failing(rng: np.random.Generator, n: Ints, m: Ints, rate: float, worse: float, tolerated_odds: float) -> Floats:
    a, b = rng.binomial(n, min(1.0, rate + worse)), rng.binomial(m, rate)
    theta = np.broadcast_to(math.log(tolerated_odds) + FAIL_STEPS, (len(n), len(FAIL_STEPS)))
    truth = _logit(rate + worse) - _logit(rate)
    return _gains(Counts(n, m, a + b, a), theta, np.full(len(n), truth)).reshape(len(n), -1)


@lru_cache(maxsize=64)
def few_errors(flow: Flow, rate: float, margin: float) -> Source:
    """The promotion side of errors for a canary that fails as often as stable, at a bet that knows the rate."""
    rng = np.random.default_rng(_SEED)
    n, m = flow.draw(rng, int(np.clip(2 * _WORK / (flow.canary + flow.stable), _DRAWN[0], _RARE)))
    a, b = rng.binomial(n, rate), rng.binomial(m, rate)
    seen = (round(rate * 2000), 2000)
    strata, of = np.unique(np.column_stack([n, m, a, b]), axis=0, return_inverse=True)
    rows = [harmless_gain((int(i), int(j), int(x), int(y)), seen, margin) for i, j, x, y in strata]
    return _quiet(np.array(rows).reshape(-1, len(ALTERNATIVES))[of.ravel()], flow.both)


def coin(heads: float) -> Source:
    """A bet of `PROBE_ODDS` on an event that happens with probability `heads`: one pair a "window"."""
    q = np.array(PROBE_ODDS)
    return _of_law([heads, 1 - heads], np.stack([np.log(2 * q), np.log(2 * (1 - q))]))


def few_errors_of_pairs(rate: float, margin: float) -> Source:
    """The same for probe pairs: one pair a "window"."""
    outcomes = [(a, b) for a in (0, 1) for b in (0, 1)]
    seen = (round(rate * 2000), 2000)
    rows = [(_law(rate, a) * _law(rate, b), harmless_gain((1, 1, a, b), seen, margin)) for a, b in outcomes]
    return _of_law([chance for chance, _ in rows], np.array([gain for _, gain in rows]))


def outcomes(discordant: tuple[float, float], margin: float, *, harmless: bool = False) -> Source:
    """Quality pairs with scores right or wrong; `discordant`: how often only stable is right, and how often only the canary.

    Against "the canary loses at most `margin` of the mean score", or (`harmless`) against "it loses at least that".
    """
    lost, won = discordant
    pairs = (QualityPair(1.0, 0.0), QualityPair(0.0, 1.0), QualityPair(1.0, 1.0))
    gains = [quality_kept([p], margin) if harmless else quality_lost([p], margin, binary=True) for p in pairs]
    return _of_law([lost, won, 1 - lost - won], np.array(gains))


def _law(rate: float, bad: int) -> float:
    return rate if bad else 1 - rate


def _of_law(chances: list[float], gains: Floats) -> Source:
    """Outcomes repeated in proportion, so that drawing rows evenly draws them by their chances."""
    times = np.maximum((np.array(chances) * 5000).round().astype(int), (np.array(chances) > 0).astype(int))
    return _quiet(np.repeat(gains, times, axis=0), 1.0)


def _quiet(gains: Floats, informative: float) -> Source:
    return Source(gains, informative, np.full(gains.shape[1], math.inf))


def _histograms(rng: np.random.Generator, test: LatencyTest, requests: Ints, slowdown: float) -> Ints:
    """Counts by bucket of the reference, one row a window, of an arm slower by `slowdown`: (windows, edges + 1)."""
    logits = np.array([test.reference.logit(e / (1 + slowdown)) for e in test.reference.edges])
    above = np.concatenate(([1.0], 1.0 / (1.0 + np.exp(-logits)), [0.0]))
    law = np.maximum(-np.diff(above), 0.0)
    return np.asarray(rng.multinomial(requests, law / law.sum()), dtype=np.int64)


def _gains(counts: Counts, theta: Floats, truth: Floats) -> Floats:
    """Gains over the null by row: (rows, alternatives), their chance error in the mean taken out.

    `theta`: (rows, 1 + alternatives), the null first; `truth`: by row the log odds the rows were drawn with. What a row's bad requests
    exceed their expectation by is the slope of the likelihood at the truth, and its mean is known to be 0.
    """
    at = np.column_stack([theta, truth + _H, truth - _H])
    likelihood = counts.log_likelihood(at)
    surplus = (likelihood[:, -2] - likelihood[:, -1]) / (2 * _H)
    _kinds, of = np.unique(theta, axis=0, return_inverse=True)
    of = of.ravel()
    luck = (np.bincount(of, surplus) / np.bincount(of))[of]
    return np.asarray(likelihood[:, 1:-2] - likelihood[:, :1] - luck[:, None] * (theta[:, 1:] - theta[:, :1]))


def _above(test: LatencyTest, edges: tuple[float, ...], canary: Ints, stable: Ints, theta: Floats, truth: Floats) -> Floats:
    """Gains of "slower than the edge" by window: (windows, edges x alternatives)."""
    at = [test.reference.edges.index(e) for e in edges]
    windows, rows = len(canary), len(edges)
    if not rows:
        return np.zeros((windows, 0))
    n, m = (np.repeat(side.sum(axis=1), rows) for side in (canary, stable))
    a, b = ((side.sum(axis=1, keepdims=True) - side.cumsum(axis=1)[:, at]).ravel() for side in (canary, stable))
    return _gains(Counts(n, m, a + b, a), np.tile(theta, (windows, 1)), np.tile(truth, windows)).reshape(windows, -1)


def _ordinal(test: LatencyTest, flow: Flow, canary: Ints, stable: Ints, slowdown: float) -> Source:
    edges = test.reference.ordinal_edges()
    if len(edges) < 2:
        return _quiet(np.zeros((len(canary), 0)), flow.both)
    at = [test.reference.edges.index(e) for e in edges]
    ours, theirs = (np.column_stack([side.cumsum(axis=1)[:, at], side.sum(axis=1)]) for side in (canary, stable))
    new, other = np.diff(ours, axis=1), np.diff(theirs, axis=1)
    theta, truth = ordinal_odds(test.reference, edges, test.tolerated), test.reference.reverse_hazard_shift(edges, slowdown)
    rows = Counts(ours[:, 1:].ravel(), theirs[:, 1:].ravel(), (new + other).ravel(), new.ravel())
    windows = len(canary)
    gains = _gains(rows, np.tile(theta, (windows, 1)), np.tile(truth, windows)).reshape(windows, len(theta), -1).sum(axis=1)
    below = np.append(1.0 - test.reference.exceedance[at], 1.0)
    part = np.diff(below) / below[1:]
    information = float((below[1:] * part * (1 - part)).sum()) * _pooled(flow)
    return Source(gains, flow.both, np.full(gains.shape[1], information))


def _logit(rate: float) -> float:
    inside = min(max(rate, 1e-9), 1 - 1e-9)
    return math.log(inside / (1 - inside))


def _edge_information(test: LatencyTest, edges: tuple[float, ...], flow: Flow, alternatives: int) -> Floats:
    p = np.array([1.0 / (1.0 + math.exp(-test.reference.logit(e))) for e in edges])
    return np.repeat(p * (1 - p) * _pooled(flow), alternatives)


def _pooled(flow: Flow) -> float:
    """n m / (n + m), at least roughly also where windows are nearly empty."""
    total = flow.canary + flow.stable
    return flow.canary * flow.stable / total * -math.expm1(-total) if total else 0.0


def steps(until: float, points: int = 20) -> Floats:
    """Numbers of windows at which a path is looked at: every one at first, then ever fewer; the last is `until`."""
    return np.unique(np.concatenate((np.geomspace(1.0, max(1.0, until), points), [max(1.0, until)])).round())


def add_up(source: Source, at: Floats, noise: Noise, seed: int) -> Floats:
    """Paths of the log likelihood ratios: (PATHS, len(at), columns), after `at` windows of this source.

    Replica noise: so many windows tell about a shift only as much as fewer quiet ones, and the replica's own wandering comes on top.
    """
    rng = np.random.default_rng((_SEED, seed))
    paths = np.stack([_gained(rng, source, int(windows)) for windows in np.diff(at, prepend=0.0)], axis=1).cumsum(axis=1)
    if noise.v == 0 or not np.isfinite(source.information).all():
        return paths
    told = _information(source.information, noise, at)
    quiet = at[:, None] * source.information[None, :]
    left = np.divide(told, quiet, out=np.ones_like(told), where=quiet > 0)
    reach = source.gains.std(axis=0) * math.sqrt(source.informative) / np.sqrt(np.maximum(source.information, 1e-12))
    own = np.diff(np.maximum(told * (1 - left), 0.0), axis=0, prepend=0.0)
    wander = (rng.normal(size=(PATHS, len(at), 1)) * np.sqrt(np.maximum(own, 0.0))[None]).cumsum(axis=1)
    return np.asarray(paths * left[None] + wander * reach)


def _gained(rng: np.random.Generator, source: Source, windows: int) -> Floats:
    """What `windows` windows add: drawn one by one where they are few, else by their mean and covariance. (PATHS, columns)."""
    drawn, columns = source.gains.shape
    if windows * source.informative <= _FEW:
        counts = rng.binomial(windows, source.informative, size=PATHS)
        picked = source.gains[rng.integers(drawn, size=counts.sum())]
        ends = np.concatenate(([0], counts.cumsum()))
        return np.asarray(np.diff(np.vstack([np.zeros(columns), picked.cumsum(axis=0)])[ends], axis=0))
    mean, spread = source.moments
    return np.asarray(windows * mean + math.sqrt(windows) * rng.normal(size=(PATHS, columns)) @ spread.T)


def _information(each: Floats, noise: Noise, at: Floats) -> Floats:
    """What `at` windows with information `each` tell about a constant shift under AR(1) noise: (len(at), columns). A Kalman filter."""
    different, back = np.unique(each, return_inverse=True)
    variance = 1.0 / np.maximum(different, 1e-12)
    spread, lean = np.full(len(different), noise.v), np.zeros(len(different))
    total, found, wanted, done = np.zeros(len(different)), [], set(at.astype(int)), 0
    slope = 1.0 / (variance + noise.long_run_variance)
    for number in range(1, int(min(at[-1], 600)) + 1):
        whole = spread + variance
        total = total + (1 + lean) ** 2 / whole
        part = spread / whole
        lean = noise.phi * (lean - part * (1 + lean))
        spread = noise.phi**2 * spread * (1 - part) + noise.v * (1 - noise.phi**2)
        done = number
        if number in wanted:
            found.append(total)
    found += [total + (n - done) * slope for n in at if n > done]
    return np.array(found)[:, back]
