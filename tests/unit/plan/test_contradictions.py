"""Keys that are right each and wrong together; and each part tells all its contradictions at once."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rollout.plan.load import parse_plan
from rollout.plan.model import Plan
from tests.unit.plan.kit import GOOD, but, only, plus, refused


@pytest.mark.parametrize(
    ("ladder", "key", "expected"),
    [
        ("[50, 25, 100]", "ladder[1]", "a rung above 50"),
        ("[5, 5, 100]", "ladder[1]", "a rung above 5"),
        ("[5, 50]", "ladder", "a ladder that ends at 100"),
        ("[]", "ladder", "a ladder that ends at 100"),
        ("[100]", "ladder", "at least one rung below 100"),
    ],
)
def test_a_ladder_rises_from_below_100_to_100(ladder: str, key: str, expected: str) -> None:
    found = only(plus(f"ladder: {ladder}"))
    assert found.key == key
    assert found.expected.startswith(expected)


def test_every_step_down_a_ladder_is_named() -> None:
    assert [f.key for f in refused(plus("ladder: [50, 25, 10, 100]"))] == ["ladder[1]", "ladder[2]"]


def test_a_deployment_stands_once_in_stable() -> None:
    found = only(but("  - deployment: chat-spark-01\n", "  - deployment: a\n  - deployment: b\n  - deployment: a\n"))
    assert (found.line, found.key, found.hint) == (15, "stable[2].deployment", "first in stable[0]")


@pytest.mark.parametrize(
    ("evidence", "key", "hint"),
    [
        ("{min_time: 1h, deadline: 30m}", "evidence.min_time", "no rung could end before the verdict is due"),
        ("{deadline: 5m}", "evidence.deadline", "no rung could end before the verdict is due"),
        ("{window: 20m}", "evidence.window", "a rung would end inside its first window"),
        ("{min_time: 5s}", "evidence.min_time", "a rung would end inside its first window"),
        (
            "{min_time_before_full: 3h, deadline: 2h}",
            "evidence.min_time_before_full",
            "the last rung could not end before the verdict is due",
        ),
    ],
)
def test_times_of_the_evidence_fit_into_each_other(evidence: str, key: str, hint: str) -> None:
    found = only(plus(f"evidence: {evidence}"))
    assert (found.key, found.hint) == (key, hint)


def test_a_default_that_is_in_the_way_is_called_one() -> None:
    found = only(plus("evidence: {deadline: 5m}"))
    assert (found.expected, found.found) == ("at least `min_time` (10m by default)", "5m")


def test_several_contradictions_of_one_part_come_together() -> None:
    assert [f.key for f in refused(plus("evidence: {window: 2h, min_time: 1h, deadline: 30m}"))] == ["evidence.window", "evidence.min_time"]
    assert [f.key for f in refused(plus("drain: {quiet: 2h, on_timeout: proceed}"))] == ["drain.quiet", "drain.on_timeout"]


def test_cutting_streams_needs_a_reason() -> None:
    assert only(plus("drain: {on_timeout: proceed}")).expected == "a `reason` beside `on_timeout: proceed`"
    parse_plan(plus("drain: {on_timeout: proceed, reason: batch clients retry by themselves}"))


def test_a_load_test_has_a_worker_or_a_reason_to_be_skipped() -> None:
    assert only(but("stage: {worker: staging}", "stage: {output_tokens: 8}")).found == "neither"
    parse_plan(but("{worker: staging}", "{skip: the same image was staged on Monday}"))


def test_a_batch_of_probes_is_no_larger_than_all_of_them() -> None:
    assert only(plus("evidence: {probes: {pairs: 20, batch: 50}}")).expected == "at most `pairs` (20)"


def test_the_memory_fraction_stands_in_one_place() -> None:
    text = but("backend_image", "parameters").replace('{image_name: "sim/vllm:2"}', "{backend_parameters: [--gpu-memory-utilization=0.3]}")
    parse_plan(text)
    found = only(text + "canary: {sizing: {gpu_memory_utilization: 0.4}}\n")
    assert found.key == "change.to.backend_parameters[0]"
    assert "canary.sizing.gpu_memory_utilization" in found.hint


def test_each_target_may_size_its_own_canary() -> None:
    plan = parse_plan(
        but("  - deployment: chat-spark-01\n", "  - deployment: a\n  - {deployment: b, canary: {sizing: {worker: spark-02}}}\n")
        + "canary: {sizing: {worker: spark-01}}\n"
    )
    assert [plan.canary_of(i).sizing.worker for i in (0, 1)] == ["spark-01", "spark-02"]


def test_a_plan_made_in_code_is_held_to_the_same_rules() -> None:
    said = parse_plan(GOOD).model_dump(mode="json", by_alias=True) | {"ladder": [100]}
    with pytest.raises(ValidationError, match="at least one rung below 100") as caught:
        Plan.model_validate(said)
    assert "input_value" not in str(caught.value), "values of a plan do not appear in tracebacks"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("window: {keep: parked, duration: 30m}", "window.duration", "stable would never be parked"),
        ("window: {keep: parked, warm: 3h, duration: 2h}", "window.warm", "stable would never be parked"),
        ("window: {duration: 30m}\ncleanup: {files: delete}", "window.duration", "files are never deleted right after a deploy"),
    ],
)
def test_a_window_fits_what_is_to_happen_in_it(text: str, key: str, hint: str) -> None:
    found = only(plus(text))
    assert (found.key, found.hint) == (key, hint)


def test_a_loss_is_accepted_for_the_one_write_that_may_lose() -> None:
    found = only(but("route: {name: chat}", "route: {name: chat, accept_loss: true}"))
    assert (found.key, found.expected) == ("route.accept_loss", "`convert_to_weighted: true` beside it")
    parse_plan(but("route: {name: chat}", "route: {name: chat, convert_to_weighted: true, accept_loss: true}"))
    assert only(but("route: {name: chat}", "route: {name: chat, convert_to_weighted: yes please}")).key == "route.convert_to_weighted"
