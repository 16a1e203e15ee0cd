"""Durations and sizes: what people write, what it means, and what a slip is told."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.plan.finding import Problem
from rollout.plan.units import LONGEST, format_bytes, format_duration, parse_bytes, parse_duration


def problem(call: object, value: object) -> Problem:
    """What the reader says about a value it refuses."""
    with pytest.raises(ValueError, match="expected") as caught:
        call(value)  # type: ignore[operator]
    found = caught.value.context["problems"][0]  # type: ignore[attr-defined]
    assert isinstance(found, Problem)
    return found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2.5m", 150),
        ("500ms", 0.5),
        ("1s500ms", 1.5),
        ("7d", 604800),
        ("0", 0),
        (0, 0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (30, "say the unit: 30s or 30m"),
        (-5, ""),
        ("30", "say the unit: s, m, h or d"),
        ("10min", "write 10m"),
        ("10 minutes", "write 10m"),
        ("1 hour", "write 1h"),
        ("90S", "write 90s"),
        ("2 w", "units are ms, s, m, h and d"),
        ("soon", ""),
        ("", ""),
        ("-5s", ""),
        ("30m1h", ""),
        ("1m1m", ""),
        (True, ""),
        (None, ""),
        ([], ""),
        ("٣s", ""),
    ],
)
def test_what_is_no_duration_is_told_what_is(value: object, hint: str) -> None:
    found = problem(parse_duration, value)
    assert found.expected == "a duration such as 30s, 10m, 2h or 1h30m"
    assert found.hint == hint


@pytest.mark.parametrize("value", ["400d", "9" * 9 + "d"])
def test_a_duration_over_a_year_is_a_slip(value: str) -> None:
    assert problem(parse_duration, value).expected == "a duration of at most 366d"


@settings(deadline=None)
@given(st.integers(0, int(LONGEST) * 1000))
def test_a_written_duration_reads_back_the_same(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, abs_tol=1e-9)


@settings(deadline=None)
@given(st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans())
def test_no_value_breaks_the_readers(value: object) -> None:
    for reader, most in ((parse_duration, LONGEST), (parse_bytes, math.inf)):
        try:
            read = reader(value)
        except ValueError:
            continue
        assert read <= most


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("500MB", 500_000_000), ("1.5 KiB", 1536), ("7B", 7), ("0", 0), (0, 0), (8 << 30, 8 << 30), ("2kB", 2000)],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("8G", "write 8GiB"),
        ("8Gi", "write 8GiB"),
        ("8gb", "write 8GiB"),
        ("8 mib", "write 8MiB"),
        ("8XB", "units are KiB, MiB, GiB, TiB, kB, MB, GB and TB"),
        ("much", ""),
        ("9" * 400 + "GiB", ""),
        (8.5, ""),
        (True, ""),
    ],
)
def test_what_is_no_size_is_told_what_is(value: object, hint: str) -> None:
    found = problem(parse_bytes, value)
    assert found.expected == "a size such as 8GiB or 500MB"
    assert found.hint == hint


@settings(deadline=None)
@given(st.integers(0, 1 << 49))
def test_a_written_size_reads_back_the_same(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size
