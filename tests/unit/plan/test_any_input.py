"""Whatever is in the file, the answer is a plan or findings with a place in the file: never another error, never slow."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.errors import PlanError
from rollout.plan.finding import Finding
from rollout.plan.load import parse_plan
from tests.unit.plan.kit import GOOD, plus

MIB = 1 << 20
LINES = GOOD.splitlines()
SIGNS = st.text(alphabet=" \n\t:-[]{}'\"#&*!|>%@`,?ab1.~<=\r", max_size=60)


def check(text: str) -> None:
    """A plan, or findings that point into the text."""
    findings: tuple[object, ...] = ()
    try:
        parse_plan(text, "p")
    except PlanError as error:
        findings = error.findings or (None,)
    lines = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for found in findings:
        assert isinstance(found, Finding)
        assert 1 <= found.line <= lines
        assert found.column >= 1
        assert found.expected
        assert "\n" not in str(found)


@settings(deadline=None)
@given(st.text(max_size=200) | SIGNS)
def test_any_text(text: str) -> None:
    check(text)


@settings(deadline=None)
@given(st.integers(0, len(LINES) - 1), SIGNS)
def test_a_plan_with_one_line_broken(line: int, text: str) -> None:
    check("\n".join([*LINES[:line], text, *LINES[line + 1 :]]))
    check("\n".join([*LINES[:line], LINES[line] + text, *LINES[line + 1 :]]))


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=5), c, max_size=3))
KEYS = [line.split(":")[0].strip(" -") for line in LINES] + ["ladder", "evidence", "guards", "gates", "canary"]


@settings(deadline=None)
@given(st.sampled_from(KEYS), JSON)
def test_a_plan_with_any_value_under_a_key(key: str, value: object) -> None:
    kept = [line for line in LINES if not line.startswith(key)]
    check("\n".join([*kept, f"{json.dumps(key)}: {json.dumps(value)}"]))


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * (MIB - 10),
        "? " * (MIB // 2),
        "a" * (MIB - 3) + ": b",
        "a: [" + "1," * (MIB // 2 - 10) + "]",
        "\n".join(f"k{i}: 1" for i in range(70_000)),
        plus("ladder: [" + "x," * 9000 + "]"),
        plus("ladder: [" + "5," * 9000 + "]"),
        GOOD.replace("  - deployment: chat-spark-01\n", "  - {deployment: a, x: 1}\n" * 3000),
        GOOD.replace("{image_name", "{env: {" + "".join(f"k{i}: 1, " for i in range(9000)) + "}, image_name"),
        'a: "' + "\\n" * (MIB // 2 - 10) + '"',
        "#" * (MIB - 2),
        "é" * (MIB // 2 - 2) + ": @",
    ],
    ids=range(12),
)
def test_a_hostile_file_of_1_mib_is_answered_within_two_seconds(text: str) -> None:
    started = time.process_time()
    check(text)
    assert time.process_time() - started < 2
