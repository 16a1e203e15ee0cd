"""What the model refused -> findings with a place in the file, one for each cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rollout.plan.checks import ENV_NAME, NAME, ROUTE_NAME
from rollout.plan.finding import Path, Problem, key_of, nearest, one_of
from rollout.plan.hidden import below_reference, quoted
from rollout.plan.shape import Slot, homes, keys, kind, slot_at
from rollout.plan.source import Source
from rollout.plan.units import format_bytes, format_duration

Json = Any

_NUMBERS = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below", "less_than_equal": "at most"}
_NAMES = {
    ENV_NAME: ("the name of an environment variable", "letters, digits and _"),
    NAME: ("a name", "letters, digits and _ . : -, beginning with a letter or digit"),
    ROUTE_NAME: ("a route's name", "letters, digits and _ . : -, beginning with a letter, ending in a letter or digit"),
}


@dataclass(frozen=True)
class _Fault:
    """One error of the model with its path in the file; `tagged`: inside one alternative of several."""

    path: Path
    kind: str
    context: dict[str, Json]
    missing: str = ""
    tagged: bool = False


def add_findings(error: ValidationError, source: Source) -> None:
    """Add one finding to `source` for each cause in `error`. Values below a secret reference are never repeated."""
    faults = list(_alternatives([_locate(e, source) for e in error.errors(include_url=False, include_input=False)]))
    faults = [f for f in faults if not any(f.path[: len(b)] == b for b in source.broken)]
    faults = [f for f in faults if f.path not in source.secret or f.kind == "extra_forbidden"]
    # The model counts only the entries it accepted; each one that it refused has a finding already.
    faults = [f for f in faults if f.kind != "too_short" or len(_at(source.data, f.path)) < f.context["min_length"]]
    meant: set[Path] = set()
    for fault in [f for f in faults if f.kind == "extra_forbidden"]:
        meant |= _unknown_key(fault, source)
    for fault in [f for f in faults if f.kind != "extra_forbidden"]:
        if fault.kind == "missing":
            if (*fault.path, fault.missing) not in meant:
                _missing(fault, source)
        elif fault.kind == "plan":
            for problem in fault.context["problems"]:
                _problem(fault, problem, source)
        else:
            _value(fault, source)


def _locate(error: Any, source: Source) -> _Fault:
    """Walk as far as the file goes: steps that are not in it name an alternative, or the key that is missing."""
    path: Path = ()
    tagged, missing = False, ""
    for step in error["loc"]:
        if (*path, step) in source.places:
            path = (*path, step)
        elif error["type"] == "missing" and step == error["loc"][-1]:
            missing = str(step)
        else:
            tagged = True
    return _Fault(path, error["type"], error.get("ctx") or {}, missing, tagged)


def _alternatives(faults: list[_Fault]) -> Iterator[_Fault]:
    """Of the errors of several alternatives keep the ones of the alternative that fits best: the one that came deepest."""
    tagged = [f for f in faults if f.tagged]
    passed = {f.path[:depth] for f in tagged for depth in range(len(f.path))}
    spoken: dict[Path, _Fault] = {}
    for fault in tagged:
        if fault.path not in spoken or (fault.kind == "plan" and spoken[fault.path].kind != "plan"):
            spoken[fault.path] = fault
    yield from (f for f in faults if not f.tagged or (f.path not in passed and spoken[f.path] is f))


def _unknown_key(fault: _Fault, source: Source) -> set[Path]:
    """Report a key that the plan does not have; returns the keys that were probably meant."""
    above, word = fault.path[:-1], str(fault.path[-1])
    place = source.places[fault.path]
    slot = slot_at(above)
    known = list(keys(slot.part)) if slot is not None and slot.part is not None else []
    if below_reference(above):
        source.add(place.key, above, one_of(known), "another key")
        return set()
    free = [k for k in known if (*above, k) not in source.places]
    near, elsewhere = nearest(word, free) or nearest(word, known), homes().get(word, ())
    if near is None and len(elsewhere) == 1:
        hint = f"it belongs under `{key_of(elsewhere[0])}`" if elsewhere[0] else "it belongs at the top of the plan"
    else:
        hint = f"did you mean `{near}`?" if near else ""
    source.add(place.key, fault.path, one_of(known), f"the unknown key {quoted(word)}", hint)
    return {(*above, near)} if near else set()


def _missing(fault: _Fault, source: Source) -> None:
    path = (*fault.path, fault.missing)
    slot = slot_at(path)
    what = slot.field.description if slot is not None and slot.field is not None else ""
    kind_of = kind(slot) if slot is not None else "a value"
    source.add(source.places[fault.path].key, path, f"the key `{fault.missing}` with {kind_of}", "nothing", what or "")


def _problem(fault: _Fault, problem: Problem, source: Source) -> None:
    """A contradiction; at the deepest place of its path that is in the file."""
    path = fault.path
    for step in problem.path:
        path = (*path, step)
    at = path
    while at not in source.places:
        at = at[:-1]
    if at in source.secret:
        return  # told already, and better said without the value
    place = source.places[at]
    is_key = problem.path and problem.found == quoted(str(path[-1]))
    found = problem.found or ("a value (not shown)" if below_reference(at) else _seen(at, source))
    source.add(place.key if is_key else place.value, path, problem.expected, found, problem.hint)


def _value(fault: _Fault, source: Source) -> None:
    slot = slot_at(fault.path) or Slot(Any)
    expected, hint = _expected(fault, slot)
    place = source.places[fault.path]
    found = _seen(fault.path, source)
    if place.plain and place.text and expected == "text" and not isinstance(_at(source.data, fault.path), str):
        hint = f'write "{place.text}"'
    elif place.text is not None and "number" in expected and re.fullmatch(r"[0-9.]+ ?%?", place.text):
        hint = "write the number alone" if place.plain else "remove the quotes"
    if below_reference(fault.path):
        if place.text:
            found, hint = "a value (not shown)", "the secret itself never enters a plan" if len(fault.path) == 2 else ""
    elif not hint and place.text and fault.kind in ("enum", "literal_error"):
        near = nearest(place.text, re.findall(r"`([^`]*)`", expected))
        hint = f"did you mean `{near}`?" if near else ""
    source.add(place.value, fault.path, expected, found, hint)


def _expected(fault: _Fault, slot: Slot) -> tuple[str, str]:
    """What was expected, and a hint."""
    context = fault.context
    if fault.kind in _NUMBERS:
        limit = next(iter(context.values()))
        text = format_duration(limit) if slot.duration else format_bytes(limit) if slot.size else f"{limit:.12g}"
        return f"{_noun(slot)} {_NUMBERS[fault.kind]} {text}", ""
    if fault.kind == "string_pattern_mismatch":
        return _NAMES.get(context["pattern"], ("other text", ""))
    if fault.kind in ("string_too_short", "string_too_long"):
        limit = context.get("min_length") or context.get("max_length")
        return ("text" if limit == 1 else f"text of at {'least' if 'min_length' in context else 'most'} {limit} characters"), ""
    if fault.kind == "too_short":
        return "at least one entry", ""
    if fault.kind == "too_long":
        return f"at most {context['max_length']} entries", ""
    return kind(slot), ""


def _noun(slot: Slot) -> str:
    return "a duration of" if slot.duration else "a size of" if slot.size else "a number"


def _seen(path: Path, source: Source) -> str:
    """The value at `path` as a message shows it."""
    place, value = source.places[path], _at(source.data, path)
    if value is None:
        return "nothing"
    if place.text is None:
        kind_of = "list" if isinstance(value, list) else "mapping"
        return f"a {kind_of}" if value else f"an empty {kind_of}"
    if isinstance(value, bool):
        return f"the boolean `{place.text}`"
    if isinstance(value, int | float):
        return f"the number {place.text}"
    return f"the text {quoted(place.text)}" if place.text else "an empty text"


def _at(data: Json, path: Path) -> Json:
    for step in path:
        data = data[step]
    return data
