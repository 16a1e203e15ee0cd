"""Specs of deployments: what a client may set, the canary's out of stable's, and how two differ. Pure; no calls, no clock."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping
from typing import Any

from rollout.backends.gpustack_fields import FRACTION, HOST_UNITS, SETTABLE, SIZING_FIELDS, SOURCE_FIELDS, UNIT_FIELDS
from rollout.errors import PlanError
from rollout.plan.model import Unit

Json = Any
Spec = dict[str, Json]
_FLAG = re.compile(r"^--gpu[-_]memory[-_]utilization(?:[= ]\s*(?P<value>.*))?$")


def spec_of(model: Mapping[str, Json]) -> Spec:
    """The client-settable fields of a deployment as the server shows it; unset ones are left out. A copy."""
    return {key: copy.deepcopy(value) for key, value in sorted(model.items()) if key in SETTABLE and value is not None}


def derive_spec(stable: Mapping[str, Json], unit: str, to: Mapping[str, Json], sizing: Mapping[str, Json], name: str) -> Spec:
    """The canary's spec: stable's, changed by one unit and by sizing, under a new name. `null` in `to` unsets a field.

    `sizing` has the keys of `plan.model.Sizing`; None and absent are the same. Raises PlanError naming the wrong key.
    """
    spec = spec_of(stable)
    kind = Unit(unit)
    _check_keys(kind, to)
    if kind is Unit.MODEL_REVISION and "source" in to:
        spec = {k: v for k, v in spec.items() if k not in SOURCE_FIELDS}
    if kind not in HOST_UNITS:
        for key, value in to.items():
            _set(spec, key, _merged_env(spec.get("env"), value) if key == "env" else value)
    _size(spec, {k: v for k, v in sizing.items() if v is not None})
    _check_types(spec, to)
    return {**spec, "name": name, "enable_model_route": False}


def diff_spec(stable: Mapping[str, Json], canary: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
    """Fields that differ as (field, stable, canary), by name. Unset, empty and absent are the same.

    The memory fraction is shown as a field of its own, since it is sizing and not a parameter.
    """
    left, right = _comparable(stable), _comparable(canary)
    keys = sorted(left.keys() | right.keys())
    return [(key, left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key)]


def unit_of(field: str) -> Unit | None:
    """The change unit a field belongs to; None for sizing and for what no unit may change. An image is `backend_image`
    here; `service_image` changes the same fields."""
    if field in SIZING_FIELDS:
        return None
    return next((unit for unit, fields in UNIT_FIELDS.items() if field in fields), None)


def covers(found: Json, wanted: Json) -> bool:
    """Whether `found` says everything that `wanted` says; the server adds defaults inside nested objects."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(k), v) for k, v in wanted.items() if v is not None)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(covers(f, w) for f, w in zip(found, wanted, strict=True))
    return bool(found == wanted)


def memory_fraction(parameters: list[Json] | None) -> tuple[list[Json], float | None]:
    """`backend_parameters` without the memory fraction, and the fraction; the last one counts, as for the engine."""
    rest: list[Json] = []
    fraction: float | None = None
    value_next = False
    for item in parameters or []:
        match = _FLAG.match(item) if isinstance(item, str) else None
        if match:
            value_next = match["value"] is None
            fraction = fraction if value_next else _number(match["value"])
        elif value_next:
            value_next, fraction = False, _number(item)
        else:
            rest.append(item)
    return rest, fraction


def _check_keys(unit: Unit, to: Mapping[str, Json]) -> None:
    allowed = UNIT_FIELDS[unit]
    wrong = [key for key in to if key not in allowed]
    if not wrong:
        return
    key = wrong[0]
    near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
    owner = unit_of(key)
    why = f"it belongs to change unit `{owner}`, and a rollout changes one unit" if owner else f"`{unit}` changes {', '.join(allowed)}"
    if key in SIZING_FIELDS:
        why = "it is sizing, not a change: it belongs under `canary.sizing`"
    hint = f"Did you mean `{near[0]}`?" if near else f"Allowed under `change.to`: {', '.join(allowed)}."
    raise PlanError(f"`change.to.{key}` is not part of change unit `{unit}`.", why=why, hint=hint)


def _merged_env(env: Mapping[str, Json] | None, changes: Json) -> Json:
    """Stable's environment with the changes; null removes a name."""
    if changes is None:
        return None
    if not isinstance(changes, Mapping):
        raise PlanError("`change.to.env` is not a map.", why="expected names with text, or null to remove one")
    return {k: v for k, v in {**(env or {}), **changes}.items() if v is not None}


def _size(spec: Spec, sizing: Mapping[str, Json]) -> None:
    if "port" in sizing:
        raise PlanError(
            "`sizing.port` cannot be carried out.",
            why="GPUStack gives each instance a port from the worker's range and sends requests there",
            hint="Remove `port`; use `{{port}}` in `run_command`.",
        )
    if "replicas" in sizing:
        spec["replicas"] = sizing["replicas"]
    if "worker" in sizing or "worker_selector" in sizing:
        labels = dict(sizing.get("worker_selector", {}))
        spec["worker_selector"] = labels | ({"worker-name": sizing["worker"]} if "worker" in sizing else {})
        # stable's pinned devices are on stable's worker
        _set(spec, "gpu_selector", {k: v for k, v in (spec.get("gpu_selector") or {}).items() if k != "gpu_ids" and v is not None} or None)
    if "gpu_selector" in sizing:
        spec["gpu_selector"] = dict(sizing["gpu_selector"])
    if FRACTION in sizing:
        rest, _ = memory_fraction(spec.get("backend_parameters"))
        spec["backend_parameters"] = [*rest, f"--gpu-memory-utilization={sizing[FRACTION]:g}"]


def _set(spec: Spec, key: str, value: Json) -> None:
    if value is None:
        spec.pop(key, None)
    else:
        spec[key] = copy.deepcopy(value)


def _check_types(spec: Mapping[str, Json], to: Mapping[str, Json]) -> None:
    """What a server would take and a node would fail at; a field that the plan does not change is stable's own."""
    parameters, env = spec.get("backend_parameters"), spec.get("env")
    if parameters is not None and not (isinstance(parameters, list) and all(isinstance(p, str) for p in parameters)):
        hint = 'Write the whole list, such as ["--max-model-len=8192"].'
        raise PlanError(f"{_whose('backend_parameters', to)} is not a list of texts.", hint=hint)
    if env is not None and not (isinstance(env, Mapping) and all(isinstance(v, str) for v in env.values())):
        raise PlanError(f"{_whose('env', to)} is not a mapping of names to texts.", hint="Put numbers and true/false in quotes.")


def _whose(field: str, to: Mapping[str, Json]) -> str:
    return f"`change.to.{field}`" if field in to else f"`{field}` of stable's deployment"


def _comparable(spec: Mapping[str, Json]) -> Spec:
    flat = {k: v for k, v in spec.items() if k in SETTABLE}
    rest, fraction = memory_fraction(flat.get("backend_parameters"))
    flat["backend_parameters"], flat[FRACTION] = rest, fraction
    return {k: v for k, v in flat.items() if v is not None and v != {} and v != []}


def _number(text: Json) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
