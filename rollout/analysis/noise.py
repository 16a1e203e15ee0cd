"""Evidence banks: log likelihood ratios against a null, with or without a replica's own persistent noise.

A bank follows `rows` separate count processes under one null and several alternatives. Without noise (v = 0) it is the plain product of
formula (1). With noise the log odds ratio of a window is mu + u, u a stationary Gaussian AR(1) (variance v, correlation phi a window);
each hypothesis about mu keeps the filtered law of u on a grid and the bank adds up the ratio of the marginal likelihoods.
v = 0 is the same code on a grid of one point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rollout.analysis.hypergeometric import Floats

_STEP = 0.1
_REACH = 3.5


@dataclass(frozen=True)
class Noise:
    """A replica's own noise in log odds: variance `v`, correlation `phi` (0 <= phi < 1) from window to window."""

    v: float = 0.0
    phi: float = 0.0

    def __post_init__(self) -> None:
        if self.v < 0 or not 0 <= self.phi < 1:
            raise ValueError(f"noise needs v >= 0 and 0 <= phi < 1, got v={self.v}, phi={self.phi}")

    @property
    def grid(self) -> Floats:
        """The values of u; one zero when there is no noise."""
        return _grid(self.v)

    @property
    def long_run_variance(self) -> float:
        """v (1 + phi) / (1 - phi): what the noise costs a sum over many windows."""
        return self.v * (1 + self.phi) / (1 - self.phi)


@lru_cache(maxsize=64)
def _grid(v: float) -> Floats:
    half = math.ceil(_REACH * math.sqrt(v) / _STEP) if v > 0 else 0
    return np.arange(-half, half + 1, dtype=np.float64) * _STEP


@lru_cache(maxsize=64)
def chain(noise: Noise) -> tuple[Floats, Floats]:
    """Stationary weights and transition matrix (from, to) on the grid."""
    u = noise.grid
    if noise.v == 0:
        return np.ones(1), np.ones((1, 1))
    start = np.exp(-(u**2) / (2 * noise.v))
    step = np.exp(-((u[None, :] - noise.phi * u[:, None]) ** 2) / (2 * noise.v * (1 - noise.phi**2)))
    step += 1e-12  # no place on the grid is ever impossible, so no window can have likelihood zero
    return start / start.sum(), step / step.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Bank:
    """`log`: (rows, alternatives) log likelihood ratios to the null. `law`: (rows, 1 + alternatives, grid) filtered weights of u,
    the null first. The weights are kept in half precision (a relative 5e-4, made whole again before use): they would otherwise be
    nearly all that a saved state weighs.
    """

    log: Floats
    law: NDArray[np.float16]

    @classmethod
    def fresh(cls, rows: int, alternatives: int, noise: Noise) -> "Bank":
        """A bank that has seen nothing: every ratio is 1, u is stationary."""
        start, _ = chain(noise)
        law = np.broadcast_to(start.astype(np.float16), (rows, alternatives + 1, len(start)))
        return cls(np.zeros((rows, alternatives)), law.copy())

    def step(self, likelihood: Floats | None, noise: Noise) -> "Bank":
        """One window on. `likelihood`: (rows, 1 + alternatives, grid) in logs, up to a constant of each row; None = nothing was seen."""
        return step_all([self], [likelihood], noise)[0]

    def log_mixture(self) -> Floats:
        """log of the average over alternatives, one e-process a row: shape (rows,)."""
        top = self.log.max(axis=1)
        return np.asarray(top + np.log(np.exp(self.log - top[:, None]).mean(axis=1)))


def log_mean(logs: Floats) -> float:
    """log of the average of e-values given in logs."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))


def step_all(banks: Sequence[Bank], likelihoods: Sequence[Floats | None], noise: Noise) -> list[Bank]:
    """Banks with the same number of hypotheses under the same noise, each one window on; the likelihoods are given for all or for none."""
    given = [one for one in likelihoods if one is not None]
    if noise.v == 0:
        if not given:
            return list(banks)
        return [Bank(bank.log + (one[:, 1:, 0] - one[:, :1, 0]), bank.law) for bank, one in zip(banks, given, strict=True)]
    _, move = chain(noise)
    law = np.concatenate([bank.law for bank in banks]).astype(np.float64)
    law /= law.sum(axis=2, keepdims=True)
    moved = (law.reshape(-1, len(move)) @ move).reshape(law.shape)
    ends = np.cumsum([len(bank.law) for bank in banks])[:-1]
    if not given:
        return [Bank(bank.log, part) for bank, part in zip(banks, np.split(moved.astype(np.float16), ends), strict=True)]
    likelihood = np.concatenate(given)
    top = likelihood.max(axis=2, keepdims=True)
    moved *= np.exp(likelihood - top)
    mass = moved.sum(axis=2)
    gain = np.log(mass) + top[:, :, 0]
    moved /= mass[:, :, None]
    laws, gains = np.split(moved.astype(np.float16), ends), np.split(gain[:, 1:] - gain[:, :1], ends)
    return [Bank(bank.log + more, part) for bank, more, part in zip(banks, gains, laws, strict=True)]
