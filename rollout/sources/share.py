"""Has a weight write reached the traffic? A sequential likelihood ratio of the new share against the old one. Pure.

Wald's test: with evidence of 1000 to 1 the chance of the wrong answer is at most 1 in 1000, whenever one stops. A failed request
says nothing of who would have served it, so it counts for neither side: both shares are given the best account of the failures
that each allows (a generalised ratio), and a broken side that hides behind 503s proves nothing.
"""

from __future__ import annotations

import math

ODDS = math.log(1000)
CERTAIN = 100.0
"""stands for an infinite log ratio: one side could not have given this answer"""


def log_ratio(hits: int, misses: int, failed: int, old: float, new: float) -> float:
    """Natural log of the likelihood of `new` over `old`, within ±CERTAIN. Shares are 0..1."""
    for_new, for_old = _best(new, hits, misses, failed), _best(old, hits, misses, failed)
    if for_new == for_old:
        return 0.0  # both impossible as well: neither explains it
    return max(-CERTAIN, min(CERTAIN, for_new - for_old))


def _best(share: float, hits: int, misses: int, failed: int) -> float:
    """Log likelihood under `share`, with the failure rates of the two sides that explain the counts best; -inf when impossible."""
    total = hits + misses + failed
    if total == 0:
        return 0.0
    if hits > share * total:
        hit, rest = share, misses + failed
        miss, fail = ((1 - share) * misses / rest, (1 - share) * failed / rest) if rest else (0.0, 0.0)
    elif misses > (1 - share) * total:
        miss, rest = 1 - share, hits + failed
        hit, fail = (share * hits / rest, share * failed / rest) if rest else (0.0, 0.0)
    else:
        hit, miss, fail = hits / total, misses / total, failed / total
    return _times(hits, hit) + _times(misses, miss) + _times(failed, fail)


def _times(count: int, probability: float) -> float:
    if count == 0:
        return 0.0
    return count * math.log(probability) if probability > 0 else -math.inf


class ShareTest:
    """Takes answers in the order they were *sent* (a slow side answers late) and stops at 1000 to 1 either way."""

    def __init__(self, old: float, new: float) -> None:
        if not (0 <= old <= 1 and 0 <= new <= 1):
            msg = f"expected shares between 0 and 1, got {old} and {new}"
            raise ValueError(msg)
        self._old, self._new = old, new
        self.hits = self.misses = self.failed = 0
        self.llr = 0.0
        self.moved: bool | None = None

    @property
    def open(self) -> bool:
        """Whether another request can still tell something."""
        return self.moved is None and self._old != self._new

    def add(self, hit: bool | None) -> None:
        """One answer: by the deployment (True), by another (False), or by nobody (None). After the decision it is only counted."""
        self.hits += hit is True
        self.misses += hit is False
        self.failed += hit is None
        if not self.open:
            return
        self.llr = log_ratio(self.hits, self.misses, self.failed, self._old, self._new)
        if abs(self.llr) >= ODDS:
            self.moved = self.llr > 0
