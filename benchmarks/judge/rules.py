"""The rollback rules of other controllers, written anew and small: traffic in, the window of the rollback out. Own code, not theirs.

Argo-like: every 30 s the p95 of the last minute (or five, not before five) may be 1.2 times stable's and the success rate of the last five
minutes (fewer at first) must be 95 %; rolled back at the fourth failed check (failureLimit 3), or at four failed checks in a row.

Flagger-like: every minute, p99 at most 3 s and success at least 99 % of that minute; rolled back at the fifth failed check.

Kayenta-like: per-minute points of p50, p99 and error rate, canary against stable, the last 20 minutes (fewer at first); judged at each
minute from the fifth on. A metric fails when the 98 % Mann-Whitney interval of the shift (normal approximation, two-sided) lies above 0.25
times the Hodges-Lehmann estimate, "higher is worse" only. Score: the part of the three metrics that did not fail; below 75, so with one
failed metric, it rolls back. Of the definitions tried (mean, p90 or p95 in place of p99; all minutes since the start; a continuity
correction; the p value with an effect size) this one comes nearest to the published row of +20 % and to its false rollbacks; it finds
rare errors more often than published, and tails less often.

Quantiles are read from the buckets by linear interpolation, as the monitoring systems do it. "Calibrated": the same rule with the latency
threshold tuned on independent traffic so that 1 % of healthy rollouts are rolled back; its success rule acts when half of all fail.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.judge.worlds import EDGES, Floats, Ints, Traffic

Bools = NDArray[np.bool_]
NEVER = -1
_BOUNDS = np.array(EDGES)
_CHECKS = 4
_Z98 = 2.3263  # two-sided 98 %
_TOLERANCE = 0.25
_FIRST_MINUTE, _LAST_MINUTES = 5, 20


@dataclass(frozen=True)
class Rule:
    """`rolls_back(traffic, threshold)`: the window (0 = first) of each rollout's rollback, or NEVER. `loose`: nobody fails there."""

    name: str
    judge: Callable[[Traffic, float], Ints]
    threshold: float
    loose: float = 0.0

    def rolls_back(self, traffic: Traffic) -> Ints:
        """(R,) windows."""
        return self.judge(traffic, self.threshold)

    def calibrated(self, healthy: Traffic, level: float = 0.01) -> "Rule":
        """The lowest threshold (bisection) at which at most `level` of these rollouts are rolled back."""
        low, high = self.threshold, self.loose
        for _ in range(14):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if float((self.judge(healthy, middle) != NEVER).mean()) > level else (low, middle)
        return replace(self, name=f"{self.name}, calibrated", threshold=high)


def rules() -> dict[str, Rule]:
    """The five rules with their makers' thresholds, by the names of the published table."""
    found = [
        Rule("Argo-like 1 min", lambda t, x: _argo(t, x, minutes=1, in_a_row=False, success=0.95), 1.2),
        Rule("Argo-like 5 min", lambda t, x: _argo(t, x, minutes=5, in_a_row=False, success=0.95), 1.2),
        Rule("Argo-like 4 in a row", lambda t, x: _argo(t, x, minutes=1, in_a_row=True, success=0.95), 1.2),
        Rule("Flagger-like", lambda t, x: _flagger(t, x, success=0.99), 3.0),
        Rule("Kayenta-like", lambda t, _: _kayenta(t), 0.0),
    ]
    return {rule.name: rule for rule in found}


def tunable() -> list[Rule]:
    """The rules with a latency threshold, their success rule loose, to be calibrated."""
    return [
        Rule("Argo-like 1 min", lambda t, x: _argo(t, x, minutes=1, in_a_row=False, success=0.5), 1.2, 30.0),
        Rule("Argo-like 5 min", lambda t, x: _argo(t, x, minutes=5, in_a_row=False, success=0.5), 1.2, 30.0),
        Rule("Argo-like 4 in a row", lambda t, x: _argo(t, x, minutes=1, in_a_row=True, success=0.5), 1.2, 30.0),
        Rule("Flagger-like", lambda t, x: _flagger(t, x, success=0.5), 3.0, 300.0),
    ]


