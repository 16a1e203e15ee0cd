"""Pages as text: what is read, what is refused, and that no number is made up."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.sources.prometheus_text import INF, PageError, Series, histogram, parse, total

NAMES = frozenset({"vllm:num_requests_running", "vllm:request_success_total", "e2e_bucket"})
LABEL_TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r"), max_size=20)
LABELS = st.dictionaries(st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True), LABEL_TEXT, max_size=4)


def line(series: Series) -> str:
    escaped = {k: v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for k, v in series.labels.items()}
    inside = ",".join(f'{k}="{v}"' for k, v in escaped.items())
    return f"{series.name}{{{inside}}} {series.value!r}" if inside else f"{series.name} {series.value!r}"


@given(st.lists(st.builds(Series, st.sampled_from(sorted(NAMES)), LABELS, st.floats(allow_nan=False)), max_size=6))
def test_what_is_written_is_read_back(series):
    page = '# HELP x some {text}\n# TYPE x counter\nother_metric{a="b"} 3\n' + "\n".join(map(line, series)) + "\n"
    assert parse(page, NAMES) == series


@given(st.text(st.sampled_from('vllm:num_requests_running{}="\\, \n#e2bcka+-.0123NaInf'), max_size=200))
def test_any_text_gives_series_or_a_page_error(page):
    """Whatever a broken exporter prints, no other exception comes out."""
    with contextlib.suppress(PageError):
        assert all(one.name in NAMES for one in parse("vllm:num_requests_running" + page, NAMES))


def test_lines_that_nobody_asked_for_are_not_even_parsed():
    assert parse("<html>\nbroken{{{\nvllm:num_requests_running 2\nvllm:num_requests_running_max zzz\n", NAMES) == [
        Series("vllm:num_requests_running", {}, 2.0)
    ]


def test_a_cut_line_is_an_error_and_not_a_smaller_number():
    with pytest.raises(PageError):
        parse('vllm:num_requests_running{engine="0"} 12\nvllm:num_requests_running{engi', NAMES)


def test_timestamps_and_tabs_are_understood():
    assert [s.value for s in parse('vllm:num_requests_running\t5\ne2e_bucket{le="1"} 7 1700000000000\n', NAMES)] == [5.0, 7.0]


def series(*pairs, **labels):
    return [Series("x", {**labels, **extra}, value) for extra, value in pairs]


def test_two_engines_are_summed_and_a_repeated_line_counts_once():
    assert total(series(({"engine": "0"}, 3), ({"engine": "1"}, 4))) == 7
    assert total(series(({"engine": "0"}, 3), ({"engine": "0"}, 3))) == 3


@pytest.mark.parametrize("bad", [math.nan, INF, -1.0])
def test_a_value_that_is_no_count_makes_the_sum_unknown(bad):
    assert total(series(({"engine": "0"}, 3), ({"engine": "1"}, bad))) is None


def test_a_line_given_twice_with_different_values_is_unknown():
    assert total(series(({}, 3), ({}, 4))) is None


def test_nothing_is_unknown_and_not_zero():
    assert total([]) is None
    assert histogram([], series(({}, 5))) is None


def bucket(le, value, **labels):
    return Series("h_bucket", {"le": le, **labels}, value)


def test_buckets_of_two_engines_are_summed_by_edge():
    buckets = [bucket(le, n, engine=e) for e in "01" for le, n in (("0.5", 1), ("1", 2), ("+Inf", 4))]
    assert histogram(buckets, []) == {0.5: 2, 1.0: 4, INF: 8}


def test_a_missing_inf_bucket_is_taken_from_the_count():
    assert histogram([bucket("0.5", 1), bucket("1", 2)], [Series("h_count", {}, 5)]) == {0.5: 1, 1.0: 2, INF: 5}
    assert histogram([bucket("0.5", 1), bucket("1", 2)], []) is None


@pytest.mark.parametrize(
    "buckets",
    [
        [bucket("0.5", 5), bucket("1", 2), bucket("+Inf", 6)],
        [bucket("0.5", 1), bucket("1", math.nan), bucket("+Inf", 6)],
        [bucket("0.5", 1), bucket("one", 2), bucket("+Inf", 6)],
        [bucket("nan", 1), bucket("+Inf", 6)],
        [bucket("0.5", 1, engine="0"), bucket("+Inf", 6, engine="0"), bucket("1", 1, engine="1"), bucket("+Inf", 2, engine="1")],
    ],
    ids=["falling", "nan-count", "edge-text", "edge-nan", "different-edges"],
)
def test_a_torn_histogram_is_unknown_as_a_whole(buckets):
    assert histogram(buckets, []) is None


@given(st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_summed_histogram_stays_cumulative(engines):
    buckets = [
        bucket(le, float(sum(counts[: i + 1])), engine=str(e))
        for e, counts in enumerate(engines)
        for i, le in enumerate(("0.1", "1", "+Inf"))
    ]
    result = histogram(buckets, [])
    assert list(result.values()) == sorted(result.values())
    assert result[INF] == sum(map(sum, engines))
