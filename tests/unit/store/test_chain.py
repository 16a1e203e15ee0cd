"""The hash chain: what was written passes, and any single change is found and named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.errors import ExitCode, JournalBroken
from rollout.store.chain import Link, canonical, check, genesis, instant, plain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ENTRY = st.tuples(
    st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["created", "intent", "outcome", "fact"]),
    st.text(max_size=8),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=6), JSON, max_size=3),
)


def chained(entries: list[tuple[datetime, str, str, str, dict[str, object]]]) -> list[Link]:
    links: list[Link] = []
    for at, kind, actor, text, data in entries:
        prev = links[-1].hash if links else genesis("r-1")
        link = Link("r-1", len(links) + 1, instant(at), kind, plain(actor), plain(text), canonical(data), prev)
        links.append(replace(link, hash=link.digest()))
    return links


CHAIN = st.lists(ENTRY, min_size=2, max_size=6).map(chained)


def verdict(links: list[Link], head: Link) -> str:
    """The message, empty when the chain is sound."""
    try:
        check("r-1", links, head.seq, head.hash)
    except JournalBroken as error:
        return error.message
    return ""


@given(CHAIN)
def test_what_was_written_passes(links: list[Link]) -> None:
    assert check("r-1", links, links[-1].seq, links[-1].hash) == len(links)


@given(CHAIN, st.data())
def test_any_single_edit_is_found_and_its_row_is_named(links: list[Link], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(links) - 1))
    field = data.draw(st.sampled_from(["at", "kind", "actor", "text", "data", "prev_hash", "hash"]))
    old = getattr(links[index], field)
    new = data.draw(st.text(max_size=70).filter(lambda text: text != old))
    edited = [*links[:index], replace(links[index], **{field: new}), *links[index + 1 :]]
    assert f"broken at row {index + 1}." in verdict(edited, links[-1])


@given(CHAIN, st.data())
def test_a_removed_row_is_found_in_the_middle_and_at_the_tail(links: list[Link], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(links) - 1))
    assert f"broken at row {index + 1}." in verdict(links[:index] + links[index + 1 :], links[-1])


@given(CHAIN, st.data())
def test_two_rows_that_change_places_are_found(links: list[Link], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(links) - 2))
    second = data.draw(st.integers(first + 1, len(links) - 1))
    swapped = list(links)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert f"broken at row {first + 1}." in verdict(swapped, links[-1])


@given(CHAIN)
def test_a_row_behind_the_head_is_found(links: list[Link]) -> None:
    assert f"broken at row {len(links)}." in verdict(links, links[-2])


def test_rewriting_everything_after_an_edit_is_found_by_the_head() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    honest = chained([(at, "fact", "ann", word, {}) for word in ("one", "two", "three")])
    forged = chained([(at, "fact", "ann", word, {}) for word in ("one", "TWO", "three")])
    assert "broken at row 3" in verdict(forged, honest[-1])


def test_a_chain_of_another_rollout_does_not_pass() -> None:
    links = chained([(datetime(2026, 1, 1, tzinfo=UTC), "fact", "ann", "one", {})])
    with pytest.raises(JournalBroken, match="rollout r-2 is broken at row 1") as caught:
        check("r-2", links, 1, links[0].hash)
    assert caught.value.exit_code is ExitCode.HALTED
    assert caught.value.hint


@pytest.mark.parametrize("other", ['{"a": 1}', '{"a":1.0}', '{"a":1,"a":1}', "not json", "[" * 100_000, b'{"a":1}', None])
def test_data_in_another_spelling_is_found(other: object) -> None:
    links = chained([(datetime(2026, 1, 1, tzinfo=UTC), "fact", "ann", "one", {"a": 1})])
    assert "row 1" in verdict([replace(links[0], data=other)], links[0])  # type: ignore[arg-type]


def test_an_auditor_needs_nothing_but_the_standard_library() -> None:
    """The recipe in docs/decisions/0002, spelled out."""
    import hashlib

    link = chained([(datetime(2026, 1, 1, tzinfo=UTC), "fact", "ann", "ü", {"b": 1, "a": [None, 0.5]})])[0]
    row = ["r-1", 1, "2026-01-01T00:00:00.000000Z", "fact", "ann", "ü", {"a": [None, 0.5], "b": 1}, "0" * 64 + "r-1"]
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == link.hash


@given(JSON)
def test_canonical_json_is_read_back_and_spelled_the_same(value: object) -> None:
    text = canonical(value)
    assert text.isascii()
    assert canonical(json.loads(text)) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_unknown(number: float) -> None:
    assert canonical({"n": [number]}) == '{"n":[null]}'


def test_times_are_utc_of_one_width_and_sort_as_time_does() -> None:
    early = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    late = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert instant(early) == "2025-12-31T23:30:00.000000Z"
    assert instant(early) < instant(late)
    with pytest.raises(ValueError, match="no time zone"):
        instant(datetime(2026, 1, 1))  # noqa: DTZ001


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_plain_text_is_kept_by_any_database(text: str) -> None:
    kept = plain(text)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    assert plain(kept) == kept
