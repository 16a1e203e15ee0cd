"""A world holds what was read in this tick; the unknown stays unknown, and lists that contradict each other are read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from rollout.domain.world import DeploymentView, EngineSample, Scope, WorkerView, World
from rollout.errors import BadAnswer, Refused, Unreachable
from tests.unit.backends.gpustack_double import NOW, Double, error, run

SCOPE = Scope("chat", ("m-a", "m-new"), ("probe-1", "probe-2"))


def world() -> Double:
    double = Double()
    model = double.model("m-a", backend="vLLM", env={"A": "1"})
    double.model("m-b")
    double.model("m-unrelated")
    double._add("instances", instance(model["id"], "m-a-x", restart_count=2, state_message="fine"))
    double._add("workers", {"name": "spark-01", "state": "ready"})
    double.route("chat", {"m-a": 90, "m-b": 10}, meta={"team": "x"})
    double.route("other", {"m-a": 1})
    double.route("probe-1", {"m-a": 100}, access_policy="allowed_principals")
    return double


def instance(model_id: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "model_id": model_id, "state": "running", "worker_name": "spark-01", **fields}


def seen(double: Double, scope: Scope = SCOPE, **options: Any) -> World:
    return run(double.backend(**options).observe(scope))


def test_a_world_has_the_route_its_deployments_and_nothing_unrelated() -> None:
    found = seen(world())
    assert found.route is not None
    assert [(t.deployment, t.weight, t.active) for t in found.route.targets] == [("m-a", 90, True), ("m-b", 10, True)]
    assert (found.route.meta, found.route.ready_targets, found.server_version, found.now) == ({"team": "x"}, 2, "v2.3.0", NOW)
    assert set(found.deployments) == {"m-a", "m-b"}
    assert set(found.probe_routes) == {"probe-1"}
    assert found.deployments["m-a"].routes == ("chat", "other", "probe-1")
    assert found.deployments["m-a"].spec["env"] == {"A": "1"}
    copy = found.deployments["m-a"].instances[0]
    assert (copy.name, copy.running, copy.worker, copy.restarts, copy.message) == ("m-a-x", True, "spark-01", 2, "fine")


def test_a_route_that_is_gone_is_absent() -> None:
    found = seen(world(), Scope("gone", ()))
    assert (found.route, found.deployments, found.probe_routes) == (None, {}, {})


def test_a_target_of_something_else_has_no_deployment_but_keeps_its_options() -> None:
    double = world()
    double.target("chat", None, 5, provider_id=3, overridden_model_name="gpt", name="t")
    found = seen(double)
    assert found.route is not None
    other = found.route.targets[-1]
    assert (other.deployment, other.model_id, other.extra) == (None, None, {"provider_id": 3, "overridden_model_name": "gpt"})


@pytest.mark.parametrize(
    ("memory", "total", "available", "unified"),
    [
        ({"total": 100, "used": 30, "is_unified_memory": True}, 100, 70, True),
        ({"total": 0, "used": 0, "is_unified_memory": False}, None, None, False),
        ({"total": None, "used": 5}, None, None, None),
        ({"total": 100}, 100, None, None),
        ({"total": 100, "used": None}, 100, None, None),
        ({"total": 100, "used": 130}, 100, 0, None),
        ({"total": 100, "used": 0}, 100, 100, None),
        ({}, None, None, None),
        (None, None, None, None),
    ],
)
def test_memory_that_is_not_said_is_unknown_and_never_free(memory: Any, total: Any, available: Any, unified: Any) -> None:
    double = Double()
    double._add("workers", {"name": "w", "state": "ready", "status": {"memory": memory}})
    view = seen(double).workers["w"]
    assert (view.memory_total, view.memory_available, view.unified) == (total, available, unified)


@pytest.mark.parametrize(
    ("heartbeat", "age"),
    [
        ("2026-01-01T11:59:30Z", 30.0),
        ("2026-01-01T11:59:30", 30.0),
        ("2026-01-01T13:00:00+01:00", 0.0),
        ("2026-01-01T12:00:09Z", 0.0),
        (None, None),
    ],
)
def test_the_age_of_a_heartbeat(heartbeat: str | None, age: float | None) -> None:
    double = Double()
    double._add("workers", {"name": "w", "state": "not_ready", "heartbeat_time": heartbeat})
    assert seen(double).workers["w"] == WorkerView(1, "w", "not_ready", age, None, None, None)


def once(double: Double, part: str, change: Any) -> None:
    """The next reading of that list sees `change(items)`."""

    def fault(d: Double, request: httpx.Request) -> httpx.Response:
        body = d.really(request).json()
        body["items"] = change(body["items"])
        body["pagination"]["total"] = len(body["items"])
        return httpx.Response(200, json=body)

    double.fault("GET", part, fault)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("model-route-targets", lambda rows: [r for r in rows if r["weight"] != 10]),
        ("/models", lambda rows: [r for r in rows if r["name"] != "m-b"]),
    ],
)
def test_lists_that_contradict_each_other_are_read_again(part: str, change: Any) -> None:
    double = world()
    once(double, part, change)
    found = seen(double)
    assert found.route is not None
    assert [(t.deployment, t.weight) for t in found.route.targets] == [("m-a", 90), ("m-b", 10)]
    assert sum(path == "/v2/models" for _, path, _ in double.calls) == 2


def test_a_lasting_contradiction_ends_with_the_last_reading() -> None:
    double = world()
    double.target("chat", "m-a", 1)["model_id"] = 999
    found = seen(double)
    assert found.route is not None
    assert found.route.targets[-1].deployment is None
    assert sum(path == "/v2/models" for _, path, _ in double.calls) == 3


@pytest.mark.parametrize("part", ["version", "model-routes", "model-route-targets", "models", "model-instances", "workers"])
@pytest.mark.parametrize(("status", "kind"), [(503, Unreachable), (403, Refused), (200, BadAnswer)])
def test_one_list_that_cannot_be_read_is_an_error_and_not_an_emptier_world(part: str, status: int, kind: type[Exception]) -> None:
    double = world()
    for _ in range(2):
        double.fault("GET", part, lambda _d, _r: error(status, "no"))
    with pytest.raises(kind):
        seen(double)


class Recorder:
    """A sample source that keeps what it was given."""

    def __init__(self) -> None:
        self.given: tuple[Any, Any] | None = None

    async def read(self, deployments: Mapping[str, DeploymentView], workers_raw: Sequence[Mapping[str, Any]]) -> Mapping[str, EngineSample]:
        self.given = (deployments, workers_raw)
        return {name: EngineSample(NOW, "NO_METRIC") for name in deployments}


def test_samples_are_read_for_what_exists_with_the_rows_that_lead_there() -> None:
    double = world()
    double._add("instances", instance(double.named("models", "m-unrelated")["id"], "other", port=1))
    double.named("instances", "m-a-x")["port"] = 40001
    source = Recorder()
    found = seen(double, Scope("chat", ("m-a",), (), ("m-a", "m-gone")), samples=source)
    assert set(found.samples) == {"m-a"}
    assert source.given is not None
    deployments, workers = source.given
    assert set(deployments) == {"m-a"}
    assert [(w["name"], [(i["name"], i["port"]) for i in w["instances"]]) for w in workers] == [("spark-01", [("m-a-x", 40001)])]


def test_nothing_to_sample_asks_nobody() -> None:
    source = Recorder()
    assert seen(world(), samples=source).samples == {}
    assert source.given is None


def test_every_write_effect_is_known_and_nothing_else() -> None:
    from rollout.domain.effects import MEASURES, WRITES

    backend = Double().backend()
    assert all(backend.knows(verb) for verb in WRITES)
    assert not any(backend.knows(verb) for verb in (*MEASURES, "", "observe"))
    with pytest.raises(Exception, match="does not carry out `probe`"):
        run(backend.perform("probe", {}))
