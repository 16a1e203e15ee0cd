"""What a count must lie within."""

from __future__ import annotations

from scipy.stats import binom


def interval(n: int, share: float, confidence: float = 0.999) -> tuple[int, int]:
    """The central interval of a binomial count: a true share falls outside once in a thousand times."""
    low, high = binom.interval(confidence, n, share)
    return int(low), int(high)


def inside(hits: int, n: int, share: float) -> bool:
    """Whether `hits` of `n` agree with `share`; says so on the test's output."""
    low, high = interval(n, share)
    print(f"share {share:.2%}: {hits} of {n} = {hits / n:.2%}, 99.9 % interval {low}..{high}")
    return low <= hits <= high
