"""A plan from a live route: valid but for the one value that is a person's, with what was found and guessed, and without secrets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollout.domain.world import DeploymentView, InstanceView, RouteView, TargetView, WorkerView, World
from rollout.errors import PlanError
from rollout.plan.load import parse_plan
from rollout.plan.model import GPUStack, Plan, SecretRef, Unit
from rollout.report.draft import STAND_IN, Draft, draft
from tests.unit.report.samples import NOW

AT = GPUStack(server="http://gpustack.lan:30080", management_key=SecretRef(env="MKEY"), inference_key=SecretRef(file="/run/keys/i"))
SPEC: dict[str, Any] = {"name": "chat-a", "image_name": "sim/vllm:1", "backend": "Custom"}


def deployment(name: str, worker: str, **spec: Any) -> DeploymentView:
    made = {**SPEC, "name": name, **spec}
    return DeploymentView(len(name), name, 1, 1, "running", made, (InstanceView(1, f"{name}-0", "running", worker),), ("chat",))


def worker(name: str, free: int | None = 64, state: str = "ready") -> WorkerView:
    return WorkerView(len(name), name, state, 1.0, 128 << 30, None if free is None else free << 30, True)


def world(*targets: TargetView, lb: str | None = "weighted", **spec: Any) -> World:
    found = targets or (TargetView(1, 1, "chat-a", 100, "active"),)
    names = [t.deployment for t in found if t.deployment]
    route = RouteView(4, "chat", found, lb, {}, "authed")
    workers = {w.name: w for w in (worker("spark-01"), worker("spark-02"), worker("staging", 32))}
    return World(NOW, "v2.3.0", route, {n: deployment(n, f"spark-{i:02}", **spec) for i, n in enumerate(names, 1)}, workers=workers)


def made(seen: World, unit: Unit = Unit.BACKEND_IMAGE) -> Draft:
    assert seen.route is not None
    return draft(seen, AT, seen.route, unit, NOW)


def filled(found: Draft, unit: Unit = Unit.BACKEND_IMAGE) -> Plan:
    """With the value that a person fills in."""
    import json

    return parse_plan(found.text.replace("to: {}", f"to: {json.dumps(STAND_IN[unit])}"), "chat.yaml")


@pytest.mark.parametrize("unit", list(Unit))
def test_it_is_valid_but_for_the_one_value_that_is_a_persons(unit: Unit) -> None:
    found = made(world(), unit)
    with pytest.raises(PlanError) as error:
        parse_plan(found.text, "chat.yaml")
    assert len(error.value.findings) == 1, error.value.findings
    assert "change.to" in str(error.value.findings[0])
    plan = filled(found, unit)
    assert plan.change.unit == unit
    assert [s.deployment for s in plan.stable] == ["chat-a"]


def test_what_was_guessed() -> None:
    """Staging where the name says so, the canary beside neither stable nor staging, the sparse ladder without known traffic."""
    found = made(world())
    plan = filled(found)
    assert plan.stage.worker == "staging"
    assert plan.canary.sizing.worker == "spark-02"
    assert plan.ladder == (50.0, 100.0)
    assert "an unknown rate of requests (sparse)" in found.text
    assert '"image_name": "sim/vllm:1"' in found.text
    assert found.problems == ()


def test_keys_are_references() -> None:
    plan = filled(made(world()))
    assert plan.gpustack.management_key == SecretRef(env="MKEY")
    assert plan.gpustack.inference_key == SecretRef(file="/run/keys/i")


SECRETS = {
    "env": {"HF_TOKEN": "s3cr3t-canary", "MODE": "s3cr3t-canary"},
    "run_command": "serve --api-key s3cr3t-canary --port {{port}} --admin-token=s3cr3t-canary",
    "backend_parameters": ["--api-key", "s3cr3t-canary", "--auth-token=s3cr3t-canary", "--max-num-seqs=64"],
}


@pytest.mark.parametrize("unit", list(Unit))
def test_nothing_secret_is_copied(unit: Unit) -> None:
    found = made(world(**SECRETS), unit)
    assert "s3cr3t-canary" not in found.text
    if unit is Unit.PARAMETERS:
        assert "--max-num-seqs=64" in found.text
        assert "MODE" in found.text


def test_several_targets_keep_the_rungs_that_can_be_written_beside_them() -> None:
    """Weight 1 beside others: only one half can be expressed; the ladder has no rung between 50 and 100."""
    seen = world(TargetView(1, 1, "chat-a", 1, "active"), TargetView(2, 2, "chat-b", 1, "active"))
    found = made(seen)
    assert filled(found).ladder == (50.0, 100.0)
    assert [s.deployment for s in filled(found).stable] == ["chat-a", "chat-b"]
    assert found.problems == ()


def test_targets_that_differ_may_be_a_canary_by_hand() -> None:
    seen = world(TargetView(1, 1, "chat-a", 90, "active"), TargetView(2, 2, "chat-b", 10, "active"))
    other = {**seen.deployments, "chat-b": deployment("chat-b", "spark-02", image_name="sim/vllm:2")}
    found = made(dataclasses.replace(seen, deployments=other))
    assert any("differ in image_name" in note and "rollout adopt" in note for note in found.notes)


@pytest.mark.parametrize(
    ("seen", "unit", "said"),
    [
        (world(lb="by-moon"), Unit.BACKEND_IMAGE, "balances by `by-moon`"),
        (world(), Unit.DRIVER, "changes a host"),
        (world(TargetView(1, None, None, 100, "active", {"provider_id": 3})), Unit.BACKEND_IMAGE, "there is nothing to replace"),
        (world(TargetView(1, 1, "chat-a", 0, "active")), Unit.BACKEND_IMAGE, "has no weights"),
        (world(TargetView(1, 1, "chat-a", 100, "unavailable")), Unit.BACKEND_IMAGE, "is unavailable"),
    ],
)
def test_a_route_that_cannot_be_rolled_gets_its_plan_and_says_why(seen: World, unit: Unit, said: str) -> None:
    found = made(seen, unit)
    assert any(said in one for one in found.problems), found.problems
    assert "# THIS ROUTE CANNOT BE ROLLED AS IT IS:" in found.text
    assert said in found.text
    assert filled(found, unit).route.name == "chat"


def test_without_a_free_worker_the_place_is_marked() -> None:
    seen = dataclasses.replace(world(), workers={"spark-01": worker("spark-01"), "broken": worker("broken", state="unreachable")})
    found = made(seen)
    assert 'stage: {worker: "FILL-IN"}' in found.text
    assert filled(found).stage.worker == "FILL-IN"


def test_fallback_and_provider_targets_are_left_out_and_named() -> None:
    seen = world(
        TargetView(1, 1, "chat-a", 100, "active"),
        TargetView(2, 2, "chat-b", 1, "active", {"fallback_status_codes": ["5xx"]}),
        TargetView(3, None, None, 5, "active", {"provider_id": 3}),
    )
    found = made(seen)
    assert [s.deployment for s in filled(found).stable] == ["chat-a"]
    assert any("chat-b is a fallback target" in note for note in found.notes)
    assert any("target 3 leads to no deployment" in note for note in found.notes)


ZEROS = (TargetView(1, 1, "chat-a", 0, "active"), TargetView(2, 2, "chat-b", 0, "active"))


@pytest.mark.parametrize(
    "more",
    [
        (),
        (TargetView(3, 3, "chat-c", 3, "active", {"fallback_status_codes": ["5xx"]}),),
        (TargetView(4, None, None, 0, "active", {"provider_id": 3}),),
    ],
    ids=["alone", "fallback with a weight", "provider"],
)
@pytest.mark.parametrize("lb", ["scoring", None])
def test_several_targets_without_weights_get_a_plan_that_lacks_the_conversion_alone(lb: str | None, more: tuple[TargetView, ...]) -> None:
    found = made(world(*ZEROS, *more, lb=lb))
    assert [one.split(" (")[0] for one in found.problems] == ["route `chat` has no weights"]
    plan = filled(found)
    assert plan.ladder == (50.0, 100.0)
    assert [s.deployment for s in plan.stable] == ["chat-a", "chat-b"]


def test_a_weight_of_zero_beside_others_is_nothing_to_replace() -> None:
    """2.2 takes it; a canary of such a target could not get a share."""
    found = made(world(TargetView(1, 1, "chat-a", 100, "active"), ZEROS[1], lb=None))
    assert [s.deployment for s in filled(found).stable] == ["chat-a"]
    assert found.problems == ()
    assert any("chat-b has weight 0 beside others" in note for note in found.notes)
