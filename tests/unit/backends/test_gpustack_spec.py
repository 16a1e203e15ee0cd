"""The canary is stable plus one unit plus sizing, and nothing else; every wrong key is named with the nearest right one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.backends.gpustack_fields import FRACTION, SETTABLE, SIZING_FIELDS, UNIT_FIELDS
from rollout.backends.gpustack_spec import covers, derive_spec, diff_spec, memory_fraction, spec_of, unit_of
from rollout.errors import PlanError
from rollout.plan.model import Sizing, Unit

STABLE: dict[str, Any] = {
    "source": "huggingface",
    "huggingface_repo_id": "org/model",
    "huggingface_filename": "*Q4*.gguf",
    "backend": "vLLM",
    "backend_version": "0.20.0",
    "image_name": "vllm:0.20",
    "backend_parameters": ["--max-model-len=8192", "--gpu-memory-utilization=0.4", "--enforce-eager"],
    "env": {"A": "1", "B": "2"},
    "replicas": 2,
    "cluster_id": 1,
    "categories": ["llm"],
    "worker_selector": {"worker-name": "spark-01", "rack": "1"},
    "gpu_selector": {"gpu_ids": ["spark-01:cuda:0"], "gpus_per_replica": 1},
    "restart_on_error": True,
}


def derive(unit: str, to: dict[str, Any], sizing: dict[str, Any] | None = None) -> dict[str, Any]:
    return derive_spec(STABLE, unit, to, sizing or {}, "m-r1")


def changed(unit: str, to: dict[str, Any], sizing: dict[str, Any] | None = None) -> dict[str, Any]:
    return {field: canary for field, _, canary in diff_spec(STABLE, derive(unit, to, sizing))}


def test_what_the_server_owns_is_not_in_a_spec() -> None:
    row = {
        **STABLE,
        "id": 1,
        "name": "m",
        "state": "running",
        "ready_replicas": 2,
        "meta": {"n_ctx": 1},
        "created_at": "…",
        "degradations": ["x"],
        "env": None,
    }
    assert spec_of(row) == {k: v for k, v in STABLE.items() if k != "env"}


def test_a_spec_is_a_copy() -> None:
    row = copy.deepcopy(STABLE)
    spec_of(row)["env"]["A"] = "changed"
    derive_spec(row, "parameters", {"env": {"A": "9"}}, {"worker": "w"}, "m")
    assert row == STABLE


def test_the_canary_has_its_own_name_and_no_route() -> None:
    spec = derive("backend_image", {"image_name": "vllm:0.21"})
    assert spec["name"] == "m-r1"
    assert spec["enable_model_route"] is False


@pytest.mark.parametrize(
    ("unit", "to", "expected"),
    [
        (
            "backend_image",
            {"image_name": "vllm:0.21", "backend_version": "0.21.0"},
            {"image_name": "vllm:0.21", "backend_version": "0.21.0"},
        ),
        ("backend_image", {"image_name": None}, {"image_name": None}),
        ("service_image", {"image_name": "svc:2"}, {"image_name": "svc:2"}),
        (
            "parameters",
            {"backend_parameters": ["--max-num-seqs=4", "--gpu-memory-utilization=0.4"]},
            {"backend_parameters": ["--max-num-seqs=4"]},
        ),
        ("parameters", {"env": {"B": None, "C": "3"}}, {"env": {"A": "1", "C": "3"}}),
        ("parameters", {"env": None}, {"env": None}),
        ("parameters", {"run_command": "serve"}, {"run_command": "serve"}),
        ("model_revision", {"huggingface_filename": "*Q8*.gguf"}, {"huggingface_filename": "*Q8*.gguf"}),
        (
            "model_revision",
            {"source": "local_path", "local_path": "/models/v2"},
            {"source": "local_path", "local_path": "/models/v2", "huggingface_repo_id": None, "huggingface_filename": None},
        ),
        ("os", {"kernel_release": "6.14"}, {}),
        ("driver", {"driver_version": "590"}, {}),
        ("worker", {"worker_version": "v2.3.1"}, {}),
    ],
)
def test_one_unit_changes_its_fields_and_no_other(unit: str, to: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changed(unit, to) == expected


@pytest.mark.parametrize(
    ("unit", "key", "words"),
    [
        ("backend_image", "image_nam", "Did you mean `image_name`"),
        ("backend_image", "replicas", "canary.sizing"),
        ("backend_image", "env", "change unit `parameters`"),
        ("parameters", "image_name", "change unit `backend_image`"),
        ("parameters", "backend_paramters", "Did you mean `backend_parameters`"),
        ("model_revision", "local-path", "Did you mean `local_path`"),
        ("parameters", "worker_selector", "canary.sizing"),
        ("service_image", "zzz", "Allowed under `change.to`: image_name"),
        ("os", "image_name", "change unit `backend_image`"),
        ("parameters", "cluster_id", "`parameters` changes"),
    ],
)
def test_a_key_outside_the_unit_is_named_with_a_way_out(unit: str, key: str, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        derive(unit, {key: "x"})
    error = caught.value
    assert f"`change.to.{key}`" in error.message
    assert words in f"{error.why} {error.hint}"


@pytest.mark.parametrize(
    "to", [{"backend_parameters": "--a"}, {"backend_parameters": [1]}, {"env": "A=1"}, {"env": {"A": 1}}, {"env": {"A": True}}]
)
def test_a_value_of_the_wrong_kind_is_refused(to: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(to))):
        derive("parameters", to)


def test_sizing_moves_the_canary_to_its_worker() -> None:
    spec = derive("backend_image", {"image_name": "i"}, {"worker": "spark-02", "replicas": 1})
    assert spec["worker_selector"] == {"worker-name": "spark-02"}
    assert spec["gpu_selector"] == {"gpus_per_replica": 1}
    assert spec["replicas"] == 1


@pytest.mark.parametrize(
    ("sizing", "field", "value"),
    [
        ({"worker_selector": {"rack": "2"}}, "worker_selector", {"rack": "2"}),
        ({"worker_selector": {"rack": "2"}, "worker": "w"}, "worker_selector", {"rack": "2", "worker-name": "w"}),
        ({"gpu_selector": {"gpu_ids": ["w:cuda:1"]}, "worker": "w"}, "gpu_selector", {"gpu_ids": ["w:cuda:1"]}),
        (
            {"gpu_memory_utilization": 0.25},
            "backend_parameters",
            ["--max-model-len=8192", "--enforce-eager", "--gpu-memory-utilization=0.25"],
        ),
    ],
)
def test_sizing_sets_what_it_says(sizing: dict[str, Any], field: str, value: Any) -> None:
    assert derive("backend_image", {"image_name": "i"}, sizing)[field] == value


def test_sizing_of_the_plan_is_taken_as_it_is_dumped() -> None:
    sizing = Sizing(worker="w", gpu_memory_utilization=0.5)
    assert derive("backend_image", {"image_name": "i"}, sizing.model_dump()) == derive(
        "backend_image", {"image_name": "i"}, sizing.model_dump(exclude_none=True)
    )


def test_a_port_is_refused_with_the_reason() -> None:
    with pytest.raises(PlanError, match=r"sizing\.port"):
        derive("backend_image", {"image_name": "i"}, {"port": 8000})


@pytest.mark.parametrize(
    ("parameters", "rest", "fraction"),
    [
        (None, [], None),
        (["--a"], ["--a"], None),
        (["--gpu-memory-utilization=0.3"], [], 0.3),
        (["--gpu-memory-utilization", "0.3", "--b"], ["--b"], 0.3),
        (["--gpu-memory-utilization 0.3"], [], 0.3),
        (["--gpu_memory_utilization=0.3"], [], 0.3),
        (["--gpu-memory-utilization=0.3", "--gpu-memory-utilization=0.5"], [], 0.5),
        (["--gpu-memory-utilization-check=1"], ["--gpu-memory-utilization-check=1"], None),
        (["--gpu-memory-utilization=none"], [], None),
        (["--gpu-memory-utilization"], [], None),
    ],
)
def test_the_memory_fraction_is_found_however_it_is_written(parameters: list[str] | None, rest: list[str], fraction: float | None) -> None:
    assert memory_fraction(parameters) == (rest, fraction)


def test_the_fraction_alone_is_sizing_and_not_a_parameter() -> None:
    assert changed("backend_image", {}, {"gpu_memory_utilization": 0.25}) == {FRACTION: 0.25}
    assert unit_of(FRACTION) is None


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("image_name", Unit.BACKEND_IMAGE),
        ("backend_version", Unit.BACKEND_IMAGE),
        ("local_path", Unit.MODEL_REVISION),
        ("env", Unit.PARAMETERS),
        ("driver_version", Unit.DRIVER),
        ("replicas", None),
        ("cluster_id", None),
        ("no_such_field", None),
    ],
)
def test_each_field_belongs_to_one_unit(field: str, unit: Unit | None) -> None:
    assert unit_of(field) is unit


def test_unset_empty_and_absent_are_the_same() -> None:
    assert diff_spec({"env": {}, "gpu_selector": None, "categories": []}, {"worker_selector": {}}) == []


def test_every_unit_field_of_a_deployment_can_be_set() -> None:
    hosts = {Unit.OS, Unit.DRIVER, Unit.WORKER}
    assert {f for unit, fields in UNIT_FIELDS.items() if unit not in hosts for f in fields} <= SETTABLE
    assert set(UNIT_FIELDS) == set(Unit)


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, True),
        ({"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, True),
        ({"a": 1}, {"a": 2}, False),
        (None, {"a": 1}, False),
        ([1, 2], [1], False),
        ([{"a": 1, "z": 0}], [{"a": 1}], True),
        ("x", "x", True),
        (1, True, True),
    ],
)
def test_covering_ignores_what_the_server_adds(found: Any, wanted: Any, answer: bool) -> None:
    assert covers(found, wanted) is answer


UNITS = [Unit.BACKEND_IMAGE, Unit.SERVICE_IMAGE, Unit.PARAMETERS, Unit.MODEL_REVISION]
TEXT = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=6)
VALUES = {"backend_parameters": st.lists(TEXT, max_size=3), "env": st.dictionaries(TEXT, st.none() | TEXT, max_size=3)}
SIZINGS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(1, 4),
        "worker": TEXT,
        "worker_selector": st.dictionaries(TEXT, TEXT, max_size=2),
        "gpu_selector": st.fixed_dictionaries({"gpus_per_replica": st.integers(1, 4)}),
        "gpu_memory_utilization": st.floats(0.1, 1.0),
    },
)


@given(unit=st.sampled_from(UNITS), data=st.data(), sizing=SIZINGS)
def test_no_second_unit_ever_changes(unit: Unit, data: st.DataObject, sizing: dict[str, Any]) -> None:
    keys = data.draw(st.sets(st.sampled_from(UNIT_FIELDS[unit])))
    to = {key: data.draw(VALUES.get(key, TEXT | st.none())) for key in sorted(keys)}
    fields = {field for field, _, _ in diff_spec(STABLE, derive(unit, to, sizing))}
    assert fields <= {*UNIT_FIELDS[unit], *SIZING_FIELDS}
