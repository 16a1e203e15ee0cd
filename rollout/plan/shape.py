"""The plan model as a tree of keys: which keys a part has, what kind of value each takes. Pure; for messages and pages."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import EnumMeta
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from rollout.plan.checks import url
from rollout.plan.finding import Path, one_of
from rollout.plan.lines import NamedFile
from rollout.plan.model import INLINED, Plan, SecretRef
from rollout.plan.units import parse_bytes, parse_duration

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "`true` or `false`", Any: "any value"}


@dataclass(frozen=True)
class Slot:
    """One place in a plan: its type with what was annotated to it, and the field it belongs to."""

    type: Any
    metadata: tuple[Any, ...] = ()
    field: FieldInfo | None = None

    @property
    def part(self) -> type[BaseModel] | None:
        """The part of a plan that stands here, also when it is optional."""
        options = [self.type, *get_args(self.type)] if _is_union(self.type) else [self.type]
        return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)

    @property
    def duration(self) -> bool:
        return self._read_by(parse_duration)

    @property
    def size(self) -> bool:
        return self._read_by(parse_bytes)

    def _read_by(self, reader: Any) -> bool:
        return any(isinstance(m, BeforeValidator) and m.func is reader for m in _flat(self).metadata)


def keys(part: type[BaseModel]) -> dict[str, FieldInfo]:
    """Keys of a part as people write them; what is read from another file is none."""
    return {info.alias or name: info for name, info in part.model_fields.items() if info.json_schema_extra != INLINED}


def slot_in(part: type[BaseModel], key: str) -> Slot:
    """What may stand under `key` of `part`. Raises KeyError when there is no such key."""
    info = keys(part)[key]
    return Slot(info.annotation, tuple(info.metadata), info)


def slot_at(path: Path) -> Slot | None:
    """What may stand at `path`; None when the plan has no such place or takes anything there."""
    slot = Slot(Plan)
    for step in path:
        below = _below(slot, step)
        if below is None:
            return None
        slot = below
    return slot


def _below(slot: Slot, step: str | int) -> Slot | None:
    part = slot.part
    if part is not None:
        return slot_in(part, str(step)) if step in keys(part) else None
    for option in _options(slot):
        origin, args = get_origin(option.type), get_args(option.type)
        if origin is tuple and isinstance(step, int):
            return _flat(Slot(args[0]))
        if origin is dict and isinstance(step, str):
            return _flat(Slot(args[1]))
    return None


def kind(slot: Slot) -> str:
    """What may stand here, in words: `a duration such as 30s`, `a list of whole numbers`, `auto`."""
    slot = _flat(slot)
    if slot.duration:
        return "a duration such as 30s, 10m or 2h"
    if slot.size:
        return "a size such as 8GiB"
    if any(isinstance(m, AfterValidator) and m.func is url for m in slot.metadata):
        return "a URL such as http://127.0.0.1:30080"
    if any(isinstance(m, NamedFile) for m in slot.metadata):
        return "the name of a file beside the plan"
    if _is_union(slot.type):
        return " or ".join(dict.fromkeys(kind(o) for o in _options(slot)))
    if get_origin(slot.type) is Literal:
        return one_of(get_args(slot.type))
    if isinstance(slot.type, EnumMeta):
        return one_of(m.value for m in slot.type)  # type: ignore[var-annotated]
    if get_origin(slot.type) is tuple:
        item = kind(Slot(get_args(slot.type)[0]))
        plural = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts", "a mapping": "mappings"}
        return f"a list of {plural.get(item, item)}"
    if get_origin(slot.type) is dict:
        return "a mapping" if get_args(slot.type)[1] is Any else f"a mapping of names to {kind(Slot(get_args(slot.type)[1]))}"
    if slot.part is SecretRef:
        return "a reference: `{env: NAME}` or `{file: PATH}`"
    return "a mapping" if slot.part is not None else _WORDS.get(slot.type, "a value")


def walk(part: type[BaseModel] = Plan, path: Path = ()) -> Iterator[tuple[Path, type[BaseModel]]]:
    """Every part of a plan with its path, depth first; list items carry position 0."""
    yield path, part
    for key in keys(part):
        slot = slot_in(part, key)
        item = None if slot.part else _below(slot, 0)
        if slot.part is not None:
            yield from walk(slot.part, (*path, key))
        elif item is not None and item.part is not None:
            yield from walk(item.part, (*path, key, 0))


@cache
def homes() -> dict[str, tuple[Path, ...]]:
    """Key -> every part of the plan that has it; says where a misplaced key belongs."""
    found: dict[str, tuple[Path, ...]] = {}
    for path, part in walk():
        for key in keys(part):
            found[key] = (*found.get(key, ()), path)
    return found


def _flat(slot: Slot) -> Slot:
    """`slot` without the `Annotated` and `| None` around its type."""
    while get_origin(slot.type) is Annotated:
        inner, *extra = get_args(slot.type)
        slot = Slot(inner, (*extra, *slot.metadata), slot.field)
    if _is_union(slot.type):
        options = [a for a in get_args(slot.type) if a is not type(None)]
        if len(options) == 1:
            return _flat(Slot(options[0], slot.metadata, slot.field))
    return slot


def _options(slot: Slot) -> list[Slot]:
    slot = _flat(slot)
    if not _is_union(slot.type):
        return [slot]
    return [_flat(Slot(a)) for a in get_args(slot.type) if a is not type(None)]


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)
