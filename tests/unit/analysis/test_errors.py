"""Failed requests: the odds process, and the risk difference by exact enumeration over the whole null."""

import itertools
import math

import numpy as np
import pytest

from rollout.analysis.asks import answer
from rollout.analysis.errors import ALTERNATIVES, harmless_gain, nearest_null, worse

SEEN = (3, 400)


def chance(n: int, bad: int, rate: float) -> float:
    return math.comb(n, bad) * rate**bad * (1 - rate) ** (n - bad)


def expected(n: int, m: int, stable: float, canary: float, margin: float, seen: tuple[int, int] = SEEN) -> np.ndarray:
    total = np.zeros(len(ALTERNATIVES))
    for a, b in itertools.product(range(n + 1), range(m + 1)):
        total += chance(n, a, canary) * chance(m, b, stable) * np.exp(harmless_gain((n, m, a, b), seen, margin))
    return total


@pytest.mark.parametrize(("n", "m"), [(6, 6), (2, 9), (9, 2)])
@pytest.mark.parametrize("margin", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("seen", [(0, 0), SEEN, (30, 60)])
def test_the_risk_difference_is_an_e_value_on_the_whole_null(n: int, m: int, margin: float, seen: tuple[int, int]) -> None:
    for stable in (0.0, 0.003, 0.05, 0.3, 0.69):
        for beyond in (0.0, 0.01):
            assert np.all(expected(n, m, stable, stable + margin + beyond, margin, seen) <= 1.0 + 1e-9)


def test_at_the_nearest_null_point_nothing_is_given_away() -> None:
    rate = (SEEN[0] + 0.2) / (SEEN[1] + 100.0)
    x = nearest_null(6, 6, rate, rate, 0.05)
    assert expected(6, 6, x, x + 0.05, 0.05)[0] == pytest.approx(1.0, abs=1e-9)


def test_different_error_rates_of_requests_inside_a_window_do_no_harm() -> None:
    """Half the requests at 0, half at twice the rate: the averages satisfy the null, so the expectation stays at or below one."""
    margin, total = 0.2, 0.0
    for bits in itertools.product((0, 1), repeat=8):
        rates = (0.0, 0.0, 0.2, 0.2, 0.1, 0.1, 0.5, 0.5)  # four stable (average 0.1), four canary (average 0.3)
        p = math.prod(r if bit else 1 - r for r, bit in zip(rates, bits, strict=True))
        total += p * float(np.exp(harmless_gain((4, 4, sum(bits[4:]), sum(bits[:4])), SEEN, margin)[0]))
    assert total <= 1.0 + 1e-9


@pytest.mark.parametrize("stratum", [(0, 50, 0, 1), (50, 0, 1, 0)])
def test_one_arm_alone_proves_nothing(stratum: tuple[int, int, int, int]) -> None:
    assert np.all(harmless_gain(stratum, SEEN, 0.02) == 0.0)


def test_clean_requests_speak_for_the_canary_and_failures_against() -> None:
    clean = harmless_gain((100, 900, 0, 2), SEEN, 0.02)
    failing = harmless_gain((100, 900, 6, 2), SEEN, 0.02)
    assert clean.max() > 0 > failing.max()


def test_a_margin_that_cannot_be_exceeded_proves_nothing() -> None:
    assert np.all(harmless_gain((10, 10, 9, 9), (95, 100), 0.6) == 0.0)


def test_strata_multiply_and_are_never_pooled() -> None:
    """A ramp: the canary gets its share when errors are common. Pooled it looks bad, stratum by stratum it is not."""
    calm, storm = (10, 990, 0, 2), (500, 500, 50, 50)
    logs = answer([worse([calm, storm], 1.0)])[0][0, :, 0]
    pooled = answer([worse([(510, 1490, 50, 52)], 1.0)])[0][0, :, 0]
    assert (logs - logs[0])[1:].max() < 0 < (pooled - pooled[0])[1:].max()
