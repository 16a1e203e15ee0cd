"""The shape of stable's latency before the rollout, and what a slow-down does to it.

Margins are given in time ("+5 %") but tested on odds ratios at bucket edges. This room translates between the two by interpolating
logit(exceedance) linearly in log latency on the reference histogram. The guarantee is on the odds ratio; "+5 %" is its translation.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from rollout.analysis.hypergeometric import Floats
from rollout.analysis.samples import Histogram

THRESHOLD_RANGE = (0.003, 0.90)  # exceedances at which an edge carries evidence of a regression
BODY_RANGE = (0.20, 0.60)
TAIL_RANGE = (0.02, 0.20)
_NEAR_BODY = (0.05, 0.90)  # coarse buckets: the edge nearest to BODY_CENTRE in here stands in for the body
_BODY_CENTRE = 0.40
_THINNEST = 0.003  # ordinal buckets hold at least this part of the reference
_LEAST_SHIFT = 0.05  # a margin that moves an edge by less than this in log odds cannot be proved there
_NORMAL = NormalDist()


class Reference:
    """A reference histogram read as a smooth exceedance curve. Raises ValueError when it holds no request or no finite edge."""

    def __init__(self, histogram: Histogram) -> None:
        histogram = histogram.rebin(e for e in histogram.edges if e > 0)  # a bucket at zero has no logarithm
        if not histogram.total or not histogram.edges:
            raise ValueError("the reference histogram is empty: collect stable's latencies before the rollout")
        below = np.cumsum(histogram.counts)[:-1]
        total = histogram.total
        self.edges = histogram.edges
        self.exceedance = (total - below + 0.5) / (total + 1.0)
        self._x = np.log(np.array(histogram.edges))
        self._y = np.log(self.exceedance / (1.0 - self.exceedance))
        self._z = np.array([-_NORMAL.inv_cdf(float(s)) for s in self.exceedance])

    def logit(self, seconds: float) -> float:
        """g(x): log odds that a request takes longer than `seconds`, linear in log time, the end slopes going on outside."""
        return self._between(seconds, self._y)

    def _between(self, seconds: float, ys: Floats) -> float:
        x, xs = math.log(seconds), self._x
        if len(xs) == 1:
            return float(ys[0] - abs(ys[0]) * (x - xs[0]))
        i = int(np.clip(np.searchsorted(xs, x) - 1, 0, len(xs) - 2))
        return float(ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i]))

    def shift(self, edge: float, slowdown: float) -> float:
        """log psi: how much a slow-down by 1 + `slowdown` raises the log odds of exceeding `edge` seconds."""
        return self.logit(edge / (1.0 + slowdown)) - self.logit(edge)

    def shift_to_prove(self, edge: float, slowdown: float) -> float:
        """The shift a promotion has to disprove: the smaller of two readings of the curve inside a bucket, logit and normal-quantile.

        Inside a wide bucket the logit line alone overstates what a slow-down does to a lognormal by up to 40 %, and a canary that slow
        would pass too often.
        """
        moved = _NORMAL.cdf(-self._between(edge / (1.0 + slowdown), self._z))
        moved = min(max(moved, 1e-12), 1.0 - 1e-12)
        return min(self.shift(edge, slowdown), math.log(moved / (1.0 - moved)) - self.logit(edge))

    def slowdown(self, edge: float, log_odds: float) -> float:
        """The slow-down whose shift at `edge` is `log_odds` (bisection, kept inside -90 %..+2000 %)."""
        low, high = math.log(0.1), math.log(21.0)
        for _ in range(50):
            middle = (low + high) / 2
            if self.shift(edge, math.expm1(middle)) < log_odds:
                low = middle
            else:
                high = middle
        return math.expm1((low + high) / 2)

    def edges_within(self, low: float, high: float) -> tuple[float, ...]:
        """Edges whose exceedance lies in [low, high]."""
        return tuple(e for e, s in zip(self.edges, self.exceedance, strict=True) if low <= s <= high)

    def body_edges(self, unacceptable: float) -> tuple[float, ...]:
        """Edges on which "the body is not slower than `unacceptable`" can be proved; empty when the buckets are too coarse for it."""
        movable = [e for e in self.edges_within(*_NEAR_BODY) if self.shift_to_prove(e, unacceptable) >= _LEAST_SHIFT]
        body = tuple(e for e in self.edges_within(*BODY_RANGE) if e in movable)
        if body or not movable:
            return body
        centre = math.log(_BODY_CENTRE / (1.0 - _BODY_CENTRE))
        return (min(movable, key=lambda e: abs(self.logit(e) - centre)),)

    def ordinal_edges(self) -> tuple[float, ...]:
        """Edges of the ordinal part: the reference's own, thin buckets joined, since a rate of nothing has no slope."""
        chosen: list[float] = []
        above = 1.0
        for edge, exceedance in zip(self.edges, self.exceedance, strict=True):
            if above - exceedance >= _THINNEST and exceedance >= _THINNEST:
                chosen.append(edge)
                above = float(exceedance)
        return tuple(chosen)

    def reverse_hazard_shift(self, edges: tuple[float, ...], slowdown: float) -> Floats:
        """rho_b for buckets b = 2..B over `edges`: what the slow-down adds to logit P(bucket b | bucket <= b)."""
        return _reverse_hazard(self, edges, slowdown) - _reverse_hazard(self, edges, 0.0)


def _reverse_hazard(reference: Reference, edges: tuple[float, ...], slowdown: float) -> Floats:
    logits = np.array([reference.logit(e / (1.0 + slowdown)) for e in edges])
    below = np.append(1.0 / (1.0 + np.exp(logits)), 1.0)
    inside = np.maximum(np.diff(below), 1e-12)
    return np.asarray(np.log(inside) - np.log(below[:-1]))


@lru_cache(maxsize=1024)
def reference_of(histogram: Histogram) -> Reference:
    """The reference of a histogram, built once: every window asks again."""
    return Reference(histogram)
