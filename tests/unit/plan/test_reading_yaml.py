"""Which texts are read as a plan at all, and what is said about the others. Holds for the C parser and for the Python one."""

from __future__ import annotations

import time

import pytest
import yaml

from rollout.plan.load import parse_plan
from rollout.plan.source import MAX_DEPTH, MAX_FINDINGS, MAX_NODES
from tests.unit.plan.kit import GOOD, but, only, plus, refused


@pytest.fixture(params=["c", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers must give the same findings; a system without libyaml has only the second."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def test_a_good_plan_is_read() -> None:
    plan = parse_plan(GOOD)
    assert plan.metadata.name == "chat-new-image"
    assert plan.ladder == "auto"
    assert (plan.window.duration, plan.window.warm) == (None, 3600)


def test_windows_line_ends_are_read_and_counted_right() -> None:
    text = plus("ladder: [10, 50]").replace("\n", "\r\n")
    assert parse_plan(GOOD.replace("\n", "\r\n")) == parse_plan(GOOD)
    assert (only(text).line, only(text).column) == (15, 9)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n", "---\n", "null\n"])
def test_an_empty_file_is_told_where_to_begin(text: str) -> None:
    found = only(text)
    assert found.found == "an empty file"
    assert "plans/minimal.yaml" in found.hint


@pytest.mark.parametrize(("text", "found"), [("- a\n- b\n", "a list"), ("hello\n", "a single value"), ("12\n", "a single value")])
def test_the_top_must_be_a_mapping(text: str, found: str) -> None:
    assert only(text).found == found
    assert "apiVersion" in only(text).expected


def test_several_documents_are_refused_at_the_second() -> None:
    found = only(GOOD + "---\n" + GOOD)
    assert (found.line, found.expected) == (15, "one plan in a file")


def test_a_duplicate_key_names_both_lines() -> None:
    found = only(plus("route: {name: other}"))
    assert (found.line, found.column, found.key) == (15, 1, "route")
    assert found.hint == "first on line 8"


def test_duplicates_in_depth_are_found_too() -> None:
    found = only(but("  server: http://127.0.0.1:30080\n", "  server: http://127.0.0.1:30080\n  server: http://127.0.0.1:30081\n"))
    assert (found.line, found.key, found.hint) == (6, "gpustack.server", "first on line 5")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("{worker: staging}", "&s {worker: staging}", "an anchor (`&name`)"),
        ("{worker: staging}", "{worker: *s}", "an alias (`*name`)"),
        ("chat-spark-01", "!!str chat-spark-01", "a tag (`tag:yaml.org,2002:str`)"),
        ("chat-spark-01", "!!python/object/apply:os.system [id]", "a tag (`tag:yaml.org,2002:python/object/apply:os.system`)"),
        ("chat-spark-01", "! chat-spark-01", "a tag (`!`)"),
        ("{worker: staging}", "{<<: {worker: staging}}", "a merge (`<<`)"),
    ],
)
def test_anchors_aliases_tags_and_merges_are_not_read(old: str, new: str, what: str) -> None:
    found = refused(but(old, new))
    assert what in [f.found for f in found]


def test_a_billion_laughs_cost_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    started = time.process_time()
    found = refused("\n".join(lines))
    assert time.process_time() - started < 1
    assert "an anchor (`&name`)" in [f.found for f in found]


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "- " * 5000, "a: " + "{b: " * 5000])
def test_nesting_is_bounded(text: str) -> None:
    found = refused(text)
    assert len(found) == 1
    assert found[0].expected == f"at most {MAX_DEPTH} levels"


def test_the_number_of_values_is_bounded() -> None:
    found = refused("a: [" + "1," * (MAX_NODES + 10) + "]")
    assert found[-1].expected == f"at most {MAX_NODES} values"


def test_the_number_of_findings_is_bounded() -> None:
    found = refused(plus("ladder: [" + "yes, " * 5000 + "]"))
    assert len(found) <= MAX_FINDINGS


def test_keys_are_text() -> None:
    found = only(plus("canary: {sizing: {worker_selector: {1: a}}}"))
    assert (found.key, found.expected) == ("canary.sizing.worker_selector.1", "a text as key")
    assert found.hint == 'write "1"'
    assert only(plus("? [a, b]\n: c")).expected == "a key of plain text"


@pytest.mark.parametrize("line", ["\troute2: 1", "  \troute2: 1"])
def test_a_tab_as_indentation_is_named(line: str) -> None:
    found = refused(f"apiVersion: rollout/v1\ngpustack:\n{line}\n")
    assert ("a tab", "spaces as indentation", 3) in [(f.found, f.expected, f.line) for f in found]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: b: c", 1, "one `key: value` on a line"),
        ("a: [1, 2\nb: c", 2, "`,` or `]`"),
        ("a: {b: 1\nc: 2", 2, "`,` or `}`"),
        ("a: 'x\nb: 1\n", 3, "a closing quote"),
        ("a: @x", 1, "a value"),
        ("a:\n  b: 1\n c: 2\n", 3, "a key or `- ` in line with those before"),
    ],
)
def test_what_is_not_yaml_is_explained_in_words(text: str, line: int, words: str) -> None:
    found = only(text)
    assert (found.line, found.expected) == (line, words)


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x85", "\u2028", "\u202e", "\u2066", "\ufeff", "\ud800"])
def test_characters_that_nobody_sees_are_refused_with_their_place(character: str) -> None:
    found = only(but("chat-spark-01", f"chat{character}-spark-01"))
    assert (found.line, found.column) == (13, 21)
    assert f"U+{ord(character):04X}" in found.found


def test_other_scripts_and_emoji_are_read() -> None:
    plan = parse_plan(plus("evidence: {probes: {prompts: [Zażółć gęślą jaźń, 你好, 🙂, שלום]}}"))
    assert plan.evidence.probes.prompts == ("Zażółć gęślą jaźń", "你好", "🙂", "שלום")


def test_places_behind_wide_characters_are_right() -> None:
    found = only(
        plus('ladder: auto # żółć\nready_within: "🙂🙂"  # x\ndrain: {quiet: "ż", deadline: 2x}')
        .replace('"ż"', "3s")
        .replace('"🙂🙂"', "3s")
    )
    assert (found.line, found.column, found.key) == (17, 30, "drain.deadline")


def test_a_plan_over_the_limit_is_refused_at_once() -> None:
    text = GOOD + "#" * (10 << 20)
    started = time.process_time()
    found = only(text)
    assert time.process_time() - started < 0.5
    assert found.expected == "a plan of at most 1 MiB"