def _argo(traffic: Traffic, ratio: float, *, minutes: int, in_a_row: bool, success: float) -> Ints:
    ours, theirs = (quantile(_last(h, 2 * minutes), 0.95) for h in (traffic.canary_ttft, traffic.stable_ttft))
    slow = ours > ratio * theirs
    slow[:, : 2 * minutes - 1] = False
    requests = _last(traffic.canary_ttft.sum(axis=2), 10)
    failing = _last(traffic.canary_errors, 10) > (1 - success) * requests
    failing[:, 0] = False
    bad = slow | failing
    return _reached(_runs(bad) if in_a_row else bad.cumsum(axis=1), _CHECKS)


def _flagger(traffic: Traffic, limit: float, *, success: float) -> Ints:
    ours, errors = _by_minute(traffic.canary_ttft), _by_minute(traffic.canary_errors)
    bad = (quantile(ours, 0.99) > limit) | (errors > (1 - success) * ours.sum(axis=2))
    return _windows(_reached(bad.cumsum(axis=1), 5))


def _kayenta(traffic: Traffic) -> Ints:
    ours = _points(traffic.canary_ttft, traffic.canary_errors)
    theirs = _points(traffic.stable_ttft, traffic.stable_errors)
    found = np.full(traffic.rollouts, NEVER)
    for minute in range(_FIRST_MINUTE, ours[0].shape[1] + 1):
        left = np.nonzero(found == NEVER)[0]
        if not len(left):
            break
        since = max(0, minute - _LAST_MINUTES)
        failed = np.zeros(len(left), dtype=bool)
        for canary, stable in zip(ours, theirs, strict=True):
            failed |= _higher(canary[left, since:minute], stable[left, since:minute])
        found[left[failed]] = minute - 1
    return _windows(found)


def _points(ttft: Ints, errors: Ints) -> list[Floats]:
    by_minute = _by_minute(ttft)
    return [quantile(by_minute, 0.5), quantile(by_minute, 0.99), _by_minute(errors) / np.maximum(by_minute.sum(axis=2), 1)]


def _higher(canary: Floats, stable: Floats) -> Bools:
    """Whether the lower end of the Mann-Whitney interval of the shift is above the tolerance, for each row of points."""
    points = canary.shape[1]
    pairs = points * points
    rank = max(0, int(pairs / 2 - _Z98 * math.sqrt(pairs * (2 * points + 1) / 12)))
    shifts = (canary[:, :, None] - stable[:, None, :]).reshape(len(canary), -1)
    shifts = np.partition(shifts, sorted({rank, pairs // 2}), axis=1)
    low, estimate = shifts[:, rank], shifts[:, pairs // 2]
    return np.asarray((low > _TOLERANCE * np.abs(estimate)) & (low > 0))


def quantile(counts: Ints, q: float) -> Floats:
    """The q-quantile of histograms (..., buckets), linear inside a bucket; nan without requests, the last bound in the overflow bucket."""
    below = counts.cumsum(axis=-1)
    rank = q * below[..., -1]
    at = np.minimum((below >= rank[..., None]).argmax(axis=-1), len(_BOUNDS) - 1)
    inside = np.take_along_axis(counts, at[..., None], axis=-1)[..., 0]
    before = np.take_along_axis(below, at[..., None], axis=-1)[..., 0] - inside
    lower = np.where(at > 0, _BOUNDS[np.maximum(at - 1, 0)], 0.0)
    value = lower + (_BOUNDS[at] - lower) * np.clip((rank - before) / np.maximum(inside, 1), 0.0, 1.0)
    return np.where(below[..., -1] > 0, value, np.nan)


def _last(counts: Ints, windows: int) -> Ints:
    """Sums over the last `windows` windows, over fewer at first."""
    total = counts.cumsum(axis=1)
    found = total.copy()
    found[:, windows:] -= total[:, :-windows]
    return np.asarray(found)


def _by_minute(counts: Ints) -> Ints:
    return np.asarray(counts[:, 0::2] + counts[:, 1::2])


def _runs(bad: Bools) -> Ints:
    """How many failed checks in a row end at each one."""
    run = np.zeros(bad.shape, dtype=np.int64)
    for t in range(bad.shape[1]):
        run[:, t] = (run[:, t - 1] + 1) * bad[:, t]
    return run


def _reached(counts: Ints, limit: int) -> Ints:
    over = counts >= limit
    return np.where(over.any(axis=1), over.argmax(axis=1), NEVER)


def _windows(minutes: Ints) -> Ints:
    """From minutes to the window that ends them."""
    return np.where(minutes == NEVER, NEVER, 2 * minutes + 1)
