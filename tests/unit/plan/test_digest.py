"""The digest is about what a plan says, not about how it is written."""

from __future__ import annotations

import pytest

from rollout.plan.load import parse_plan, plan_digest
from rollout.plan.model import Plan
from tests.unit.plan.kit import GOOD, but, plus

FULL = plus(
    "ladder: [5, 50, 100]\nevidence: {min_time: 90s, settle: 2500ms}\nguards: {memory_floor: 6GiB}\ngates: {approve_before: [shift]}"
)


def test_it_is_sha256_in_hex() -> None:
    digest = plan_digest(parse_plan(GOOD))
    assert len(digest) == 64
    assert set(digest) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "same",
    [
        GOOD + "# a remark\n",
        "\n".join(reversed(GOOD.splitlines()[:3])) + "\n" + "\n".join(GOOD.splitlines()[3:]),
        plus("ladder: auto\nwindow: {warm: 60m}\nevidence: {min_time: 600s}"),
        GOOD.replace("\n", "\r\n"),
        but("{name: chat}", '{"name": "chat"}'),
        but("http://127.0.0.1:30080", "http://127.0.0.1:30080/"),
    ],
)
def test_the_same_plan_written_otherwise_has_the_same_digest(same: str) -> None:
    assert plan_digest(parse_plan(same)) == plan_digest(parse_plan(GOOD))


@pytest.mark.parametrize(
    "other", [plus("ladder: [5, 100]"), but("sim/vllm:2", "sim/vllm:3"), but("{name: chat}", "{name: chat2}"), plus("drain: {quiet: 31s}")]
)
def test_another_plan_has_another_digest(other: str) -> None:
    assert plan_digest(parse_plan(other)) != plan_digest(parse_plan(GOOD))


@pytest.mark.parametrize("text", [GOOD, FULL])
def test_a_stored_plan_reads_back_equal_and_keeps_its_digest(text: str) -> None:
    plan = parse_plan(text)
    again = Plan.model_validate(plan.model_dump(mode="json", by_alias=True))
    assert again == plan
    assert plan_digest(again) == plan_digest(plan)
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)) == plan
