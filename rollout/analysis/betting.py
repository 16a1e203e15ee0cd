"""Evidence from coin-like events: paired probes and the served share. Plain Bernoulli and Binomial bets, no noise model."""

import math
from collections.abc import Iterable

import numpy as np

from rollout.analysis.hypergeometric import Floats, log_factorials
from rollout.analysis.samples import ProbePair

PROBE_ODDS = (0.55, 0.6, 0.7, 0.8, 0.9)  # bets on how often the canary is the slower (or the fast enough) one
SHARE_SHIFTS = (-3.2, -1.6, -0.8, -0.4, -0.2, -0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # bets on the served share, log odds
_PROBE_GAINS = np.array([[math.log(2 * (1 - q)), math.log(2 * q)] for q in PROBE_ODDS])


def probes_slower(pairs: Iterable[ProbePair], tolerated: float) -> Floats:
    """log e by bet, against "at most half the pairs have the canary slower than (1 + tolerated) x stable". Ties speak for the canary."""
    return _bernoulli(canary > (1 + tolerated) * stable for stable, canary in _timed(pairs))


def probes_harmless(pairs: Iterable[ProbePair], unacceptable: float) -> Floats:
    """log e by bet, against "at most half the pairs have the canary faster than (1 + unacceptable) x stable". Ties speak against it."""
    return _bernoulli(canary < (1 + unacceptable) * stable for stable, canary in _timed(pairs))


def probes_over(pairs: Iterable[ProbePair], slo: float, tolerated: float) -> Floats:
    """log e by bet, against "of the pairs in which one side alone took longer than `slo` seconds, at most half blame the canary". The
    canary's objective is (1 + tolerated) x slo, or a slow-down that is tolerated would be disproved here.
    """
    late = [(stable > slo, canary > (1 + tolerated) * slo) for stable, canary in _timed(pairs)]
    return bernoulli_gain(sum(c and not s for s, c in late), sum(s and not c for s, c in late))


def timed_pairs(pairs: Iterable[ProbePair]) -> int:
    """Pairs in which both sides gave a first token; the others are errors, not latencies."""
    return len(_timed(pairs))


def share_gain(canary: int, total: int, share: float) -> Floats:
    """log e by bet, against "each request goes to the canary with probability `share`". Nothing at a share of 0 or 1."""
    if not 0 < share < 1 or not total:
        return np.zeros(len(SHARE_SHIFTS))
    odds = share / (1 - share) * np.exp(np.array(SHARE_SHIFTS))
    bet = odds / (1 + odds)
    return np.asarray(canary * np.log(bet / share) + (total - canary) * np.log((1 - bet) / (1 - share)))


def share_inside(canary: int, total: int, share: float, level: float = 0.999) -> bool:
    """Whether the count lies inside its central interval: neither Binomial(total, share) tail up to it is at or below (1 - level) / 2."""
    if not 0 < share < 1:
        return canary == round(total * share)
    k = np.arange(total + 1)
    table = log_factorials(total)
    logs = table[total] - table[k] - table[total - k] + k * math.log(share) + (total - k) * math.log1p(-share)
    law = np.exp(logs)
    edge = (1 - level) / 2
    return float(law[: canary + 1].sum()) > edge and float(law[canary:].sum()) > edge


def _timed(pairs: Iterable[ProbePair]) -> list[tuple[float, float]]:
    whole = [p for p in pairs if p.stable_ok and p.canary_ok]
    return [(p.stable_ttft, p.canary_ttft) for p in whole if p.stable_ttft is not None and p.canary_ttft is not None]


def _bernoulli(outcomes: Iterable[bool]) -> Floats:
    seen = list(outcomes)
    return bernoulli_gain(sum(seen), len(seen) - sum(seen))


def bernoulli_gain(yes: int, no: int) -> Floats:
    """log e by bet of `PROBE_ODDS`, against "yes is no likelier than no"."""
    return np.asarray(_PROBE_GAINS[:, 1] * yes + _PROBE_GAINS[:, 0] * no)
