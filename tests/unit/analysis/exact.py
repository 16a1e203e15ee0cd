"""Worlds small enough to list every outcome with its probability: plain arithmetic, none of the judge's."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

Table = tuple[int, int, int]  # canary requests, stable requests, bad ones in all


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def expit(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def binomial(n: int, bad: int, rate: float) -> float:
    return math.comb(n, bad) * rate**bad * (1 - rate) ** (n - bad)


def deals(n: int, law: Sequence[float]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every way `n` independent requests can fall into buckets of the probabilities `law`."""
    for cuts in itertools.combinations(range(n + len(law) - 1), len(law) - 1):
        ends = (-1, *cuts, n + len(law) - 1)
        counts = tuple(b - a - 1 for a, b in itertools.pairwise(ends))
        ways = math.factorial(n) // math.prod(math.factorial(c) for c in counts)
        yield counts, ways * math.prod(p**c for p, c in zip(law, counts, strict=True))


def exceeding(law: Sequence[float]) -> list[float]:
    """The probability to lie above each edge."""
    return [sum(law[i + 1 :]) for i in range(len(law) - 1)]


def buckets(above: Sequence[float]) -> list[float]:
    """The inverse of `exceeding`; `above` falls."""
    bounds = [1.0, *above, 0.0]
    return [a - b for a, b in itertools.pairwise(bounds)]


def noncentral(table: Table, theta: float) -> dict[int, float]:
    """Fisher's noncentral hypergeometric law of the canary's bad requests, odds ratio exp(theta)."""
    n, m, k = table
    weights = {a: math.comb(n, a) * math.comb(m, k - a) * math.exp(theta * a) for a in range(max(0, k - m), min(n, k) + 1)}
    total = sum(weights.values())
    return {a: w / total for a, w in weights.items()}


def wandering(v: float, phi: float, step: float = 0.05, reach: float = 5.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A stationary Gaussian AR(1) on a grid finer and wider than the judge's: places, weights, transition matrix (from, to)."""
    half = math.ceil(reach * math.sqrt(v) / step)
    u = np.arange(-half, half + 1) * step
    start = np.exp(-(u**2) / (2 * v))
    move = np.exp(-((u[None, :] - phi * u[:, None]) ** 2) / (2 * v * (1 - phi**2)))
    return u, start / start.sum(), move / move.sum(axis=1, keepdims=True)
