"""Writes the JSON Schema of plans, for editors and for other tools: `python -m rollout.plan.schema [--check] [FILE]`.

The model is the only source; the file is committed and a test fails when it is stale. Never edits by hand what it writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rollout.plan.fields import OWN, Unit
from rollout.plan.model import Plan
from rollout.plan.output import keep
from rollout.plan.shape import keys, slot_in, walk
from rollout.plan.units import format_bytes, format_duration

Json = Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IDENTITY = "urn:rollout:plan:v1"
FILE = Path("plans/plan.schema.json")


def schema() -> dict[str, Json]:
    """The JSON Schema (draft 2020-12) of a plan as people write it: with `apiVersion`, durations as text."""
    body = Plan.model_json_schema(by_alias=True, mode="validation")
    for _, part in walk():
        _defaults(part, body if part is Plan else body["$defs"][part.__name__])
    body["$defs"]["ChangeUnit"]["allOf"] = [_fields_of(unit) for unit in Unit]
    head = {"$schema": DIALECT, "$id": IDENTITY, "title": "Rollout plan"}
    return head | {key: value for key, value in body.items() if key not in head}


def _defaults(part: type[BaseModel], told: dict[str, Json]) -> None:
    """Defaults as people write them: durations with a unit; none for a whole part, whose keys have their own."""
    for key, info in keys(part).items():
        slot, prop = slot_in(part, key), told["properties"][key]
        if slot.part is not None:
            prop.pop("default", None)
        elif slot.duration and isinstance(info.default, float):
            prop["default"] = format_duration(info.default)
        elif slot.size and isinstance(info.default, int):
            prop["default"] = format_bytes(info.default)


def _fields_of(unit: Unit) -> dict[str, Json]:
    """Only a unit's own fields may stand in `to`; lets an editor complete them."""
    fields: dict[str, Json] = {name: {} for name in OWN[unit]}
    return {
        "if": {"properties": {"unit": {"const": unit.value}}, "required": ["unit"]},
        "then": {"properties": {"to": {"properties": fields, "additionalProperties": False}}},
    }


def schema_text() -> str:
    """The schema as the committed file holds it, with a final newline."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(keep(schema_text(), FILE, sys.argv[1:], "rollout.plan.schema"))
