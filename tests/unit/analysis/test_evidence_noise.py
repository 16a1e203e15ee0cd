"""The replica-noise form by listing every outcome of two or three windows and integrating the replica's own noise on the grid."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from rollout.analysis.hypergeometric import Counts, Floats
from rollout.analysis.latency import FAIL_STEPS, PASS_STEPS
from rollout.analysis.noise import Bank, Noise, chain
from tests.unit.analysis.exact import Table, noncentral, wandering

HALF_PRECISION = 1e-3
MARGIN = 0.2
TABLES: list[list[Table]] = [[(3, 4, 3), (4, 3, 4), (3, 3, 2)], [(6, 20, 9), (7, 20, 9)], [(12, 30, 3), (10, 30, 5)]]
NOISES = [Noise(0.02, 0.3), Noise(0.2, 0.8), Noise(0.6, 0.0), Noise(1.0, 0.9)]
SIDES = [(FAIL_STEPS, -1.0), (PASS_STEPS, 1.0)]


def outcomes(tables: Sequence[Table]) -> Floats:
    """Every sequence of the canary's bad requests: (sequences, windows)."""
    return np.array(list(itertools.product(*(sorted(noncentral(t, 0.0)) for t in tables))))


def e_values(tables: Sequence[Table], bad: Floats, noise: Noise, steps: Floats) -> Floats:
    """The evidence after each sequence, each in a row of one bank."""
    bank = Bank.fresh(len(bad), len(steps) - 1, noise)
    theta = np.broadcast_to((MARGIN + steps[:, None] + noise.grid).reshape(1, -1), (len(bad), len(steps) * len(noise.grid)))
    for t, table in enumerate(tables):
        n, m, k = (np.full(len(bad), x) for x in table)
        bank = bank.step(Counts(n, m, k, bad[:, t]).log_likelihood(theta).reshape(len(bad), len(steps), -1), noise)
    return np.exp(bank.log_mixture())


def chances(tables: Sequence[Table], bad: Floats, world: tuple[Floats, Floats, Floats], mus: Sequence[float]) -> Floats:
    """The probability of each sequence when the log odds of window t are the margin + mus[t] + u."""
    places, start, move = world
    law = np.broadcast_to(start, (len(bad), len(start)))
    for t, table in enumerate(tables):
        emission = {a: np.empty(len(places)) for a in noncentral(table, 0.0)}
        for i, u in enumerate(places):
            for a, p in noncentral(table, MARGIN + mus[t] + float(u)).items():
                emission[a][i] = p
        law = (law @ move) * np.stack([emission[int(a)] for a in bad[:, t]])
    return np.asarray(law.sum(axis=1))


def expected(tables: Sequence[Table], noise: Noise, steps: Floats, mus: Sequence[float], world: tuple[Floats, Floats, Floats]) -> float:
    bad = outcomes(tables)
    chance = chances(tables, bad, world, mus)
    assert chance.sum() == pytest.approx(1.0)
    return float(chance @ e_values(tables, bad, noise, steps))


@pytest.mark.parametrize("tables", TABLES, ids=str)
@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize(("steps", "side"), SIDES, ids=["rollback", "promotion"])
def test_at_the_margin_it_expects_one_and_on_the_right_side_of_it_less(
    tables: list[Table], noise: Noise, steps: Floats, side: float
) -> None:
    """The mean of each window may lie anywhere on the null's side, a different place each window."""
    world = (noise.grid, *chain(noise))
    assert expected(tables, noise, steps, [0.0] * len(tables), world) == pytest.approx(1.0, abs=HALF_PRECISION)
    for mus in itertools.product((0.0, side * 0.3, side * 1.5), repeat=len(tables)):
        assert expected(tables, noise, steps, mus, world) <= 1.0 + HALF_PRECISION


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_replica_noisier_than_fitted_costs_more_than_a_quieter_one(noise: Noise) -> None:
    """On a grid finer and wider than the judge's own: fitted noise holds up to 2 %, half of it holds, twice of it does not."""
    tables = TABLES[1]
    quiet, fitted, loud = (expected(tables, noise, FAIL_STEPS, (0.0, 0.0), wandering(f * noise.v, noise.phi)) for f in (0.5, 1.0, 2.0))
    assert quiet < 1.0
    assert fitted <= 1.02
    assert loud > 1.02


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize(("steps", "side"), SIDES, ids=["rollback", "promotion"])
def test_a_bad_canary_request_in_any_window_moves_the_evidence_the_same_way(noise: Noise, steps: Floats, side: float) -> None:
    """The condition under which the bound reaches from the margin itself to everything better: checked at every outcome."""
    tables = TABLES[0]
    bad = outcomes(tables)
    evidence = dict(zip(map(tuple, bad.tolist()), e_values(tables, bad, noise, steps).tolist(), strict=True))
    compared = 0
    for sequence, before in evidence.items():
        for t in range(len(tables)):
            after = evidence.get((*sequence[:t], sequence[t] + 1, *sequence[t + 1 :]))
            if after is not None:
                compared += 1
                assert after * -side >= before * -side - HALF_PRECISION * max(before, after)
    assert compared > 50


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_window_with_nothing_to_compare_and_one_that_was_missed_change_no_ratio(noise: Noise) -> None:
    tables, empty = TABLES[1], [(0, 9, 4), (9, 0, 4), (6, 5, 0), (6, 5, 11)]
    bad = np.array([[3, 4]])
    straight = e_values(tables, bad, noise, FAIL_STEPS)[0]
    for table in empty:
        only = min(noncentral(table, 0.0))
        after = e_values([*tables, table], np.array([[3, 4, only]]), noise, FAIL_STEPS)[0]
        assert after == pytest.approx(straight, rel=1e-12)
