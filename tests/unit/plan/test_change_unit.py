"""One rollout changes one unit: `to` carries that unit's own fields, of the right type, pinned."""

from __future__ import annotations

import pytest

from rollout.plan.fields import FIXED, OWN, SIZING, Unit
from rollout.plan.load import parse_plan
from tests.unit.plan.kit import but, only, refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def plan(unit: str, to: str) -> str:
    return but("backend_image", unit).replace('{image_name: "sim/vllm:2"}', to)


@pytest.mark.parametrize(
    ("unit", "to"),
    [
        ("backend_image", '{image_name: "registry:5000/a/vllm:0.19.1"}'),
        ("backend_image", "{image_name: vllm@sha256:" + "a" * 64 + "}"),
        ("backend_image", '{image_name: null, backend_version: "0.19.1"}'),
        ("service_image", "{image_name: ocr:7}"),
        ("model_revision", "{source: local_path, local_path: /models/a/2026-11}"),
        ("model_revision", f'{{huggingface_repo_id: a/b, backend_parameters: ["--revision={COMMIT}"]}}'),
        ("model_revision", f"{{huggingface_repo_id: a/b, backend_parameters: [--revision, {COMMIT}]}}"),
        ("parameters", '{backend_parameters: ["--max-num-seqs=64"], env: {A: "1"}, restart_on_error: false}'),
        ("parameters", "{env: null}"),
        ("os", '{version: "24.04", kernel: 6.11.0-1014}'),
        ("driver", "{version: 580.95.05}"),
        ("worker", "{version: v2.3.1}"),
    ],
)
def test_a_unit_takes_its_own_fields(unit: str, to: str) -> None:
    assert parse_plan(plan(unit, to)).change.unit == unit


@pytest.mark.parametrize("unit", ["os", "driver", "worker"])
@pytest.mark.parametrize("field", ["image_name", "backend_parameters", "local_path", "replicas", "env"])
def test_units_of_the_node_carry_no_deployment_fields(unit: str, field: str) -> None:
    found = only(plan(unit, f"{{{field}: x}}")) if field not in ("backend_parameters", "env") else refused(plan(unit, f"{{{field}: x}}"))[0]
    assert found.key == f"change.to.{field}"
    assert "changed on the node by a person" in found.hint


@pytest.mark.parametrize("field", [f for f in SIZING if f != "worker"])
def test_sizing_is_sent_to_its_place(field: str) -> None:
    assert only(plan("parameters", f"{{{field}: 1}}")).hint.endswith(f"`canary.sizing.{SIZING[field]}`")


def test_a_field_of_another_unit_names_that_unit() -> None:
    found = refused(plan("parameters", '{image_name: "a:1", backend_paramters: []}'))
    assert [f.hint for f in found] == [
        "`image_name` belongs to the unit `backend_image` or `service_image`; one rollout changes one unit",
        "did you mean `backend_parameters`?",
    ]
    assert found[0].column < found[1].column


@pytest.mark.parametrize("field", sorted(FIXED))
def test_identity_and_what_the_server_owns_never_change(field: str) -> None:
    assert only(plan("parameters", f"{{{field}: 1}}")).hint == "a rollout never changes this field"


@pytest.mark.parametrize("image", ["vllm", "registry:5000/vllm", "vllm:latest", "vllm:main", "vllm@sha256:abc"])
def test_an_image_is_pinned(image: str) -> None:
    assert only(plan("backend_image", f'{{image_name: "{image}"}}')).expected.startswith("a pinned image")


@pytest.mark.parametrize(
    ("to", "key"),
    [
        ("{source: huggingface, huggingface_repo_id: a/b}", "change.to.huggingface_repo_id"),
        ("{huggingface_repo_id: a/b, backend_parameters: [--revision=main]}", "change.to.huggingface_repo_id"),
        ("{local_path: /m, backend_parameters: [--max-num-seqs=4]}", "change.to.backend_parameters"),
        ("{local_path: /models/a/latest/}", "change.to.local_path"),
    ],
)
def test_a_revision_is_pinned(to: str, key: str) -> None:
    assert only(plan("model_revision", to)).key == key


@pytest.mark.parametrize(
    ("unit", "to", "key", "found"),
    [
        ("backend_image", "{backend_version: 0.10}", "change.to.backend_version", "a number"),
        ("backend_image", "{image_name: [a]}", "change.to.image_name", "a list"),
        ("backend_image", "{image_name: ' '}", "change.to.image_name", "nothing"),
        ("parameters", "{backend_parameters: --a=1}", "change.to.backend_parameters", "text"),
        ("parameters", "{backend_parameters: [--a, 1]}", "change.to.backend_parameters[1]", "a number"),
        ("parameters", "{env: {A: 1}}", "change.to.env.A", "a number"),
        ("parameters", "{env: {A: true}}", "change.to.env.A", "true or false"),
        ("parameters", "{env: [A]}", "change.to.env", "a list"),
    ],
)
def test_fields_have_the_type_that_the_node_needs(unit: str, to: str, key: str, found: str) -> None:
    told = only(plan(unit, to))
    assert (told.key, told.found) == (key, found)


def test_nothing_to_change_is_refused() -> None:
    assert only(plan("parameters", "{}")).found == "an empty mapping"


def test_no_field_belongs_to_two_tables() -> None:
    owned = {field for unit in Unit for field in OWN[unit]}
    assert not owned & FIXED
    assert not owned & set(SIZING)
