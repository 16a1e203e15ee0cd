"""Which deployment fields belong to which change unit: GPUStack's own names, as its 2.3 API takes them. Pure data and checks.

A change unit may carry its own fields and no others, so that a rollout changes one thing. What the server does not know it
accepts in silence, so a name that is not in the tables is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from rollout.plan.finding import Problem, nearest, one_of

Json = Any


class Unit(StrEnum):
    """The one kind of thing that may change in a rollout."""

    OS = "os"
    DRIVER = "driver"
    WORKER = "worker"
    BACKEND_IMAGE = "backend_image"
    MODEL_REVISION = "model_revision"
    SERVICE_IMAGE = "service_image"
    PARAMETERS = "parameters"


HOST_UNITS = frozenset({Unit.OS, Unit.DRIVER, Unit.WORKER})
"""Units a person changes on a node; their `to` holds facts to wait for, not deployment fields."""

SOURCE = ("source", "local_path", "huggingface_repo_id", "huggingface_filename", "model_scope_model_id", "model_scope_file_path")
OWN: dict[Unit, tuple[str, ...]] = {
    Unit.OS: ("version", "kernel"),
    Unit.DRIVER: ("version",),
    Unit.WORKER: ("version",),
    Unit.BACKEND_IMAGE: ("image_name", "backend_version"),
    Unit.MODEL_REVISION: (*SOURCE, "backend_parameters"),
    Unit.SERVICE_IMAGE: ("image_name",),
    Unit.PARAMETERS: (
        "backend_parameters",
        "env",
        "run_command",
        "extended_kv_cache",
        "speculative_config",
        "lora_list",
        "cpu_offloading",
        "distributed_inference_across_workers",
        "distributable",
        "restart_on_error",
    ),
}
SIZING = {
    "replicas": "replicas",
    "worker": "worker",
    "worker_name": "worker",
    "worker_selector": "worker_selector",
    "gpu_selector": "gpu_selector",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "port": "port",
}
"""Placement and size: deployment field -> its key under `canary.sizing`."""
FIXED = frozenset(
    {
        *("id", "name", "cluster_id", "owner_principal_id", "categories", "meta", "description", "access_policy", "revision_history_limit"),
        *("backend", "generic_proxy", "enable_model_route", "native_anthropic_api", "roles", "disaggregation", "gather"),
        *("scaling_schedule", "placement_strategy", "gpu_type_selector"),
        *("state", "state_message", "ready_replicas", "created_at", "updated_at"),
    }
)
"""Fields a rollout never changes: identity, routing, scaling, and what the server owns."""
_NAMES = frozenset({"image_name", "backend_version", "local_path", "huggingface_repo_id", "huggingface_filename", "model_scope_model_id"})
"""texts that name something; others may have several lines"""
_TEXT = frozenset((*SOURCE, "image_name", "backend_version", "run_command", "version", "kernel"))
_MOVING = frozenset({"latest", "main", "master", "head", "current", "stable", "nightly"})
_REVISION = re.compile(r"--revision[= ]+(\S+)")


def problems(unit: Unit, to: Mapping[str, Json]) -> list[Problem]:
    """Everything that is wrong with `to` for this unit; paths begin with `to`."""
    found = [*_foreign(unit, to), *_shapes(to)]
    return found or list(_unpinned(unit, to))


def _foreign(unit: Unit, to: Mapping[str, Json]) -> Iterator[Problem]:
    own = OWN[unit]
    for name in to:
        if name in own:
            continue
        elsewhere = [u for u in Unit if u not in HOST_UNITS and name in OWN[u]]
        if unit in HOST_UNITS:
            hint = f"`{unit}` is changed on the node by a person: `to` holds the facts to wait for"
        elif name in SIZING:
            hint = f"placement and size are no change unit: write it under `canary.sizing.{SIZING[name]}`"
        elif elsewhere:
            hint = f"`{name}` belongs to the unit {one_of(elsewhere)}; one rollout changes one unit"
        elif name in FIXED:
            hint = "a rollout never changes this field"
        else:
            near = nearest(name, own)
            hint = f"did you mean `{near}`?" if near else ""
        yield Problem(("to", name), f"a field of the unit `{unit}`: {one_of(own)}", f"`{name}`", hint)


def _shapes(to: Mapping[str, Json]) -> Iterator[Problem]:
    """The fields whose type we know, because a wrong one is accepted and then fails on the node. Null unsets a field."""
    for name, value in to.items():
        if value is None or name not in _TEXT:
            continue
        if not isinstance(value, str):
            yield _text(("to", name), value)
        elif not value.strip():
            yield Problem(("to", name), "text", "nothing")
        elif name in _NAMES and not value.isprintable():
            yield Problem(("to", name), "one line of visible text", "a line break or an invisible character in it")
    parameters = to.get("backend_parameters") or []
    if not isinstance(parameters, list):
        yield Problem(("to", "backend_parameters"), "a list of texts such as `--max-num-seqs=64`", _kind(parameters))
    else:
        yield from (_text(("to", "backend_parameters", i), v) for i, v in enumerate(parameters) if not isinstance(v, str))
    env = to.get("env") or {}
    if not isinstance(env, dict):
        yield Problem(("to", "env"), "a mapping of names to texts", _kind(env))
    else:
        yield from (_text(("to", "env", k), v) for k, v in env.items() if not isinstance(v, str))


def _text(path: tuple[str | int, ...], value: Json) -> Problem:
    scalar = isinstance(value, bool | int | float)
    return Problem(path, "text", _kind(value), "put it in quotes" if scalar else "")


def _kind(value: Json) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def _unpinned(unit: Unit, to: Mapping[str, Json]) -> Iterator[Problem]:
    """What may point at something else tomorrow: canary and stable would then differ in more than is written."""
    image = to.get("image_name")
    if isinstance(image, str) and not _pinned_image(image):
        yield Problem(("to", "image_name"), "a pinned image: a tag other than a moving one, or a digest", f"`{image}`")
    version = to.get("backend_version")
    if isinstance(version, str) and version.lower() in _MOVING:
        yield Problem(("to", "backend_version"), "a pinned version", f"`{version}`")
    if unit is not Unit.MODEL_REVISION:
        return
    revision = _REVISION.search(" ".join(to.get("backend_parameters") or []))
    repository = next((f for f in ("huggingface_repo_id", "model_scope_model_id") if to.get(f)), None)
    if "backend_parameters" in to and revision is None:
        hint = "other parameters belong to the unit `parameters`"
        yield Problem(("to", "backend_parameters"), "`--revision=` with a commit", "parameters without one", hint)
    elif repository and (revision is None or not re.fullmatch(r"[0-9a-f]{40}", revision[1])):
        hint = "name a versioned `local_path`, or add `--revision=<40 hex digits>` to `backend_parameters`"
        yield Problem(("to", repository), "a pinned revision", "a repository whose content may change", hint)
    path = to.get("local_path")
    if isinstance(path, str) and path.rstrip("/").rpartition("/")[2].lower() in _MOVING:
        yield Problem(("to", "local_path"), "a path that names one revision", f"`{path}`")


def _pinned_image(image: str) -> bool:
    name, _, digest = image.partition("@")
    if digest:
        return bool(re.fullmatch(r"sha256:[0-9a-f]{64}", digest))
    tag = name.rpartition("/")[2].partition(":")[2]
    return bool(tag) and tag.lower() not in _MOVING
