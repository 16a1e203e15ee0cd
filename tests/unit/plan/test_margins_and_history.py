"""Margins of single metrics, and what the lines of a history must be: each mistake has its place and its remedy."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from rollout.analysis import Mode, Status, config_for, recorded
from rollout.analysis.config import LATENCIES
from rollout.analysis.design import BALANCED
from rollout.analysis.fit import LEAST_WINDOWS
from rollout.analysis.recorded import window_from_json
from rollout.plan import checks, history
from rollout.plan.history import LEAST, MOST, problems
from rollout.plan.load import parse_plan
from rollout.plan.model import Plan
from tests.unit.plan.kit import GOOD, only, plus

Row = dict[str, Any]
HEADER: Row = {"rollout_windows": 1}


def arm(**fields: Any) -> Row:
    return {"requests": 4, "errors": 1, "ttft": {"edges": [0.1, 0.2], "counts": [1, 2, 1]}, "memory_used": 1 << 30, **fields}


def window(**fields: Any) -> Row:
    return {"id": 1000, "rung": 0, "seconds": 30.0, "stable": arm(), "canary": arm(), "load_ratio": 1.0, **fields}


MANY = [window(id=number, stable=arm(requests=4 + number)) for number in range(1, LEAST + 1)]


@pytest.mark.parametrize(
    ("margins", "key", "expected"),
    [
        ("ttft: {tolerated: 0.3, unacceptable: 0.2}", "ttft.tolerated", "less than `unacceptable` (0.2)"),
        ("probes: {tolerated: 0.2}", "probes.tolerated", "an `unacceptable` above it"),
        ("tpot: {unacceptable: 0.1}", "tpot.unacceptable", "a `tolerated` below it"),
        ("quality: {tolerated: 0.05}", "quality.tolerated", "an `unacceptable` above it"),
        ("errors: {tolerated: 0.5}", "errors.tolerated", "a number at least 1"),
        ("errors: {unacceptable: 1}", "errors.unacceptable", "a number below 1"),
        ("memory: {unacceptable: 1GiB}", "memory.unacceptable", "`tolerated`"),
        ("memory: {tolerated: lots}", "memory.tolerated", "a size such as 8GiB or 500MB"),
        ("itl: {tolerated: 0.1}", "itl", "`ttft`, `e2e`, `tpot`, `errors`, `quality`, `memory` or `probes`"),
    ],
)
def test_margins_that_contradict_each_other_or_a_default_are_named(margins: str, key: str, expected: str) -> None:
    found = only(plus(f"evidence: {{margins: {{{margins}}}}}"))
    assert (found.key, found.expected) == (f"evidence.margins.{key}", expected)


def test_margins_of_single_metrics_are_read() -> None:
    said = "{ttft: {tolerated: 0.3, unacceptable: 0.6}, errors: {unacceptable: 0.02}, memory: {tolerated: 256MiB}}"
    margins = parse_plan(plus(f"evidence: {{margins: {said}}}")).evidence.margins
    assert (margins.ttft.tolerated, margins.ttft.unacceptable) == (0.3, 0.6)
    assert (margins.errors.unacceptable, margins.memory.tolerated, margins.e2e.tolerated) == (0.02, 256 << 20, None)


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ([], ()),
        ([window()], (0, "rollout_windows")),
        ([{"rollout_windows": 2}, window()], (0, "rollout_windows")),
        ([HEADER], (0,)),
        ([HEADER, *MANY[:-1], MANY[-2]], (LEAST, "id")),
        ([HEADER, *reversed(MANY)], (2, "id")),
        ([HEADER, *({**MANY[0], "id": n} for n in range(LEAST))], (1,)),
        ([HEADER, *MANY[1:]], (0,)),
        ([HEADER, *MANY[1:], window(load_ratio=0.1)], (0,)),
        ([HEADER, *MANY[1:], window(weight_changed=True)], (0,)),
        ([HEADER, window(load_ratio="1")], (1, "load_ratio")),
        ([HEADER, window(), {**window(), "id": -1}], (2, "id")),
        ([HEADER, window(seconds="30")], (1, "seconds")),
        ([HEADER, window(stable=None)], (1, "stable")),
        ([HEADER, window(canary=arm(errors=5))], (1, "canary", "errors")),
        ([HEADER, window(canary=arm(ttft={"edges": [0.2, 0.1], "counts": [1, 2, 1]}))], (1, "canary", "ttft")),
        ([HEADER, window(stable=arm(e2e={"edges": [0.1], "counts": [1]}))], (1, "stable", "e2e")),
        ([HEADER, window(stable=arm(memory_used=-1))], (1, "stable", "memory_used")),
        ([HEADER, window(stable=arm(status="FINE"))], (1, "stable", "status")),
        ([HEADER, *[window()] * (MOST + 1)], (MOST + 1,)),
    ],
)
def test_what_is_wrong_with_a_history_is_named_by_line_and_key(rows: list[Row], path: tuple[Any, ...]) -> None:
    assert [p.path for p in problems(rows)] == [path]


def test_whatever_passes_can_be_read_as_windows() -> None:
    rows = [HEADER, *MANY, window(stable=arm(requests=0, errors=0, ttft=None, status="NO_TRAFFIC", memory_used=None))]
    assert list(problems(rows)) == []
    assert [window_from_json(row).id for row in rows[1:]] == [*range(1, LEAST + 1), 1000]


def test_a_plan_keeps_of_a_history_what_is_fitted_on_and_is_stored_and_read_again() -> None:
    said = parse_plan(GOOD).model_dump(mode="json", by_alias=True)
    plan = Plan.model_validate({**said, "evidence": {"history": [HEADER, *MANY, window(share_counts=[1, 2], pairs=[])]}})
    assert plan.evidence.history is not None
    assert set(plan.evidence.history[-1]) == {"id", "rung", "seconds", "stable", "canary", "load_ratio"}
    assert Plan.model_validate(plan.model_dump(mode="json", by_alias=True)) == plan
    with pytest.raises(ValidationError, match="a header as the first line"):
        Plan.model_validate({**said, "evidence": {"history": [window()]}})


def test_what_stands_there_is_the_name_of_a_file() -> None:
    assert only(plus("evidence: {history: 5}")).expected == "the name of a file beside the plan"


def test_a_history_with_windows_of_another_length_is_refused() -> None:
    said = parse_plan(GOOD).model_dump(mode="json", by_alias=True)
    with pytest.raises(ValidationError, match="windows about as long as `window` \\(60s\\), found windows of 30 s"):
        Plan.model_validate({**said, "evidence": {"history": [HEADER, *MANY], "window": "60s"}})


def test_the_plan_and_the_judge_mean_the_same_by_a_history_and_by_a_default() -> None:
    """A plan imports no judge, so what both must know stands twice: here it is held together."""
    assert (history.FORMAT, history.LATENCIES, history.LEAST, history.EQUAL) == (recorded.FORMAT, LATENCIES, LEAST_WINDOWS, BALANCED)
    assert set(history.STATUSES) == set(get_args(Status))
    modes = [config_for(mode, rungs=1) for mode in get_args(Mode)]
    assert max(mode.tolerated("ttft") for mode in modes) == checks.TOLERATED
    assert min(mode.unacceptable("ttft") for mode in modes) == checks.UNACCEPTABLE
    assert min(mode.unacceptable("quality") for mode in modes) == checks.LOSS
