"""Evidence banks: v = 0 is formula (2), the noise form is a likelihood ratio that rises with every bad canary request."""

import itertools
import math

import numpy as np
import pytest

from rollout.analysis.hypergeometric import Floats
from rollout.analysis.noise import Bank, Noise, chain
from tests.unit.analysis.test_hypergeometric import counts, law

STEPS = np.array([0.0, 0.4, 1.2])


def likelihood(row: tuple[int, int, int, int], noise: Noise) -> Floats:
    theta = (STEPS[None, :, None] + noise.grid).reshape(1, -1)
    return counts(row).log_likelihood(theta).reshape(1, len(STEPS), -1)


def evidence(windows: list[tuple[int, int, int, int]], noise: Noise) -> float:
    bank = Bank.fresh(1, len(STEPS) - 1, noise)
    for row in windows:
        bank = bank.step(likelihood(row, noise), noise)
    return math.exp(float(bank.log_mixture()[0]))


def test_without_noise_the_bank_is_the_mixture_of_products_of_formula_two() -> None:
    windows = [(30, 270, 20, 4), (25, 240, 11, 2), (40, 300, 33, 9)]
    products = []
    for ahead in STEPS[1:]:
        product = 1.0
        for n, m, k, a in windows:
            zs = [sum(math.comb(n, x) * math.comb(m, k - x) * math.exp(t * x) for x in range(min(n, k) + 1)) for t in (0.0, ahead)]
            product *= math.exp(ahead * a) * zs[0] / zs[1]
        products.append(product)
    assert evidence(windows, Noise()) == pytest.approx(sum(products) / len(products), rel=1e-9)


def test_the_noise_form_has_expectation_one_under_its_own_null() -> None:
    noise, sizes = Noise(0.3, 0.7), [(3, 4, 3), (4, 3, 4)]
    start, move = chain(noise)
    emissions = [[law(n, m, k, float(u)) for u in noise.grid] for n, m, k in sizes]
    total = 0.0
    for a, b in itertools.product(range(4), range(1, 5)):
        first = np.array([emission.get(a, 0.0) for emission in emissions[0]])
        second = np.array([emission.get(b, 0.0) for emission in emissions[1]])
        chance = float((((start @ move) * first) @ move * second).sum())
        if chance:
            total += chance * evidence([(*sizes[0], a), (*sizes[1], b)], noise)
    assert total == pytest.approx(1.0, abs=2e-3)  # half-precision weights


def test_more_bad_canary_requests_in_any_window_mean_more_evidence() -> None:
    noise = Noise(0.2, 0.8)
    base = [(20, 80, 30, 8), (20, 80, 30, 7), (20, 80, 30, 9)]
    before = evidence(base, noise)
    for i, (n, m, k, a) in enumerate(base):
        assert evidence([*base[:i], (n, m, k, a + 1), *base[i + 1 :]], noise) > before


def test_noise_asks_for_more_than_no_noise() -> None:
    windows = [(30, 270, 60, 12)] * 8
    assert evidence(windows, Noise(0.2, 0.8)) < evidence(windows, Noise(0.02, 0.8)) < evidence(windows, Noise())


@pytest.mark.parametrize("noise", [Noise(), Noise(0.2, 0.8)])
def test_a_window_without_data_changes_no_ratio(noise: Noise) -> None:
    bank = Bank.fresh(2, 3, noise)
    assert np.all(bank.step(None, noise).log == 0.0)


def test_half_precision_weights_cost_next_to_nothing_over_many_windows() -> None:
    noise = Noise(0.2, 0.8)
    start, move = chain(noise)
    rows = [(30, 270, 60 + i % 7, 6 + i % 4) for i in range(300)]
    bank, exact, total = Bank.fresh(1, len(STEPS) - 1, noise), np.tile(start, (len(STEPS), 1)), np.zeros(len(STEPS))
    for row in rows:
        seen = likelihood(row, noise)
        bank = bank.step(seen, noise)
        joint = (exact @ move) * np.exp(seen[0])
        total += np.log(joint.sum(axis=1))
        exact = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(bank.log[0], total[1:] - total[0], atol=0.02)


@pytest.mark.parametrize(("v", "phi"), [(-0.1, 0.5), (0.1, 1.0), (0.1, -0.2)])
def test_impossible_noise_is_refused(v: float, phi: float) -> None:
    with pytest.raises(ValueError, match="noise needs"):
        Noise(v, phi)


def test_the_chain_is_a_law_at_every_place() -> None:
    start, move = chain(Noise(0.2, 0.8))
    assert start.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(move.sum(axis=1), 1.0)
