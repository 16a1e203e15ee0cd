"""Paired probes and the share test: fair bets, and the interval a share must lie in."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from rollout.analysis.betting import probes_harmless, probes_slower, share_gain, share_inside, timed_pairs
from rollout.analysis.samples import ProbePair


def pair(stable: float | None, canary: float | None, stable_ok: bool = True, canary_ok: bool = True) -> ProbePair:
    return ProbePair(stable, canary, stable_ok, canary_ok)


def test_each_probe_is_a_fair_coin_at_the_null() -> None:
    slow, fast = (np.exp(probes_slower([pair(1.0, c)], 0.1)) for c in (1.2, 1.0))
    np.testing.assert_allclose((slow + fast) / 2, 1.0)


def test_ties_speak_for_neither_proof() -> None:
    assert probes_slower([pair(1.0, 1.1)], 0.1)[-1] < 0
    assert probes_harmless([pair(1.0, 1.2)], 0.2)[-1] < 0


def test_many_fast_enough_probes_prove_harmless_and_many_slow_ones_prove_slower() -> None:
    equal = [pair(1.0, 1.01)] * 40
    assert probes_harmless(equal, 0.5).max() > math.log(20)
    assert probes_slower([pair(1.0, 2.0)] * 40, 0.1).max() > math.log(100)


def test_a_pair_with_a_failed_or_silent_side_is_no_latency() -> None:
    broken = [pair(1.0, None), pair(None, 1.0), pair(1.0, 9.0, canary_ok=False), pair(1.0, 9.0, stable_ok=False)]
    assert timed_pairs(broken) == 0
    assert np.all(probes_slower(broken, 0.1) == 0.0)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_the_share_test_is_a_fair_bet_at_the_configured_share(share: float) -> None:
    total = 9
    expected = sum(binom.pmf(k, total, share) * np.exp(share_gain(k, total, share)) for k in range(total + 1))
    np.testing.assert_allclose(expected, 1.0)


def test_a_share_that_is_off_is_found_on_either_side_and_a_true_one_is_not() -> None:
    def mixture(k: int) -> float:
        return float(np.log(np.exp(share_gain(k, 1000, 0.1)).mean()))

    assert mixture(0) > math.log(1000)
    assert mixture(200) > math.log(1000)
    assert mixture(104) < 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_share_is_tested_where_there_is_no_split(share: float) -> None:
    assert np.all(share_gain(5, 10, share) == 0.0)
    assert share_inside(10 * int(share), 10, share)
    assert not share_inside(5, 10, share)


@pytest.mark.parametrize(("total", "share"), [(1000, 0.05), (1000, 0.5), (5000, 0.25), (40, 0.1)])
def test_the_interval_is_the_central_binomial_one(total: int, share: float) -> None:
    inside = [k for k in range(total + 1) if share_inside(k, total, share)]
    low, high = binom.ppf(0.0005, total, share), binom.isf(0.0005, total, share)
    assert (inside[0], inside[-1]) == (low, high)
