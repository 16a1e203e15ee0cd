"""Evidence from one latency histogram (TTFT, e2e): thresholds, ordinal part, proof of a harmless body and tail, and an interval.

A `LatencyTest` is fixed by the config and knows edges, nulls and alternatives; its evidence lives in banks that the caller keeps.
Requests slower than an edge are the "bad" ones of the count comparison.
"""

from bisect import bisect_right
from functools import lru_cache

import numpy as np

from rollout.analysis.asks import Ask
from rollout.analysis.hypergeometric import Counts, Floats, Ints
from rollout.analysis.noise import Bank, Noise, log_mean
from rollout.analysis.reference import TAIL_RANGE, THRESHOLD_RANGE, Reference
from rollout.analysis.samples import Histogram, common_edges

FAIL_STEPS = np.array([0.0, 0.2, 0.4, 0.8, 1.2, 1.8, 2.6])  # log odds above the tolerated margin, the null first
PASS_STEPS = np.array([0.0, -0.2, -0.4, -0.7, -1.1])  # below the unacceptable one
SLOWDOWNS = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0)  # alternatives of the ordinal part
INTERVAL_GRID = np.concatenate(([0.0], np.arange(-14, 21) * 0.2))  # log odds ratios followed for the interval; the first is the base
_HEADLINE_LOGITS = (-0.4, -2.9)  # exceedances of 40 % and 5 %
_INTERVAL_LEADS = (1, 2, 4, 6)  # alternatives 0.2, 0.4, 0.8, 1.2 away, in grid steps


class LatencyTest:
    """The tests of one latency metric. `tail_odds` None: no claim about the tail is made."""

    def __init__(self, metric: str, reference: Reference, tolerated: float, unacceptable: float, tail_odds: float | None, noise: Noise):
        self.metric, self.reference, self.tolerated, self.noise = metric, reference, tolerated, noise
        self.edges = reference.edges_within(*THRESHOLD_RANGE)
        self._fail = _column([reference.shift(e, tolerated) for e in self.edges])
        self.body = reference.body_edges(unacceptable)
        self.tail = tuple(e for e in reference.edges_within(*TAIL_RANGE) if e not in self.body) if tail_odds else ()
        margins = [reference.shift_to_prove(e, unacceptable) for e in self.body] + [float(np.log(tail_odds or 1.0))] * len(self.tail)
        self.pass_margins = tuple(margins)
        self._pass = _column(margins)
        self.headlines = self._headlines()
        self.fits_ordinal = len(reference.ordinal_edges()) > 1

    def fresh_fail(self) -> tuple[Bank, Bank]:
        """Threshold and ordinal banks that have seen nothing."""
        return Bank.fresh(len(self.edges), len(FAIL_STEPS) - 1, self.noise), Bank.fresh(1, len(SLOWDOWNS), self.noise)

    def fresh_pass(self) -> Bank:
        """The bank of the promotion side, one row for each body edge, then each tail edge."""
        return Bank.fresh(len(self.body) + len(self.tail), len(PASS_STEPS) - 1, self.noise)

    def fresh_interval(self) -> Bank:
        """A bank that follows the whole grid of odds ratios at each headline edge."""
        return Bank.fresh(len(self.headlines), len(INTERVAL_GRID) - 1, self.noise)

    def thresholds(self, canary: Histogram, stable: Histogram) -> Ask:
        """The likelihood of the FAIL side: (edges, 1 + alternatives, grid of u)."""
        return self._stepped(_above(self.edges, canary, stable), self._fail, FAIL_STEPS)

    def harmless(self, canary: Histogram, stable: Histogram) -> Ask:
        """The likelihood of the PASS side: (body + tail edges, 1 + alternatives, grid of u)."""
        return self._stepped(_above(self.body + self.tail, canary, stable), self._pass, PASS_STEPS)

    def effect(self, canary: Histogram, stable: Histogram) -> Ask:
        """The likelihood along `INTERVAL_GRID` at the headline edges."""
        return self._stepped(_above(self.headlines, canary, stable), np.zeros((len(self.headlines), 1)), INTERVAL_GRID)

    def ordinal(self, canary: Histogram, stable: Histogram) -> Ask | None:
        """The likelihood of the whole bucket profile (1, 1 + alternatives, grid), or None when fewer than two edges are shared.

        Given how many requests are in bucket b or below, those in bucket b are noncentral hypergeometric; the factors telescope.
        """
        shared = set(common_edges(canary, stable))
        edges = tuple(e for e in self.reference.ordinal_edges() if e in shared)
        if len(edges) < 2:
            return None
        ours, theirs = (np.cumsum(h.rebin(edges).counts) for h in (canary, stable))
        counts = Counts(ours[1:], theirs[1:], np.diff(ours) + np.diff(theirs), np.diff(ours))
        odds, u = ordinal_odds(self.reference, edges, self.tolerated), self.noise.grid
        spread = np.arange(odds.shape[1] * len(u)).reshape(odds.shape[1], len(u))
        return Ask(counts, (odds[:, :, None] + u).reshape(len(odds), -1), spread, multiplied=True)

    def log_fail(self, thresholds: Bank, ordinal: Bank) -> float:
        """log E of "slower than tolerated": the average of both parts (0 while a part has no edges)."""
        parts = [log_mean(thresholds.log_mixture()) if self.edges else 0.0, float(ordinal.log_mixture()[0])]
        return log_mean(np.array(parts if self.fits_ordinal else parts[:1]))

    def log_pass(self, bank: Bank) -> dict[str, float]:
        """log E of each claim of the promotion side; every edge must be proved, so a claim is as strong as its weakest edge."""
        logs = bank.log_mixture()
        claims = {"body": logs[: len(self.body)], "tail": logs[len(self.body) :]}
        return {f"{self.metric} {name}": float(rows.min()) for name, rows in claims.items() if len(rows)}

    def _headlines(self) -> tuple[float, ...]:
        """The edges whose odds ratio is reported: one in the body, one in the tail (where both exist)."""
        near = [min(self.edges, key=lambda e: abs(self.reference.logit(e) - centre)) for centre in _HEADLINE_LOGITS if self.edges]
        return tuple(dict.fromkeys(near))

    def _stepped(self, counts: Counts, base: Floats, steps: Floats) -> Ask:
        """An ask at base + step + u. `base`: (rows, 1)."""
        points, spread = _lattice(tuple(steps), self.noise)
        return Ask(counts, base + points, spread)


