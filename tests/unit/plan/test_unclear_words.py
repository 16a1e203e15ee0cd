"""Words that YAML 1.1 and 1.2 read differently never mean something in silence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.plan.load import parse_plan
from rollout.plan.scalars import Unclear, read_plain
from tests.unit.plan.kit import only, plus

LABEL = "canary: {sizing: {worker_selector: {label: %s}}}"


@pytest.mark.parametrize("word", ["yes", "No", "ON", "off", "y", "N"])
def test_old_booleans_are_refused_where_text_is_expected(word: str) -> None:
    found = only(plus(LABEL % word))
    assert found.key == "canary.sizing.worker_selector.label"
    assert f'write "{word}"' in found.hint


@pytest.mark.parametrize("word", ["yes", "off"])
def test_old_booleans_are_refused_where_anything_may_stand(word: str) -> None:
    found = only(plus(f"canary: {{sizing: {{gpu_selector: {{shared: {word}}}}}}}"))
    assert found.found == f"`{word}`"
    assert "true" in found.hint or "false" in found.hint


@pytest.mark.parametrize(
    "word", ["010", "1_000", "12:30", "2026-01-01", "1e3", "0x1F", "0o17", ".inf", "-.INF", ".NaN", "12e4567", "1" * 40]
)
def test_words_that_only_some_readers_take_for_numbers_are_refused(word: str) -> None:
    assert 'write "' in only(plus(LABEL % word)).hint


@pytest.mark.parametrize("word", ["yes", "010", "2026-01-01", "true", "1.20", "null"])
def test_in_quotes_every_word_is_text(word: str) -> None:
    plan = parse_plan(plus(LABEL % f'"{word}"'))
    assert plan.canary.sizing.worker_selector == {"label": word}


@pytest.mark.parametrize(("word", "found"), [("1.20", "the number 1.20"), ("7", "the number 7"), ("true", "the boolean `true`")])
def test_numbers_and_booleans_where_text_is_expected_are_told_to_take_quotes(word: str, found: str) -> None:
    told = only(plus(LABEL % word))
    assert (told.expected, told.found, told.hint) == ("text", found, f'write "{word}"')


@pytest.mark.parametrize("value", ['"2"', "true", "2.5"])
def test_text_and_booleans_are_not_taken_for_whole_numbers(value: str) -> None:
    found = only(plus(f"canary: {{sizing: {{replicas: {value}}}}}"))
    assert (found.key, found.expected) == ("canary.sizing.replicas", "a whole number")


def test_plain_words_with_one_meaning() -> None:
    said = {"0": 0, "-3": -3, "+4": 4, "1.5": 1.5, "1.5e-3": 0.0015, "true": True, "FALSE": False, "~": None, "": None, "null": None}
    assert {word: read_plain(word) for word in said} == said
    texts = ["sim/vllm:2", "1.2.3", "v1", "30s", "a:b", "=", "1.5GiB", "not", "nope", "chat-01", "0.19.1"]
    assert [read_plain(t) for t in texts] == texts


@settings(deadline=None)
@given(st.text(alphabet="0123456789.eE+-_:xobTZ ynofN~", max_size=12))
def test_a_plain_word_is_a_small_finite_value_or_unclear(word: str) -> None:
    try:
        value = read_plain(word)
    except Unclear:
        return
    assert value is None or isinstance(value, bool | str) or abs(value) < 1e120
