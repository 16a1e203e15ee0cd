"""Where an instance may run, and what it claims: labels, chosen GPUs, worker state, claimed memory (contract 5.1)."""

from __future__ import annotations

from typing import Any

from rollout.testing.gpustack.world import Row, World
from rollout.testing.knobs import GIB

FRACTIONS = {"vLLM": "--gpu-memory-utilization", "SGLang": "--mem-fraction-static"}
DEFAULT_FRACTION = 0.9
LEAST = 8 * GIB  # what the server computes for the simulated weights: a smaller fraction of the card never schedules
CUSTOM_CLAIM = {"ram": 2 * GIB, "vram": {"0": 8 * GIB}, "is_unified_memory": True}


def claim(model: Row, total: int) -> dict[str, Any]:
    """Bytes an instance claims on a card of `total` bytes: a fraction of it for vLLM and SGLang, 8 GiB for others."""
    flag = FRACTIONS.get(str(model.get("backend")))
    if flag is None:
        return dict(CUSTOM_CLAIM)
    fraction = DEFAULT_FRACTION
    for parameter in model.get("backend_parameters") or []:
        name, _, value = str(parameter).partition("=")
        if name == flag and value:
            fraction = float(value)
    return {"ram": 0, "vram": {"0": int(total * fraction)}, "is_unified_memory": True}


def allocated(world: World, worker_id: int) -> int:
    """VRAM bytes claimed on a worker by what is scheduled there."""
    rows = world.where("model-instances", worker_id=worker_id)
    return sum((row["computed_resource_claim"] or {}).get("vram", {}).get("0", 0) for row in rows)


def place(world: World, model: Row) -> tuple[Row, dict[str, Any]] | str:
    """The worker with the most room and the claim, or why there is none (the text of `state_message`)."""
    ready = [worker for worker in world.where("workers") if worker["state"] == "ready"]
    details = [f"Matched {len(ready)}/{len(world.tables['workers'])} workers by READY status."]
    selector = model.get("worker_selector") or {}
    labelled = [w for w in ready if all(w["labels"].get(key) == value for key, value in selector.items())]
    gpu_ids = (model.get("gpu_selector") or {}).get("gpu_ids")
    if gpu_ids:
        labelled = [w for w in labelled if f"{w['name']}:cuda:0" in gpu_ids]
    details.append(f"Matched {len(labelled)}/{len(ready)} workers by selectors.")
    room = []
    for worker in labelled:
        total = int(worker["status"]["gpu_devices"][0]["memory"]["total"])
        wanted = claim(model, total)
        free = total - allocated(world, worker["id"])
        if LEAST <= wanted["vram"]["0"] <= free:
            room.append((free, worker, wanted))
        else:
            details.append(f"{worker['name']}: needs {wanted['vram']['0'] / GIB:.1f} GiB VRAM, {free / GIB:.1f} GiB allocatable.")
    if not room:
        return "No suitable workers.\nDetails:\n" + "\n".join(f"- {line}" for line in details)
    _, worker, wanted = max(room, key=lambda entry: (entry[0], -entry[1]["id"]))
    return worker, wanted
