"""Counter hygiene: whatever restarts, vanishes or contradicts itself, no request is counted twice or made up."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from rollout.analysis.counters import CounterSample, InstanceCounters, window_delta
from rollout.analysis.samples import Histogram

INF = math.inf
BOUNDS = (0.1, 0.5, 2.5, INF)


def counters(requests: int, errors: int = 0, buckets: tuple[int, ...] | None = None, started: float | None = None) -> InstanceCounters:
    """`buckets`: not cumulative, one for each of BOUNDS."""
    cumulative = None if buckets is None else {le: sum(buckets[: i + 1]) for i, le in enumerate(BOUNDS)}
    return InstanceCounters(requests, errors, cumulative, None, started)


def test_the_delta_is_what_happened_in_between() -> None:
    window = window_delta({"a": counters(10, 1, (5, 3, 1, 1))}, {"a": counters(17, 2, (8, 4, 1, 4))})
    assert (window.requests, window.errors, window.status) == (7, 1, "OK")
    assert window.ttft == Histogram((0.1, 0.5, 2.5), (3, 1, 0, 3))


def test_instances_are_added_over_the_bounds_they_share() -> None:
    other = dict.fromkeys((0.1, 2.5, INF), 0)
    before: CounterSample = {"a": counters(0, 0, (0, 0, 0, 0)), "b": InstanceCounters(0, 0, other)}
    after: CounterSample = {"a": counters(4, 0, (1, 1, 1, 1)), "b": InstanceCounters(3, 0, {0.1: 1, 2.5: 2, INF: 3})}
    window = window_delta(before, after)
    assert window.requests == 7
    assert window.ttft == Histogram((0.1, 2.5), (2, 3, 2))


def test_four_ways_of_having_no_numbers_stay_apart() -> None:
    seen = {"a": counters(5, 0, (5, 0, 0, 0))}
    assert window_delta(seen, None).status == "METRIC_ERROR"
    assert window_delta(seen, {}).status == "NO_METRIC"
    assert window_delta(seen, seen).status == "NO_TRAFFIC"
    assert window_delta(seen, {"a": counters(9, 4, (5, 0, 0, 4))}).errors == 4


def test_a_counter_that_fell_is_a_restart_and_drops_the_whole_window() -> None:
    before: CounterSample = {"a": counters(50, 2, (50, 0, 0, 0)), "b": counters(10)}
    window = window_delta(before, {"a": counters(3, 0, (3, 0, 0, 0)), "b": counters(30)})
    assert (window.restarts, window.requests, window.ttft) == (1, 0, None)


def test_a_restart_that_overtook_its_old_counts_is_seen_by_its_start_time() -> None:
    window = window_delta({"a": counters(5, started=100.0)}, {"a": counters(90, started=400.0)})
    assert (window.restarts, window.requests) == (1, 0)
    assert window_delta({"a": counters(5, started=100.0)}, {"a": counters(9, started=100.4)}).requests == 4


def test_a_new_instance_waits_for_its_next_sample_and_a_vanished_one_is_left_out() -> None:
    window = window_delta({"a": counters(5), "gone": counters(70)}, {"a": counters(8), "new": counters(400)})
    assert (window.requests, window.restarts) == (3, 0)


def test_buckets_that_contradict_each_other_are_an_error_and_not_evidence() -> None:
    torn = {0.1: 9, 0.5: 3, 2.5: 9, INF: 9}
    assert window_delta({"a": counters(0, 0, (0, 0, 0, 0))}, {"a": InstanceCounters(9, 0, torn)}).status == "METRIC_ERROR"


def test_a_histogram_without_its_total_is_not_exposed() -> None:
    window = window_delta({"a": InstanceCounters(0, 0, {0.1: 0})}, {"a": InstanceCounters(2, 0, {0.1: 2})})
    assert (window.ttft, window.status) == (None, "OK")


def test_failures_counted_ahead_of_their_requests_do_not_break_the_window() -> None:
    assert window_delta({"a": counters(5, 0)}, {"a": counters(5, 1)}).requests == 1


steps = st.lists(st.tuples(*[st.integers(0, 5)] * 4), min_size=1, max_size=10)


@given(steps, st.data())
def test_any_way_of_cutting_time_into_windows_counts_each_request_once(parts: list[tuple[int, ...]], data: st.DataObject) -> None:
    totals = [tuple(sum(p[b] for p in parts[:i]) for b in range(4)) for i in range(len(parts) + 1)]
    samples: list[CounterSample] = [{"a": counters(sum(t), t[3], t)} for t in totals]
    looks = sorted({0, len(parts), *data.draw(st.lists(st.integers(0, len(parts))))})
    windows = [window_delta(samples[i], samples[j]) for i, j in itertools.pairwise(looks)]
    assert sum(w.requests for w in windows) == sum(totals[-1])
    assert sum(w.errors for w in windows) == totals[-1][3]
    assert tuple(sum(w.ttft.counts[b] for w in windows if w.ttft) for b in range(4)) == totals[-1]


instances = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 20), st.tuples(*[st.integers(0, 5)] * 4)), max_size=3)


@given(st.lists(instances, min_size=2, max_size=6))
def test_arbitrary_samples_never_give_negative_or_inflated_windows(raw: list[dict[str, tuple[int, tuple[int, ...]]]]) -> None:
    samples: list[CounterSample] = [{key: counters(n, min(n, 2), b) for key, (n, b) in sample.items()} for sample in raw]
    for before, after in itertools.pairwise(samples):
        window = window_delta(before, after)
        assert 0 <= window.errors <= window.requests <= sum(c.requests for c in after.values())
        assert window.ttft is None or min(window.ttft.counts) >= 0
        if window.restarts:
            assert (window.requests, window.ttft) == (0, None)
