"""Fisher's noncentral hypergeometric law, in logs: the one kernel under every count comparison.

n canary and m stable requests, k bad in all, A of them on the canary. With odds ratio psi = exp(theta)

    P(A | n, m, k; psi) = C(n,A) C(m,k-A) psi^A / Z(psi)

the unknown base rate has cancelled. Only numpy here; no idea of metrics, margins or verdicts.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WIDE = 256  # supports longer than this are summed around the mode only
_REACH = 8.6  # standard deviations kept on each side of the mode: the rest is below exp(-36) of the sum


@lru_cache(maxsize=8)
def _factorials(size: int) -> Floats:
    return np.array([math.lgamma(i + 1.0) for i in range(size)])


def log_factorials(upto: int) -> Floats:
    """log(i!) for i = 0..upto at least; table sizes are powers of two, so that few are ever built."""
    return _factorials(max(1024, 1 << (upto + 1).bit_length()))


class Counts:
    """Rows of (n, m, k, A), each one 2x2 table. Arrays of shape (rows,)."""

    def __init__(self, n: Ints, m: Ints, k: Ints, bad: Ints) -> None:
        self.n, self.m, self.k, self.bad = n, m, k, bad
        self.low = np.maximum(0, k - m)
        self.width = np.minimum(n, k) - self.low + 1

    @classmethod
    def joined(cls, parts: "Sequence[Counts]") -> "Counts":
        """All rows of all parts, in order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("n", "m", "k", "bad")))

    def picked(self, rows: Ints) -> "Counts":
        """The rows at these places."""
        return Counts(self.n[rows], self.m[rows], self.k[rows], self.bad[rows])

    def log_likelihood(self, theta: Floats) -> Floats:
        """log P(A | n, m, k; exp(theta)) up to a constant of each row. theta: (rows, cells) -> (rows, cells).

        Rows with nothing to compare (n = 0, m = 0, k = 0 or k = n + m) give 0 for every theta.
        """
        steps = (self.bad - self.low)[:, None]
        return np.asarray(steps * theta - self._log_z(theta))

    def _log_weights(self) -> Floats:
        """log C(n,a) C(m,k-a) for a = low.., shape (rows, widest), -inf past each row's support; the row's maximum is 0."""
        offsets = np.arange(int(self.width.max()))
        inside = offsets < self.width[:, None]
        a = self.low[:, None] + np.where(inside, offsets, 0)
        table = log_factorials(int((self.n + self.m).max()))
        n, m, k = self.n[:, None], self.m[:, None], self.k[:, None]
        logs = -(table[a] + table[n - a] + table[k - a] + table[m - k + a])
        logs = np.where(inside, logs, -np.inf)
        return np.asarray(logs - logs.max(axis=1, keepdims=True))

    def _log_z(self, theta: Floats) -> Floats:
        weights = self._log_weights()
        widest = weights.shape[1]
        near = widest > _WIDE
        terms = self._terms_near_mode(weights, theta) if near else weights[:, None, :] + theta[:, :, None] * np.arange(widest)
        top = terms.max(axis=2)
        np.exp(terms - top[:, :, None], out=terms)
        return np.asarray(top + np.log(terms.sum(axis=2)))

    def _terms_near_mode(self, weights: Floats, theta: Floats) -> Floats:
        """The summands that matter when the support is long: a stretch of equal length around each cell's mean (Cornfield's root)."""
        psi = np.exp(theta)
        n, m, k = self.n[:, None], self.m[:, None], self.k[:, None]
        s = (n + k) * psi + m - k
        roots = s + np.sqrt(np.maximum(s * s - 4.0 * (psi - 1.0) * psi * n * k, 0.0))
        mean = np.divide(2.0 * psi * n * k, roots, out=np.zeros_like(roots), where=roots > 0)  # a row in which nothing was seen: 0/0
        tiny = 1e-9
        inverse = 1 / (mean + tiny) + 1 / (n - mean + tiny) + 1 / (k - mean + tiny) + 1 / (m - k + mean + tiny)
        reach = int(_REACH * math.sqrt(float((1.0 / inverse).max()))) + 12
        length = min(2 * reach + 1, weights.shape[1])
        start = np.clip(mean.astype(np.int64) - self.low[:, None] - reach, 0, np.maximum(self.width[:, None] - length, 0))
        at = start[:, :, None] + np.arange(length)
        rows = np.arange(len(weights))[:, None, None]
        return np.asarray(weights[rows, at] + theta[:, :, None] * at)
