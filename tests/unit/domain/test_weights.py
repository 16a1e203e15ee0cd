"""The ladder in whole weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.domain.weights import canary_weight, choose_mode, expressible, ladder_shares, load_ratio, nearest, pair_share, rungs, scale_for


@given(st.integers(1, 10**6), st.floats(0.001, 0.99))
def test_an_expressible_share_is_within_tolerance(stable: int, share: float) -> None:
    """What is called expressible is written within max(0.5 pp, 10 % relative), with a positive weight."""
    if expressible(stable, share):
        weight = canary_weight(stable, share)
        assert weight > 0
        assert abs(pair_share(stable, weight) - share) <= max(0.005, 0.1 * share)


@given(st.integers(1, 1000), st.lists(st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9]), min_size=1, unique=True))
def test_a_scale_makes_every_rung_expressible(stable: int, shares: list[float]) -> None:
    """The scaled weight is a multiple of what was found, and every rung can be written beside it."""
    scaled = scale_for(stable, [*sorted(shares), 1.0])
    assert scaled is not None
    assert scaled % stable == 0
    assert all(expressible(scaled, s) for s in shares)


@given(st.integers(1, 10**5), st.integers(0, 10**5))
def test_shares_rise_and_never_exceed_what_was_asked_by_more_than_rounding(stable: int, others: int) -> None:
    """Each rung's route share is above the one before; the last one removes stable, so it holds no weight."""
    ladder = rungs((0.1, 0.25, 0.5, 1.0), stable, others)
    shares = [r.route_share for r in ladder]
    assert shares == sorted(shares)
    assert ladder[-1].full
    assert ladder[-1].weight is None


def test_stable_keeps_its_weight_and_the_canary_ends_at_it() -> None:
    """At 50 % of the pair the canary has exactly stable's weight, so that others' shares do not move when stable leaves."""
    ladder = rungs((0.1, 0.5, 1.0), 100, 100)
    assert [r.weight for r in ladder] == [11, 100, None]
    assert ladder[1].route_share == pytest.approx(1 / 3)
    assert ladder[2].route_share == pytest.approx(1 / 2)


def test_a_coarse_weight_is_refused_with_the_nearest() -> None:
    """Beside weight 1 a rung of 5 % cannot be written; the nearest is 50 %."""
    assert not expressible(1, 0.05)
    assert nearest(1, 0.05) == 0.5


@pytest.mark.parametrize(("replicas", "expected"), [((1, 1), (0.1, 0.5, 1.0)), ((1, 4), (0.1, 0.2, 0.5, 1.0))])
def test_the_modes_own_ladder_gets_a_balanced_rung(replicas: tuple[int, int], expected: tuple[float, ...]) -> None:
    """Where no rung loads both sides alike, the balanced one is added."""
    assert ladder_shares(None, "thin", *replicas, siblings=False) == expected


def test_with_other_targets_no_rung_lies_between_50_and_100() -> None:
    """The canary ends at stable's weight, which is half of the pair."""
    assert ladder_shares((10, 50, 75, 100), "thin", 1, 1, siblings=True) == (0.1, 0.5, 1.0)


@pytest.mark.parametrize(("rate", "mode"), [(None, "sparse"), (0, "sparse"), (59, "sparse"), (60, "thin"), (3599, "thin"), (3600, "rich")])
def test_the_mode_follows_the_rate(rate: float | None, mode: str) -> None:
    """Unknown traffic counts as sparse."""
    assert choose_mode(rate) == mode


@pytest.mark.parametrize(("share", "expected"), [(0.05, 0.0526), (0.5, 1.0), (0.9, 9.0)])
def test_load_ratio_of_one_replica_each(share: float, expected: float) -> None:
    """At 5 % an identical canary idles, at 90 % it carries nine times stable's load."""
    assert load_ratio(share, 1 - share, 1, 1) == pytest.approx(expected, rel=0.01)


def test_load_ratio_without_control_is_unknown() -> None:
    """At 100 % nothing is compared."""
    assert load_ratio(1.0, 0.0, 1, 1) is None
