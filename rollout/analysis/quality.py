"""Evidence from paired answers: the same prompt on both arms, each answer scored 0..1. Bets on the mean loss; no noise model.

Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (2024). Where scores are 0 or 1 and nothing is
tolerated, only the pairs that differ speak, and one of them is as likely the canary's fault as stable's.
"""

import math
from collections.abc import Iterable

import numpy as np

from rollout.analysis.betting import PROBE_ODDS, bernoulli_gain
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.noise import log_mean
from rollout.analysis.samples import QualityPair

FRACTIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7])  # of the largest bet that cannot lose everything


def quality_lost(pairs: Iterable[QualityPair], tolerated: float, *, binary: bool) -> Floats:
    """log e by bet, against "on average the canary's answers score at most `tolerated` below stable's"."""
    losses = _losses(pairs)
    if binary and tolerated == 0:
        return bernoulli_gain(int((losses > 0).sum()), int((losses < 0).sum()))
    return _bets(losses, tolerated)


def bets_against(tolerated: float, *, binary: bool) -> int:
    """How many bets `quality_lost` makes."""
    return len(PROBE_ODDS) if binary and tolerated == 0 else len(FRACTIONS)


def quality_kept(pairs: Iterable[QualityPair], unacceptable: float) -> Floats:
    """log e by bet, against "on average the canary's answers score at least `unacceptable` below stable's"."""
    return _bets(-_losses(pairs), -unacceptable)


def pairs_needed(unacceptable: float, beta: float) -> int:
    """How many pairs exclude that loss at 1 to `beta` when no score differs; every one that differs asks for more."""
    one, count = quality_kept([QualityPair(1.0, 1.0)], unacceptable), 1
    while log_mean(one * count) < -math.log(beta):
        count += 1
    return count


def _bets(gains: Floats, null: float) -> Floats:
    stakes = FRACTIONS / (1.0 + null)
    return np.asarray(np.log1p(stakes[:, None] * (gains - null)).sum(axis=1))


def _losses(pairs: Iterable[QualityPair]) -> Floats:
    """stable - canary of the pairs in which both gave a whole answer; the others are errors, not qualities."""
    return np.array([p.stable - p.canary for p in pairs if p.stable is not None and p.canary is not None], dtype=np.float64)
