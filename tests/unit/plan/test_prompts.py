"""Lines of a prompt set: what is read, and that each mistake is one finding with its line, its key and no word of a prompt."""

from __future__ import annotations

import json

import pytest

from rollout.plan.finding import Finding
from rollout.plan.model import Prompt
from rollout.plan.prompts import MAX_PROMPTS, MAX_TOLD, read_prompts
from rollout.plan.source import Source

GOOD = {"id": "q1", "prompt": "How many?", "expected": "Three"}


def lines(*rows: object) -> bytes:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()


def findings(data: bytes) -> list[Finding]:
    source = Source("set.jsonl")
    read_prompts(data, source)
    return source.findings


def only(data: bytes) -> str:
    found = findings(data)
    assert len(found) == 1, [str(f) for f in found]
    return str(found[0])


def test_prompts_messages_and_ids_are_read() -> None:
    talk = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}], "expected": "Hello"}
    source = Source("set.jsonl")
    rows = read_prompts(
        b"\xef\xbb\xbf" + lines(GOOD, "", {**talk}, {**GOOD, "id": 7, "prompt": "How many now?"}).replace(b"\n", b"\r\n"), source
    )
    assert source.findings == []
    read = [Prompt.model_validate(row) for row in rows]
    assert [p.id for p in read] == ["q1", "3", "7"]
    assert (read[0].prompt, read[0].expected, read[1].messages[0].content) == ("How many?", "Three", "Be short.")
    assert "Three" not in repr(read)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "set.jsonl:2:1: expected one JSON object on one line"),
        ("[1]", "expected a JSON object, found another value"),
        ('{"id": "a", "id": "b", "prompt": "x", "expected": "y"}', "expected each key once"),
        ({**GOOD, "prompt": "And now?"}, "set.jsonl:2:1: id: expected each id once, found `q1` again (first on line 1)"),
        ({**GOOD, "id": "b"}, "set.jsonl:2:1: expected each prompt once, found the same prompt again"),
        ({**GOOD, "id": "a b"}, "id: expected a short name or a whole number"),
        ({**GOOD, "id": True}, "id: expected a short name or a whole number"),
        ({"id": "b", "expected": "y"}, "expected exactly one of `prompt` or `messages`, found neither"),
        ({**GOOD, "id": "b", "messages": [{"role": "user", "content": "x"}]}, "exactly one of `prompt` or `messages`, found both"),
        ({"id": "b", "messages": [{"role": "robot", "content": "x"}], "expected": "y"}, "messages: expected a list of"),
        ({"id": "b", "messages": [], "expected": "y"}, "messages: expected a list of"),
        ({"id": "b", "prompt": "x"}, "set.jsonl:2:1: expected: expected the expected answer, found none (write the right answer"),
        ({"id": "b", "prompt": " ", "expected": "y"}, "prompt: expected text, found an empty text"),
        ({"id": "b", "prompt": "x", "expected": 3}, "expected: expected text, found another value"),
        ({"id": "b", "prompt": "x", "expcted": "y", "expected": "y"}, "did you mean `expected`?"),
        ('{"id": "b", "prompt": "x", "expected": "\\ud800"}', "half a character"),
        (
            {"id": "b", "prompt": "x", "expected": "sk-" + "a1B2" * 10},
            "expected: expected no secret in a prompt set, found a secret (not shown)",
        ),
    ],
)
def test_each_mistake_is_one_finding(row: object, told: str) -> None:
    assert told in only(lines(GOOD, row))


def test_a_finding_repeats_no_prompt_and_no_answer() -> None:
    said = only(lines({"id": "b", "prompt": "the merger", "messages": [], "expected": "the price"}))
    assert "merger" not in said
    assert "price" not in said


def test_an_empty_set_and_one_that_is_too_long_are_refused() -> None:
    assert "at least one prompt, found an empty file" in only(b"\n")
    many = lines(*({**GOOD, "id": n, "prompt": f"And {n}?"} for n in range(MAX_PROMPTS + 1)))
    assert f"set.jsonl:{MAX_PROMPTS + 1}:1: expected at most {MAX_PROMPTS} prompts" in only(many)
    assert len(findings(b"{\n" * 500)) == MAX_TOLD
    assert "set.jsonl:2:1: expected UTF-8 text, found the byte 0xFF" in only(b"\n\xff")
