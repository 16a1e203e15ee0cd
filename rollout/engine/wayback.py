"""The plan that goes the other way: the old deployment, made again from its recorded spec as the successor of what serves now. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rollout.domain.receipts import receipts_of
from rollout.domain.state import RolloutState
from rollout.plan.fields import OWN, Unit
from rollout.plan.hidden import HIDDEN

Json = Any


def plan_back(state: RolloutState, plan: Mapping[str, Json] | None) -> str | None:
    """The plan as JSON (which is YAML too), from the recorded difference; None where nothing was declared, or no plan is known.

    A secret is not in the record: where the old spec had one, `***` stands in its place and must be written in.
    """
    receipts, diffs = receipts_of(state), state.fact("diff")
    if receipts is None or not diffs or not plan:
        return None
    first = receipts.pairs[0]
    unit = plan["change"]["unit"]
    rows = [row for row in diffs.get(first.canary, ()) if row[0] in OWN[Unit(unit)]]
    if not rows:
        return None
    back = {
        "apiVersion": plan["apiVersion"],
        "kind": plan["kind"],
        "metadata": {"name": f"{state.name[:100]}-back"},
        "gpustack": {k: _bare(v) for k, v in plan["gpustack"].items() if v is not None},
        "route": {"name": receipts.route},
        "change": {"unit": unit, "to": {field: _old(before, after) for field, before, after in rows}},
        "stable": [{"deployment": pair.canary} for pair in receipts.pairs],
        "canary": {"sizing": _sizing(state, first.stable)},
        "stage": {"skip": f"goes back to what ran before rollout {state.id}"},
    }
    note = f"\nWrite in what stands as {HIDDEN}: secrets are not recorded." if HIDDEN in json.dumps(back) else ""
    return json.dumps(back, indent=1, ensure_ascii=False) + note


def _bare(value: Json) -> Json:
    """A reference to a key without its unused half."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


def _old(before: Json, after: Json) -> Json:
    """Stable's value; names that only the new environment has are removed by null."""
    if isinstance(after, Mapping) and (before is None or isinstance(before, Mapping)):
        return {**dict.fromkeys(after), **(before or {})}
    return before


def _sizing(state: RolloutState, stable: str) -> dict[str, Json]:
    """Where stable ran."""
    kept = ((state.fact("window") or {}).get("kept") or {}).get(stable) or {}
    workers = list(kept.get("workers") or {})
    return {"worker": workers[0]} if len(workers) == 1 else {}
