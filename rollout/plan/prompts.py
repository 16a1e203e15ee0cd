"""A prompt set: lines of JSON, one prompt with its expected answer each -> prompts, or every reason why not. Pure.

A set is stored with the plan, so a secret in it is refused as in a plan; no message repeats a prompt or an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rollout.plan.finding import nearest, one_of
from rollout.plan.hidden import is_secret, quoted
from rollout.plan.source import Source

Json = Any
MAX_BYTES = 512 << 10
"""of a whole set: it is stored and sealed with the rollout, so every tick pays for it"""
MAX_PROMPTS = 2000
MAX_TOLD = 20
"""findings after which the rest of a set is not read"""
KEYS = ("id", "prompt", "messages", "expected")
ROLES = ("system", "user", "assistant")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/#\-]{0,63}")
_NO_SECRET = "a set is stored with the plan: replace the secret, it is known now"


class _Twice(Exception):
    """A key that stands twice in one object."""


def read_prompts(data: bytes, source: Source) -> list[dict[str, Json]]:
    """The prompts as `model.Prompt` takes them. What is wrong is added to `source`, whose file is the set's, with its line and key."""
    text = _text(data, source)
    found: list[dict[str, Json]] = []
    first: dict[str, int] = {}
    same: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or len(source.findings) >= MAX_TOLD:
            continue
        if len(found) == MAX_PROMPTS:
            source.add((number, 1), (), f"at most {MAX_PROMPTS} prompts", "more", "keep those that tell the most")
            break
        row = _line(line, number, source)
        if row is None:
            continue
        if row["id"] in first:
            source.add((number, 1), ("id",), "each id once", f"{quoted(row['id'])} again", f"first on line {first[row['id']]}")
        first.setdefault(row["id"], number)
        asked = json.dumps([row.get("prompt"), row.get("messages")], sort_keys=True)
        if asked in same:
            source.add((number, 1), (), "each prompt once", "the same prompt again", f"it tells nothing new; first on line {same[asked]}")
        same.setdefault(asked, number)
        found.append(row)
    if not found and not source.findings:
        source.add((1, 1), (), "at least one prompt", "an empty file", 'a line is {"id": "q1", "prompt": "…", "expected": "…"}')
    return found


def _text(data: bytes, source: Source) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        source.add((line, 1), (), "UTF-8 text", f"the byte 0x{data[error.start]:02X}", "save the file as UTF-8")
        return ""


def _line(line: str, number: int, source: Source) -> dict[str, Json] | None:
    """One prompt; None when anything is wrong with it. The id of a line without one is its number."""
    raw = _parsed(line)
    problems = list(_problems(raw))
    for key, expected, found, hint in problems:
        source.add((number, 1), (key,) if key else (), expected, found, hint)
    if problems or not isinstance(raw, dict):
        return None
    row = {key: raw[key] for key in ("prompt", "messages", "expected") if raw.get(key) is not None}
    return {"id": str(raw["id"]) if raw.get("id") is not None else str(number), **row}


def _parsed(line: str) -> Json:
    """What a line holds; the error where that is no JSON."""
    try:
        return json.loads(line, object_pairs_hook=_once)
    except _Twice as twice:
        return twice
    except (ValueError, RecursionError) as error:
        return error


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made


def _problems(raw: Json) -> Iterator[tuple[str, str, str, str]]:
    """(key, expected, found, hint) of everything that is wrong with one line."""
    if isinstance(raw, _Twice):
        yield "", "each key once", "a key again", ""
    elif isinstance(raw, Exception):
        at = f" (column {raw.colno})" if isinstance(raw, json.JSONDecodeError) else ""
        yield "", "one JSON object on one line", f"something else{at}", "a set is lines of JSON (JSONL), not one list"
    elif not isinstance(raw, dict):
        yield "", "a JSON object", "another value", 'such as {"id": "q1", "prompt": "…", "expected": "…"}'
    else:
        yield from _unknown(raw)
        yield from _id(raw.get("id"))
        yield from _asked(raw)
        yield from _expected(raw)


def _unknown(raw: dict[str, Json]) -> Iterator[tuple[str, str, str, str]]:
    for key in raw:
        if key not in KEYS:
            near = nearest(key, KEYS)
            yield "", one_of(KEYS), quoted(key), f"did you mean `{near}`?" if near else "other keys are not read: remove it"


def _id(value: Json) -> Iterator[tuple[str, str, str, str]]:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return
    if not isinstance(value, str) or not _ID.fullmatch(value):
        hint = "letters, digits and _ . : / # -: ids are stored and shown"
        yield "id", "a short name or a whole number", "another value", hint
    elif is_secret((), value):
        yield "id", "no secret in a prompt set", "a secret (not shown)", _NO_SECRET


def _asked(raw: dict[str, Json]) -> Iterator[tuple[str, str, str, str]]:
    prompt, messages = raw.get("prompt"), raw.get("messages")
    if (prompt is None) == (messages is None):
        yield "", "exactly one of `prompt` or `messages`", "neither" if prompt is None else "both", ""
    elif prompt is not None:
        yield from _words("prompt", prompt)
    elif not isinstance(messages, list) or not messages or not all(map(_message, messages)):
        yield "messages", f'a list of {{"role": …, "content": "text"}}, role {one_of(ROLES)}', "another value", ""
    else:
        for message in messages:
            yield from _words("messages", message["content"])


def _message(value: Json) -> bool:
    return isinstance(value, dict) and set(value) == {"role", "content"} and value["role"] in ROLES and isinstance(value["content"], str)


def _expected(raw: dict[str, Json]) -> Iterator[tuple[str, str, str, str]]:
    if raw.get("expected") is None:
        hint = "write the right answer: that two answers are equal does not say that they are right"
        yield "expected", "the expected answer", "none", hint
    else:
        yield from _words("expected", raw["expected"])


def _words(key: str, value: Json) -> Iterator[tuple[str, str, str, str]]:
    if not isinstance(value, str) or not value.strip():
        yield key, "text", "an empty text" if isinstance(value, str) else "another value", ""
    elif is_secret((), value):
        yield key, "no secret in a prompt set", "a secret (not shown)", _NO_SECRET
    elif any("\ud800" <= c <= "\udfff" for c in value):
        yield key, "text", "half a character (a lone surrogate)", "write both halves, or the character itself"
