"""E[e] <= 1, by listing every outcome: paired probes and the share test."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis.betting import SHARE_SHIFTS, probes_harmless, probes_over, probes_slower, share_gain
from rollout.analysis.samples import ProbePair
from tests.unit.analysis.exact import binomial

SMALL = 1e-9
MARGIN = 0.2
FASTER, TIE, SLOWER = (ProbePair(1.0, x, True, True) for x in (0.9, 1.0 + MARGIN, 1.5))
BROKEN = ProbePair(1.0, None, True, False)


def mixture(gains: np.ndarray) -> float:
    return float(np.exp(gains).mean())


def expected(laws: list[dict[ProbePair, float]], harmless: bool) -> float:
    """Over every sequence of pairs, each with its own law."""
    total = 0.0
    for pairs in itertools.product(*laws):
        chance = math.prod(law[p] for law, p in zip(laws, pairs, strict=True))
        total += chance * mixture(probes_harmless(pairs, MARGIN) if harmless else probes_slower(pairs, MARGIN))
    return total


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1), st.floats(0, 0.5)), min_size=1, max_size=4), st.booleans())
def test_probes_expect_at_most_one_while_at_most_half_of_the_pairs_speak_against_the_null(
    shapes: list[tuple[float, float, float]], harmless: bool
) -> None:
    """Ties and broken pairs take what is left; each pair may have a law of its own."""
    against, other = (FASTER, SLOWER) if harmless else (SLOWER, FASTER)
    laws = []
    for p, tied, broken in shapes:
        alive = 1 - broken
        laws.append({against: alive * p, other: alive * (1 - p) * (1 - tied), TIE: alive * (1 - p) * tied, BROKEN: broken})
    assert sum(laws[0].values()) == pytest.approx(1.0)
    assert expected(laws, harmless) <= 1 + SMALL


@pytest.mark.parametrize("harmless", [False, True])
def test_at_one_half_nothing_is_given_away(harmless: bool) -> None:
    assert expected([{FASTER: 0.5, SLOWER: 0.5}] * 3, harmless) == pytest.approx(1.0)


def test_broken_pairs_and_no_pairs_say_nothing_about_latency() -> None:
    for pairs in ([], [BROKEN] * 5):
        assert mixture(probes_slower(pairs, MARGIN)) == mixture(probes_harmless(pairs, MARGIN)) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 12), st.floats(0.01, 0.99))
def test_the_share_test_expects_one_at_the_configured_share(total: int, share: float) -> None:
    after = sum(binomial(total, k, share) * np.exp(share_gain(k, total, share)) for k in range(total + 1))
    np.testing.assert_allclose(after, np.ones(len(SHARE_SHIFTS)), atol=1e-7)


def test_a_share_that_moves_between_windows_is_still_a_fair_bet() -> None:
    """The next share may follow from what was served: it is known before the next window begins."""
    after = 0.0
    for first in range(4):
        share = 0.1 if first < 2 else 0.7
        for second in range(5):
            gains = share_gain(first, 3, 0.4) + share_gain(second, 4, share)
            after += binomial(3, first, 0.4) * binomial(4, second, share) * mixture(gains)
    assert after == pytest.approx(1.0)


def test_no_split_and_no_requests_are_no_evidence_of_a_wrong_share() -> None:
    assert mixture(share_gain(0, 0, 0.3)) == mixture(share_gain(5, 5, 1.0)) == 1.0


times = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4).map(lambda w: [x / sum(w) for x in w])


@settings(max_examples=40, deadline=None)
@given(times, st.floats(0, MARGIN), st.sampled_from([0.0, MARGIN]))
def test_pairs_over_the_objective_expect_at_most_one_while_the_canary_is_no_slower_than_tolerated(
    law: list[float], slower: float, tolerated: float
) -> None:
    """Both sides draw from the same times, the canary's are longer by what is tolerated at most; two pairs, every outcome."""
    seconds = [0.35, 0.45, 0.5, 0.9][: len(law)]
    factor = 1 + min(slower, tolerated)
    sides = list(zip(seconds, law, strict=True))
    drawn = [(ProbePair(x, y * factor, True, True), p * q) for (x, p), (y, q) in itertools.product(sides, sides)]
    total = sum(p * q * mixture(probes_over((a, b), 0.5, tolerated)) for (a, p), (b, q) in itertools.product(drawn, drawn))
    assert total <= 1 + SMALL


def test_pairs_that_both_kept_or_both_missed_the_objective_say_nothing() -> None:
    both = [ProbePair(0.1, 0.4, True, True), ProbePair(0.9, 3.0, True, True), BROKEN]
    assert mixture(probes_over(both, 0.5, 0.0)) == 1.0
    assert mixture(probes_over([ProbePair(0.1, 3.0, True, True)] * 20, 0.5, MARGIN)) > 100
