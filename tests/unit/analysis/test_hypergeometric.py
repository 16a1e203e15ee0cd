"""Fisher's noncentral hypergeometric law against scipy, and formula (1) by exact enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nchypergeom_fisher

from rollout.analysis.hypergeometric import Counts, Floats


def counts(*rows: tuple[int, int, int, int]) -> Counts:
    n, m, k, bad = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Counts(n, m, k, bad)


def law(n: int, m: int, k: int, theta: float) -> dict[int, float]:
    """The law of A by plain arithmetic, independent of the code under test."""
    weights = {a: math.comb(n, a) * math.comb(m, k - a) * math.exp(theta * a) for a in range(max(0, k - m), min(n, k) + 1)}
    total = sum(weights.values())
    return {a: w / total for a, w in weights.items()}


@pytest.mark.parametrize(
    ("n", "m", "k", "a"), [(5, 7, 6, 3), (30, 270, 140, 20), (400, 3600, 30, 6), (900, 8000, 500, 61), (700, 700, 690, 345)]
)
def test_differences_of_log_likelihoods_match_scipy(n: int, m: int, k: int, a: int) -> None:
    theta = np.array([[-1.0, 0.0, 0.2, 1.2]])
    ours = counts((n, m, k, a)).log_likelihood(theta)[0]
    theirs = np.array([nchypergeom_fisher.logpmf(a, n + m, k, n, math.exp(t)) for t in theta[0]])
    np.testing.assert_allclose(ours - ours[1], theirs - theirs[1], atol=1e-9)


def test_long_supports_summed_around_the_mode_equal_the_full_sum() -> None:
    n, m, k, a = 9000, 11000, 8000, 3700
    theta = np.array([[-2.0, -0.3, 0.0, 0.4, 2.6]])
    support = np.arange(0, min(n, k) + 1)
    base = np.array([math.lgamma(n + 1) - math.lgamma(x + 1) - math.lgamma(n - x + 1) for x in support])
    base += np.array([math.lgamma(m + 1) - math.lgamma(k - x + 1) - math.lgamma(m - k + x + 1) for x in support])
    full = np.array([a * t - np.logaddexp.reduce(base + support * t) for t in theta[0]])
    ours = counts((n, m, k, a)).log_likelihood(theta)[0]
    np.testing.assert_allclose(ours - ours[2], full - full[2], atol=1e-7)


@pytest.mark.parametrize("row", [(0, 9, 4, 0), (9, 0, 4, 4), (6, 5, 0, 0), (6, 5, 11, 6)])
def test_a_window_with_nothing_to_compare_says_nothing(row: tuple[int, int, int, int]) -> None:
    assert np.all(counts(row).log_likelihood(np.array([[-2.0, 0.0, 3.0]])) == 0.0)


def test_rows_of_different_length_do_not_disturb_each_other() -> None:
    theta = np.tile(np.array([[0.0, 0.8]]), (3, 1))
    rows = [(5, 7, 6, 3), (200, 100, 120, 90), (0, 4, 2, 0)]
    together = counts(*rows).log_likelihood(theta)
    alone = np.concatenate([counts(row).log_likelihood(theta[:1]) for row in rows])
    np.testing.assert_allclose(together - together[:, :1], alone - alone[:, :1], atol=1e-12)


def ratio(n: int, m: int, k: int, a: int, null: float, bet: float) -> float:
    pair: Floats = counts((n, m, k, a)).log_likelihood(np.array([[null, bet]]))[0]
    return float(np.exp(pair[1] - pair[0]))


@given(st.integers(1, 9), st.integers(1, 9), st.data(), st.floats(-1, 1), st.floats(0.05, 2.5), st.floats(0, 2))
def test_the_expected_e_value_is_one_at_the_null_and_no_more_below_it(
    n: int, m: int, data: st.DataObject, null: float, ahead: float, below: float
) -> None:
    k = data.draw(st.integers(0, n + m))
    at_null = sum(p * ratio(n, m, k, a, null, null + ahead) for a, p in law(n, m, k, null).items())
    under = sum(p * ratio(n, m, k, a, null, null + ahead) for a, p in law(n, m, k, null - below).items())
    assert at_null == pytest.approx(1.0, abs=1e-9)
    assert under <= 1.0 + 1e-9


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_swapping_the_arms_turns_the_odds_ratio_round(n: int, m: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n + m))
    a = data.draw(st.integers(max(0, k - m), min(n, k)))
    assert ratio(n, m, k, a, 0.0, 0.7) == pytest.approx(ratio(m, n, k, k - a, 0.0, -0.7))
