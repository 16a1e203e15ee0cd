"""Where the fake server places an instance, and what it claims."""

from typing import Any

import pytest

from rollout.testing.gpustack.placement import allocated, claim, place
from rollout.testing.gpustack.world import World
from rollout.testing.knobs import GIB
from rollout.testing.node import SimNode


def world(*names: str) -> World:
    rows = World()
    for name in names:
        rows.add("workers", {**SimNode(name).registration(), "state": "ready"})
    return rows


def model(**fields: Any) -> dict[str, Any]:
    return {"id": 1, "name": "m", "backend": "vLLM", "backend_parameters": ["--gpu-memory-utilization=0.5"], **fields}


def occupy(rows: World, worker_id: int, gib: int) -> None:
    rows.add("model-instances", {"worker_id": worker_id, "computed_resource_claim": {"vram": {"0": gib * GIB}}})


@pytest.mark.parametrize(
    ("backend", "parameters", "gib"),
    [
        ("vLLM", ["--gpu-memory-utilization=0.25"], 32),
        ("vLLM", None, 115),
        ("SGLang", ["--mem-fraction-static=0.5"], 64),
        ("Custom", None, 8),
    ],
)
def test_claims(backend: str, parameters: list[str] | None, gib: int) -> None:
    wanted = claim(model(backend=backend, backend_parameters=parameters), 128 * GIB)
    assert wanted["vram"]["0"] // GIB == gib


def test_the_worker_with_the_most_room_is_taken() -> None:
    rows = world("a", "b")
    occupy(rows, 1, 10)
    found = place(rows, model())
    assert not isinstance(found, str)
    assert found[0]["name"] == "b"
    assert allocated(rows, 1) == 10 * GIB


def test_selectors_and_states_narrow() -> None:
    rows = world("a", "b")
    found = place(rows, model(worker_selector={"worker-name": "a"}))
    assert not isinstance(found, str)
    assert found[0]["name"] == "a"
    found = place(rows, model(gpu_selector={"gpu_ids": ["b:cuda:0"]}))
    assert not isinstance(found, str)
    assert found[0]["name"] == "b"
    rows.change("workers", 1, state="maintenance")
    reason = place(rows, model(worker_selector={"worker-name": "a"}))
    assert isinstance(reason, str)
    assert "Matched 1/2 workers by READY status" in reason


def test_no_room_says_so() -> None:
    rows = world("a")
    occupy(rows, 1, 100)
    reason = place(rows, model())
    assert isinstance(reason, str)
    assert reason.startswith("No suitable workers.\nDetails:\n- ")
    assert "28.0 GiB allocatable" in reason


def test_a_fraction_below_what_the_model_needs_never_fits() -> None:
    assert isinstance(place(world("a"), model(backend_parameters=["--gpu-memory-utilization=0.05"])), str)
