"""Evidence from failed requests: an odds ratio proves worse, a risk difference proves harmless.

Rates near zero carry no odds information, so a promotion needs the difference. Live requests and probe pairs are separate strata of a
window and are never pooled.
"""

import math

import numpy as np

from rollout.analysis.asks import Ask
from rollout.analysis.hypergeometric import Counts, Floats
from rollout.analysis.latency import FAIL_STEPS

Stratum = tuple[int, int, int, int]  # canary requests, stable requests, canary errors, stable errors
ALTERNATIVES = (0.0, 0.3, 0.6)  # where between equal (0) and unacceptable (1) the canary is bet to be
_PRIOR = (0.2, 100.0)  # errors and requests put under the pooled rate before anything is seen


def worse(strata: list[Stratum], tolerated_odds: float) -> Ask:
    """The likelihood (1, 1 + alternatives, 1) of the odds process: null first, all strata multiplied."""
    n, m, a, b = (np.array(column, dtype=np.int64) for column in zip(*strata, strict=True))
    theta = np.broadcast_to(math.log(tolerated_odds) + FAIL_STEPS, (len(strata), len(FAIL_STEPS)))
    return Ask(Counts(n, m, a + b, a), theta, np.arange(len(FAIL_STEPS))[:, None], multiplied=True)


def harmless_gain(stratum: Stratum, seen: tuple[int, int], margin: float) -> Floats:
    """log e of one stratum against "the canary's error rate is at least stable's + `margin`", for each of ALTERNATIVES.

    `seen`: errors and requests of both arms in *earlier* windows; they choose the bet, so it stays fair. Needs both arms: else 0.
    """
    n, m, a, b = stratum
    errors, requests = seen
    base = (errors + _PRIOR[0]) / (requests + _PRIOR[1])
    if not n or not m or base + margin >= 1.0:
        return np.zeros(len(ALTERNATIVES))
    return np.array([_log_bet(n, m, a, b, base, base + part * margin, margin) for part in ALTERNATIVES])


def _log_bet(n: int, m: int, a: int, b: int, stable: float, canary: float, margin: float) -> float:
    x = nearest_null(n, m, stable, canary, margin)
    y = x + margin
    return (
        b * math.log(stable / x)
        + (m - b) * math.log((1 - stable) / (1 - x))
        + a * math.log(canary / y)
        + (n - a) * math.log((1 - canary) / (1 - y))
    )


def nearest_null(n: int, m: int, stable: float, canary: float, margin: float) -> float:
    """The stable rate x of the null point (x, x + margin) nearest to the bet: argmin of m KL(stable||x) + n KL(canary||x + margin)."""
    low, high = 0.0, min(stable, 1.0 - margin)
    for _ in range(60):
        x = (low + high) / 2
        y = x + margin
        slope = m * (x - stable) / (x * (1 - x)) + n * (y - canary) / (y * (1 - y))
        low, high = (x, high) if slope < 0 else (low, x)
    return (low + high) / 2