def log_odds_interval(low: Bank, high: Bank, row: int, confidence: float) -> tuple[float | None, float | None]:
    """Anytime interval for the log odds ratio at headline edge `row`: all nulls that neither one-sided mixture has rejected, each at
    (1 - confidence) / 2. `low` has seen the windows in which the canary may be found slow, `high` those in which it may be found
    harmless. None = no bound on that side yet. Between grid points the evidence is taken as linear, as it is for a normal likelihood.
    """
    need = float(np.log(2.0 / (1.0 - confidence)))
    grid = INTERVAL_GRID[1:]
    longest = max(_INTERVAL_LEADS)
    rising = _one_sided(low.log[row])
    falling = _one_sided(high.log[row][::-1])[::-1]
    lower = _crossing(grid[: len(grid) - longest][::-1], rising[::-1], need)
    upper = _crossing(grid[longest:], falling, need)
    return lower, upper


def _one_sided(log: Floats) -> Floats:
    ahead = len(log) - max(_INTERVAL_LEADS)
    ratios = np.stack([log[lead : lead + ahead] - log[:ahead] for lead in _INTERVAL_LEADS])
    top = ratios.max(axis=0)
    return np.asarray(top + np.log(np.exp(ratios - top).mean(axis=0)))


def _crossing(nulls: Floats, evidence: Floats, need: float) -> float | None:
    """Walking along `nulls` (evidence rising), the place where `need` is first reached."""
    reached = np.nonzero(evidence >= need)[0]
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(nulls[0])
    part = (need - evidence[i - 1]) / (evidence[i] - evidence[i - 1])
    return float(nulls[i - 1] + part * (nulls[i] - nulls[i - 1]))


@lru_cache(maxsize=256)
def _lattice(steps: tuple[float, ...], noise: Noise) -> tuple[Floats, Ints]:
    """The distinct values of step + u, and where each (step, u) stands among them: steps and grid lie on the same tenths."""
    tenths = np.rint((np.array(steps)[:, None] + noise.grid) * 10).astype(np.int64)
    points, spread = np.unique(tenths, return_inverse=True)
    return points / 10.0, spread.reshape(tenths.shape)


def _column(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64).reshape(-1, 1)


def _above(edges: tuple[float, ...], canary: Histogram, stable: Histogram) -> Counts:
    """2x2 tables "slower than the edge"; an edge that one side does not have becomes a row with nothing to compare."""
    ours, theirs = _exceeding(canary, edges), _exceeding(stable, edges)
    both = (ours >= 0) & (theirs >= 0)
    n, m = np.where(both, canary.total, 0), np.where(both, stable.total, 0)
    a, b = np.where(both, ours, 0), np.where(both, theirs, 0)
    return Counts(n, m, a + b, a)


def _exceeding(histogram: Histogram, edges: tuple[float, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    below = np.cumsum(histogram.counts)
    found = [bisect_right(histogram.edges, e) - 1 for e in edges]
    known = [i >= 0 and histogram.edges[i] == e for i, e in zip(found, edges, strict=True)]
    return np.array([int(below[-1] - below[i]) if ok else -1 for i, ok in zip(found, known, strict=True)], dtype=np.int64)


@lru_cache(maxsize=512)
def ordinal_odds(reference: Reference, edges: tuple[float, ...], tolerated: float) -> Floats:
    """(buckets, 1 + alternatives): log reverse-hazard odds of the tolerated slow-down, then of each alternative but never below it."""
    null = reference.reverse_hazard_shift(edges, tolerated)
    return np.stack([null] + [np.maximum(reference.reverse_hazard_shift(edges, d), null) for d in SLOWDOWNS], axis=1)
