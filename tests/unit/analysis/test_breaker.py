"""The circuit breaker trips on what is broken, never on what is merely unknown, and knows its own false alarm bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.analysis.breaker import Breaker, breaker_alpha, last_failures

GIB = 1 << 30


def after(*windows: tuple[tuple[int, int], tuple[int, int]]) -> Breaker:
    breaker = Breaker()
    for canary, stable in windows:
        breaker = breaker.requests(canary, stable).judged(None, None)
    return breaker


def test_eight_failures_in_twenty_trip_while_stable_is_healthy() -> None:
    assert after(((20, 8), (100, 2))).tripped
    assert not after(((20, 7), (100, 2))).tripped


def test_a_common_outage_does_not_trip() -> None:
    assert not after(((20, 20), (100, 10))).tripped


def test_without_a_control_nothing_trips() -> None:
    assert not after(((20, 20), (0, 0))).tripped
    assert not after(((20, 20), (7, 0))).tripped


def test_stable_seen_earlier_is_still_a_control_when_the_canary_carries_everything() -> None:
    assert after(((20, 0), (200, 1)), ((20, 12), (0, 0))).tripped


def test_old_failures_are_forgotten() -> None:
    assert not after(((7, 7), (100, 0)), ((14, 0), (100, 0)), ((6, 1), (100, 0))).tripped


def test_once_tripped_it_stays_tripped_with_its_first_reason() -> None:
    tripped = after(((20, 8), (100, 2)))
    assert tripped.requests((500, 0), (500, 0)).judged(1, GIB).tripped == tripped.tripped


@given(st.lists(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=12))
def test_no_more_failures_are_counted_than_some_order_of_the_requests_could_show(windows: list[tuple[int, int]]) -> None:
    failures, size = last_failures(tuple(windows))
    assert size == min(20, sum(n for n, _ in windows))
    most, left = 0, 20
    for n, bad in reversed(windows):
        most, left = most + min(bad, left), left - min(n, left)
    assert 0 <= failures <= min(most, size)


def test_two_restarts_within_ten_minutes_trip_and_further_apart_do_not() -> None:
    assert Breaker().restarted(1, 100).restarted(1, 650).judged(None, None).tripped
    assert not Breaker().restarted(1, 100).restarted(1, 720).judged(None, None).tripped


@pytest.mark.parametrize(("available", "trips"), [(3 * GIB, True), (5 * GIB, False), (0, False), (None, False)])
def test_memory_under_the_floor_trips_and_unknown_memory_does_not(available: int | None, trips: bool) -> None:
    assert bool(Breaker().judged(available, 4 * GIB).tripped) is trips


def test_what_is_remembered_does_not_grow() -> None:
    breaker = Breaker()
    for i in range(500):
        breaker = breaker.requests((3, 0), (30, 0)).restarted(0, i * 30.0)
    assert len(breaker.canary) <= 7
    assert len(breaker.stable) <= 4


def test_the_false_alarm_bound_is_tiny_at_healthy_rates_and_honest_at_high_ones() -> None:
    assert breaker_alpha(0.01, 4000, 0.01, 7200) < 1e-4
    assert breaker_alpha(0.3, 4000, 0.01, 7200) == 1.0
