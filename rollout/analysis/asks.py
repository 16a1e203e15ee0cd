"""What a window asks of the arithmetic, and its answers: for one rollout, or for many in lockstep.

The judge says which tables it wants looked up (`Ask`) and which evidence moves on (`Step`); here equal shapes are put together, so that a
hundred rollouts cost hardly more calls of numpy than one. Nothing here knows a metric, a margin or a verdict.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollout.analysis.hypergeometric import Counts, Floats, Ints
from rollout.analysis.noise import Bank, Noise, step_all

_CELLS = 1 << 21  # terms summed in one go: 16 MiB


@dataclass(frozen=True, eq=False)
class Ask:
    """Rows of 2x2 tables and the log odds at which each is wanted.

    `theta`: (rows, points). `spread`: (hypotheses, grid of u), which point each of them uses; many share one. `multiplied`: the rows are
    independent given what they condition on, and count as one.
    """

    counts: Counts
    theta: Floats
    spread: Ints
    multiplied: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """A bank and the window's log likelihood (rows, hypotheses, grid) that moves it on; None = time passed and nothing was seen."""

    bank: Bank
    likelihood: Floats | None
    noise: Noise


def answer(asks: Sequence[Ask]) -> list[Floats]:
    """The log likelihood (rows, hypotheses, grid) of each ask, up to a constant of each row."""
    found: dict[int, Floats] = {}
    groups: dict[int, list[int]] = defaultdict(list)
    for i, ask in enumerate(asks):
        groups[ask.theta.shape[1]].append(i)
    for points, members in groups.items():
        tables = _looked_up([asks[i] for i in members], points)
        for i, table in zip(members, tables, strict=True):
            rows = table[:, asks[i].spread]
            found[i] = rows.sum(axis=0, keepdims=True) if asks[i].multiplied else rows
    return [found[i] for i in range(len(asks))]


def advance(steps: Sequence[Step]) -> list[Bank]:
    """Every bank one window on."""
    found: dict[int, Bank] = {}
    groups: dict[tuple[int, Noise, bool], list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        groups[(step.bank.law.shape[1], step.noise, step.likelihood is None)].append(i)
    for (_, noise, _), members in groups.items():
        banks = step_all([steps[i].bank for i in members], [steps[i].likelihood for i in members], noise)
        found.update(zip(members, banks, strict=True))
    return [found[i] for i in range(len(steps))]


def _looked_up(asks: Sequence[Ask], points: int) -> list[Floats]:
    """(rows, points) for each ask: all rows in one table, sorted by the length of their sums, in pieces that fit the memory."""
    everything = asks[0].counts if len(asks) == 1 else Counts.joined([ask.counts for ask in asks])
    theta = asks[0].theta if len(asks) == 1 else np.concatenate([ask.theta for ask in asks])
    sizes = [len(ask.counts.n) for ask in asks]
    table = np.zeros((len(everything.n), points))
    if len(table):
        order = np.argsort(everything.width, kind="stable")
        for piece in _pieces(everything.width[order] * points):
            rows = order[piece]
            table[rows] = everything.picked(rows).log_likelihood(theta[rows])
    return np.split(table, np.cumsum(sizes)[:-1])


def _pieces(costs: Ints) -> list[slice]:
    """Slices of rows (dearest last) whose padded cost stays under the limit, and which pad little."""
    pieces, start = [], 0
    for end in range(1, len(costs) + 1):
        full = end == len(costs) or (end + 1 - start) * costs[end] > _CELLS or costs[end] > 2 * costs[start] + 64 * 64
        if full:
            pieces.append(slice(start, end))
            start = end
    return pieces
