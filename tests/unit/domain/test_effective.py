"""Shares as they are carried: every row that was measured on the real servers, and the rules behind them."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.domain.effective import Carrier, Seat, carried, within

PERCENT = [
    # weights A/B, instances A+B, what B may get in percent
    (99, 1, 1, 1, {1}),
    (98, 2, 1, 1, {2}),
    (95, 5, 1, 1, {5}),
    (90, 10, 1, 1, {10}),
    (50, 50, 1, 1, {50}),
    (1000, 1, 1, 1, {0}),
    (1_000_000, 1, 1, 1, {0}),
    (99, 1, 3, 7, {1}),
    (98, 2, 3, 7, {1}),
    (95, 5, 3, 7, {7}),
    (90, 10, 3, 7, {10}),
    (50, 50, 3, 7, {49}),
    (99, 1, 4, 4, {0}),
    (98, 2, 4, 4, {4, 0}),
    (95, 5, 4, 4, {4}),
    (90, 10, 4, 4, {8, 12}),
    (50, 50, 4, 4, {48, 52}),
    (99, 1, 8, 8, {0}),
    (98, 2, 8, 8, {4, 0}),
    (95, 5, 8, 8, {4}),
    (90, 10, 8, 8, {12, 8}),
    (50, 50, 8, 8, {52, 48}),
    (1_000_000, 1, 3, 7, {0}),
    (1_000_000, 1, 4, 4, {0}),
    (1_000_000, 1, 8, 8, {0}),
]


@pytest.mark.parametrize(("a", "b", "of_a", "of_b", "expected"), PERCENT)
def test_whole_percents_over_all_instances(a: int, b: int, of_a: int, of_b: int, expected: set[int]) -> None:
    got = carried([Seat(a, of_a), Seat(b, of_b)], 1, Carrier.PERCENT)
    assert {round(100 * share) for share in got} == expected


@pytest.mark.parametrize(("a", "b", "of_a", "of_b", "_percents"), PERCENT)
@pytest.mark.parametrize("carrier", [Carrier.PROXY, Carrier.RULE])
def test_exact_weights_do_not_ask_for_instances(a: int, b: int, of_a: int, of_b: int, _percents: set[int], carrier: Carrier) -> None:
    assert carried([Seat(a, of_a), Seat(b, of_b)], 1, carrier) == {b / (a + b)}


def test_a_fallback_target_gets_nothing_from_exact_rules_and_its_percents_from_the_old_ones() -> None:
    seats = [Seat(60), Seat(30, fallback=True), Seat(10)]
    assert carried(seats, 2, Carrier.RULE) == {10 / 70}
    assert carried(seats, 1, Carrier.RULE) == {0.0}
    assert carried(seats, 2, Carrier.PROXY) == carried(seats, 2, Carrier.PERCENT) == {0.1}


def test_who_has_no_instance_gets_nothing_and_the_others_share_it() -> None:
    for carrier in Carrier:
        assert carried([Seat(90, 0), Seat(10)], 0, carrier) == {0.0}
        assert carried([Seat(90, 0), Seat(10)], 1, carrier) == {1.0}


def test_all_zero_is_uniform_for_exact_carriers_and_nothing_for_percents() -> None:
    assert carried([Seat(0), Seat(0)], 1, Carrier.PROXY) == {0.5}
    assert carried([Seat(0), Seat(0)], 1, Carrier.PERCENT) == {0.0}


def dealt(seats: list[Seat], order: tuple[int, ...]) -> list[int]:
    """Percents of each seat when its rows come in `order`: largest remainder over instances, done the long way."""
    total = sum(s.weight for s in seats)
    rows = [(n, 100 * seats[n].weight, total * seats[n].instances) for n in order for _ in range(seats[n].instances)]
    percents = [top // bottom for _, top, bottom in rows]
    by_rest = sorted(range(len(rows)), key=lambda i: -((rows[i][1] % rows[i][2]) / rows[i][2]))
    for i in by_rest[: 100 - sum(percents)]:
        percents[i] += 1
    return [sum(p for p, row in zip(percents, rows, strict=True) if row[0] == n) for n in range(len(seats))]


@given(st.lists(st.builds(Seat, st.integers(1, 64), st.integers(1, 8)), min_size=2, max_size=4), st.data())
def test_every_row_order_lands_in_the_predicted_set(seats: list[Seat], data: st.DataObject) -> None:
    mine = data.draw(st.integers(0, len(seats) - 1))
    predicted = {round(100 * share) for share in carried(seats, mine, Carrier.PERCENT)}
    assert {dealt(seats, order)[mine] for order in permutations(range(len(seats)))} <= predicted


def test_near_enough_is_half_a_point_or_a_tenth_and_never_nothing_or_all() -> None:
    assert within(0.10, frozenset({0.10, 0.11, 0.09}))
    assert not within(0.10, frozenset({0.08, 0.12}))
    assert within(0.01, frozenset({0.015}))
    assert not within(0.01, frozenset({0.016}))
    assert not within(0.004, frozenset({0.0}))
    assert not within(0.999, frozenset({1.0}))
