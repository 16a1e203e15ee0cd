"""The sequential share test: exact at the ends, within its error bound between, and not fooled by failures."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.sources.share import CERTAIN, ODDS, ShareTest, log_ratio


def run(old, new, real, seed, *, limit=200, fails=0.0):
    test, rng = ShareTest(old, new), random.Random(seed)
    while test.open and test.hits + test.misses + test.failed < limit:
        test.add(None if rng.random() < fails else rng.random() < real)
    return test


def test_one_hit_proves_that_a_share_is_no_longer_zero():
    test = ShareTest(0.0, 0.05)
    test.add(True)
    assert (test.moved, test.llr) == (True, CERTAIN)


def test_one_hit_proves_that_a_share_is_not_zero_yet():
    test = ShareTest(0.05, 0.0)
    test.add(True)
    assert (test.moved, test.llr) == (False, -CERTAIN)


def test_one_miss_settles_a_share_of_one():
    moved, stale = ShareTest(1.0, 0.5), ShareTest(0.5, 1.0)
    moved.add(False)
    stale.add(False)
    assert (moved.moved, stale.moved) == (True, False)


@pytest.mark.parametrize("old", [0.05, 0.1, 0.25, 0.5])
def test_zero_is_proved_against_the_old_share_by_misses_alone(old):
    test = run(old, 0.0, real=0.0, seed=1)
    assert test.moved is True
    assert test.misses == math.ceil(ODDS / -math.log(1 - old))


@pytest.mark.parametrize("old", [0.5, 0.75, 0.9])
def test_one_is_proved_against_the_old_share_by_hits_alone(old):
    test = run(old, 1.0, real=1.0, seed=1)
    assert test.moved is True
    assert test.hits == math.ceil(ODDS / -math.log(old))


LADDER = [(0.0, 0.05), (0.05, 0.10), (0.10, 0.25), (0.25, 0.50), (0.0, 0.5), (0.5, 1.0), (0.25, 0.0)]


@pytest.mark.parametrize(("old", "new"), LADDER)
def test_wrong_answers_stay_within_one_in_a_thousand(old, new):
    stale = [run(old, new, real=old, seed=i, limit=400) for i in range(400)]
    moved = [run(old, new, real=new, seed=i, limit=400) for i in range(400)]
    assert sum(t.moved is True for t in stale) <= 3  # 0.4 expected at the bound
    assert sum(t.moved is False for t in moved) <= 3
    assert sum(t.llr for t in stale) < 0 < sum(t.llr for t in moved)


def test_equal_shares_have_nothing_to_tell():
    assert not ShareTest(0.3, 0.3).open


def test_a_broken_canary_that_hides_behind_failures_is_not_proved_gone():
    """Its share is still 10 % and every request to it fails: misses alone would say that it left."""
    tests = [ShareTest(0.10, 0.0) for _ in range(200)]
    for i, test in enumerate(tests):
        rng = random.Random(i)
        while test.open and test.misses + test.failed < 200:
            test.add(None if rng.random() < 0.10 else False)
    assert sum(t.moved is True for t in tests) <= 2


def test_a_few_failures_only_delay_the_proof():
    test = ShareTest(0.25, 0.0)
    for i in range(100):
        test.add(None if i % 25 == 0 else False)
    assert test.moved is True


def test_nothing_but_failures_proves_nothing():
    test = ShareTest(0.0, 0.5)
    for _ in range(50):
        test.add(None)
    assert (test.moved, test.llr) == (None, 0.0)


def test_the_decision_stands_while_late_answers_are_counted():
    test = ShareTest(0.0, 0.05)
    for hit in (True, False, False, None):
        test.add(hit)
    assert (test.moved, test.hits, test.misses, test.failed) == (True, 1, 2, 1)


SHARE = st.floats(0.01, 0.99)


@given(st.integers(0, 50), st.integers(0, 50), SHARE, SHARE)
def test_without_failures_it_is_walds_ratio(hits, misses, old, new):
    plain = hits * math.log(new / old) + misses * math.log((1 - new) / (1 - old))
    assert log_ratio(hits, misses, 0, old, new) == pytest.approx(max(-CERTAIN, min(CERTAIN, plain)), abs=1e-6)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.floats(0, 1), st.floats(0, 1))
def test_the_ratio_is_finite_and_turns_with_the_hypotheses(hits, misses, failed, old, new):
    ratio = log_ratio(hits, misses, failed, old, new)
    assert abs(ratio) <= CERTAIN
    assert ratio == -log_ratio(hits, misses, failed, new, old)


@pytest.mark.parametrize(("old", "new"), [(0.0, 0.1), (0.10, 0.25), (0.25, 0.5), (0.25, 0.0)])
def test_failures_on_both_sides_do_not_break_the_bound(old, new):
    stale = [run(old, new, real=old, seed=i, fails=0.2) for i in range(400)]
    moved = [run(old, new, real=new, seed=i, fails=0.2) for i in range(400)]
    assert sum(t.moved is True for t in stale) <= 3
    assert sum(t.moved is False for t in moved) <= 3


def test_shares_outside_zero_to_one_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        ShareTest(0.0, 5.0)
