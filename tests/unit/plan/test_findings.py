"""Every mistake in the keys and values of a plan has one finding: place, key, what was expected, found, and probably meant."""

from __future__ import annotations

import pytest

from rollout.plan.load import parse_plan
from tests.unit.plan.kit import GOOD, but, only, plus, refusal, refused


def test_a_finding_is_one_line_that_an_editor_can_follow() -> None:
    found = only(plus("ready_within: soon"))
    assert str(found) == "plan.yaml:15:15: ready_within: expected a duration such as 30s, 10m, 2h or 1h30m, found the text `soon`"


def test_the_error_counts_its_findings_and_says_what_next() -> None:
    error = refusal(plus("ladder: 5\nready_within: soon"))
    assert error.message == "plan.yaml is not a valid plan: 2 findings"
    assert error.why
    assert "rollout validate" in error.hint


def test_all_findings_come_at_once_and_in_the_order_of_lines() -> None:
    found = refused(
        but("RolloutPlan", "Rollout")
        .replace("unit: backend_image", "unit: backend_imag")
        .replace("- deployment: chat-spark-01", "- deployment: 7")
        .replace("{worker: staging}", "{}")
        + "drain: {quiet: 5}\nwindow: {duratoin: 1h}\n"
    )
    assert [f.line for f in found] == [2, 10, 13, 14, 15, 16]
    assert [f.key for f in found] == ["kind", "change.unit", "stable[0].deployment", "stage", "drain.quiet", "window.duratoin"]


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        (but("route: {name: chat}\n", ""), "route", 1),
        (but("  server: http://127.0.0.1:30080\n", ""), "gpustack.server", 4),
        (but("- deployment: chat-spark-01", "- {}"), "stable[0].deployment", 13),
        (but("{name: chat}", "{}"), "route.name", 8),
    ],
)
def test_a_missing_key_points_at_its_parent(text: str, key: str, line: int) -> None:
    found = only(text)
    assert (found.key, found.line, found.found) == (key, line, "nothing")
    assert found.hint, "says what the key is for"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (plus("evidence: {min_tiem: 5m}"), "did you mean `min_time`?"),
        (plus("evidence: {minTime: 5m}"), "did you mean `min_time`?"),
        (plus("evidence: {min-time: 5m}"), "did you mean `min_time`?"),
        (plus("approve_before: [stage]"), "it belongs under `gates`"),
        (plus("stage2: {}"), "did you mean `stage`?"),
        (plus("window: {ladder: auto}"), "it belongs at the top of the plan"),
        (plus("zzz: 1"), ""),
    ],
)
def test_an_unknown_key_is_told_what_was_meant(text: str, hint: str) -> None:
    found = only(text)
    assert found.found.startswith("the unknown key")
    assert found.hint == hint


def test_a_misspelt_required_key_is_one_finding_and_not_two() -> None:
    found = only(but("route: {name: chat}", "rout: {name: chat}"))
    assert (found.key, found.hint) == ("rout", "did you mean `route`?")


@pytest.mark.parametrize(
    ("text", "expected", "hint"),
    [
        (plus("evidence: {mode: Sparse}"), "`auto`, `rich`, `thin` or `sparse`", "did you mean `sparse`?"),
        (plus("drain: {on_timeout: procede}"), "`hold` or `proceed`", "did you mean `proceed`?"),
        (but("rollout/v1", "rollout/v2"), "`rollout/v1`", "did you mean `rollout/v1`?"),
        (plus("gates: {approve_before: [stge]}"), "`stage`, `attach`, `canary` or `shift`", "did you mean `stage`?"),
        (plus("window: {keep: park}"), "`auto`, `warm` or `parked`", "did you mean `parked`?"),
        (plus("cleanup: {files: remove}"), "`keep` or `delete`", ""),
    ],
)
def test_a_word_out_of_a_list_names_the_list_and_the_nearest(text: str, expected: str, hint: str) -> None:
    found = only(text)
    assert (found.expected, found.hint) == (expected, hint)


@pytest.mark.parametrize(
    ("value", "expected", "key"),
    [
        ("5", "a list of numbers or `auto`", "ladder"),
        ("autoo", "a list of numbers or `auto`", "ladder"),
        ("", "a list of numbers or `auto`", "ladder"),
        ("[5, x, 100]", "a number", "ladder[1]"),
        ("[5, 50%, 100]", "a number", "ladder[1]"),
        ("[0, 100]", "a number above 0", "ladder[0]"),
        ("[5, 150]", "a number at most 100", "ladder[1]"),
        ("[5, yes, 100]", "a clear value", "ladder[1]"),
    ],
)
def test_a_wrong_ladder_is_one_finding(value: str, expected: str, key: str) -> None:
    found = only(plus(f"ladder: {value}"))
    assert (found.expected, found.key) == (expected, key)


def test_a_percent_sign_is_told_to_go() -> None:
    assert only(plus("ladder: [5, 50%, 100]")).hint == "write the number alone"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (plus("evidence: {settle: 1s}"), "a duration of at least 2s"),
        (plus("evidence: {alpha: 0.7}"), "a number below 0.5"),
        (plus("guards: {memory_floor: -1}"), "a size of at least 0B"),
        (plus("canary: {sizing: {port: 70000}}"), "a number at most 65535"),
        (plus("stable2: []").replace("stable2: []", "").replace("  - deployment: chat-spark-01\n", "  []\n"), "at least one entry"),
        (but("{worker: staging}", "{skip: short}"), "text of at least 8 characters"),
        (but("{name: chat}", "{name: chat-}"), "a route's name"),
        (but("chat-spark-01", "-x"), "a name"),
        (but("{name: chat}", "[chat]"), "a mapping"),
        (but('{image_name: "sim/vllm:2"}', "5"), "a mapping"),
        (but("{name: chat}", ""), "a mapping"),
        (but("  - deployment: chat-spark-01", "  deployment: chat-spark-01"), "a list of mappings"),
    ],
)
def test_a_wrong_value_says_what_may_stand_there(text: str, expected: str) -> None:
    assert only(text).expected == expected


@pytest.mark.parametrize(
    "value",
    [
        "127.0.0.1:30080",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://a b",
        "http://host/v2",
        "http://host/v1/",
        "http://host/?x=1",
        "''",
    ],
)
def test_a_server_is_a_base_url(value: str) -> None:
    found = only(but("server: http://127.0.0.1:30080", f"server: {value}"))
    assert found.expected.startswith("a URL such as")
    assert found.key == "gpustack.server"


def test_a_server_keeps_its_path_and_loses_its_last_slash() -> None:
    plan = parse_plan(but("server: http://127.0.0.1:30080", "server: https://gpu.example/stack/"))
    assert plan.gpustack.server == "https://gpu.example/stack"


def test_the_plan_that_is_refused_here_is_otherwise_accepted() -> None:
    parse_plan(GOOD)
