"""Probe routes and deployments: names decide, foreign things are left alone, private means private from the first instant."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.backends.gpustack_owner import owner_of
from rollout.clients.secret import Secret
from rollout.errors import Refused
from tests.unit.backends.gpustack_double import Double, recipe, run

SPEC = {
    "source": "local_path",
    "local_path": "/models/a",
    "replicas": 2,
    "backend": "vLLM",
    "env": {"A": "1"},
    "gpu_selector": {"gpu_ids": ["w:cuda:0"]},
}


def world() -> Double:
    double = Double()
    double.model("m-a", **SPEC)
    double.model("m-b", ready_replicas=0)
    double.route("chat", {"m-a": 100}, meta={"owner": "team", "n": {"deep": [1]}})
    return double


def test_a_probe_route_is_private_before_it_has_a_target() -> None:
    double = world()
    open_with_target: list[bool] = []
    answer = double.answer

    def watched(request: httpx.Request) -> httpx.Response:
        result = answer(request)
        for row in double.tables["routes"].values():
            if row["name"] == "probe-1":
                has_target = bool(double.weights("probe-1"))
                open_with_target.append(has_target and row["access_policy"] != "allowed_principals")
        return result

    double.answer = watched  # type: ignore[method-assign]
    receipt = double.perform("create_probe_route", name="probe-1", deployment="m-a")
    assert len(open_with_target) > 3
    assert not any(open_with_target)
    assert receipt["principal"] == 1
    assert receipt["active"] is True
    assert double.perform("create_probe_route", name="probe-1", deployment="m-a")["already"] is True


def test_a_probe_route_to_a_deployment_that_does_not_run_yet_is_not_waited_for() -> None:
    double = world()
    assert double.perform("create_probe_route", name="probe-b", deployment="m-b")["active"] is False
    assert double.clock.seconds < 1


def test_a_probe_route_that_was_opened_is_closed_again() -> None:
    double = world()
    double.perform("create_probe_route", name="probe-1", deployment="m-a")
    double.named("routes", "probe-1")["access_policy"] = "authed"
    double.perform("create_probe_route", name="probe-1", deployment="m-a")
    assert double.named("routes", "probe-1")["access_policy"] == "allowed_principals"


def test_a_foreign_route_of_that_name_is_neither_used_nor_deleted() -> None:
    double = world()
    for verb, args in (("create_probe_route", {"deployment": "m-a"}), ("delete_probe_route", {})):
        with pytest.raises(Refused, match="chat"):
            double.perform(verb, name="chat", **args)
    assert double.writes() == []


def test_a_probe_route_to_another_deployment_is_a_clash() -> None:
    double = world()
    double.perform("create_probe_route", name="probe-1", deployment="m-a")
    with pytest.raises(Refused, match="m-b"):
        double.perform("create_probe_route", name="probe-1", deployment="m-b")


def test_deleting_a_probe_route_twice_is_deleting_it_once() -> None:
    double = world()
    double.perform("create_probe_route", name="probe-1", deployment="m-a")
    assert double.perform("delete_probe_route", name="probe-1")["already"] is False
    assert double.perform("delete_probe_route", name="probe-1")["already"] is True


# --- deployments


def test_a_deployment_is_derived_from_what_runs_and_has_no_route() -> None:
    double = world()
    double.named("models", "m-a").update(meta={"n_ctx": 1}, ready_replicas=2)
    receipt = double.perform("create_deployment", **recipe(double, "m-a", "m-new", sizing={"worker": "spark-02", "replicas": 1}))
    body = next(body for method, _, body in double.calls if method == "POST")
    wanted = {**SPEC, "env": {"A": "1", "NEW": "1"}, "replicas": 1, "worker_selector": {"worker-name": "spark-02"}}
    del wanted["gpu_selector"]
    assert body == {**wanted, "name": "m-new", "enable_model_route": False}
    assert receipt["id"] == double.named("models", "m-new")["id"]


def test_the_same_spec_with_the_servers_defaults_is_the_same_deployment() -> None:
    double = world()
    args = recipe(double, "m-a", "m-new")
    found = {**SPEC, "env": {"A": "1", "NEW": "1"}, "gpu_selector": {"gpu_ids": ["w:cuda:0"], "gpus_per_replica": None}}
    double.model("m-new", **{**found, "placement_strategy": "spread", "replicas": 0})
    assert double.perform("create_deployment", **args)["already"] is True


@pytest.mark.parametrize(("field", "value"), [("backend", "SGLang"), ("env", {"A": "1"}), ("env", None), ("local_path", "/models/b")])
def test_a_name_with_another_spec_is_a_clash_that_names_the_field(field: str, value: Any) -> None:
    double = world()
    double.model("m-new", **{**SPEC, "env": {"A": "1", "NEW": "1"}, field: value})
    with pytest.raises(Refused, match="m-new") as caught:
        double.perform("create_deployment", **recipe(double, "m-a", "m-new"))
    assert field in caught.value.why
    assert double.writes() == []


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_a_base_that_is_not_as_declared_makes_nothing(change: str) -> None:
    double = world()
    args = recipe(double, "m-a", "m-new")
    if change == "changed":
        double.named("models", "m-a")["backend_parameters"] = ["--enforce-eager"]
    else:
        del double.tables["models"][double.named("models", "m-a")["id"]]
    with pytest.raises(Refused, match="m-a"):
        double.perform("create_deployment", **args)
    assert double.writes() == []


def test_a_deployment_that_a_route_uses_is_not_deleted() -> None:
    double = world()
    double.route("other", {"m-a": 1})
    with pytest.raises(Refused) as caught:
        double.perform("delete_deployment", name="m-a")
    assert "chat, other" in caught.value.message
    assert double.writes() == []


def test_a_route_that_begins_to_use_it_between_two_tries_stops_the_deletion() -> None:
    double = world()
    double.model("m-free")

    def claimed(d: Double, _request: httpx.Request) -> httpx.Response:
        d.route("sudden", {"m-free": 1})
        return httpx.Response(503, json={"message": "busy"})

    double.fault("DELETE", "models", claimed)
    with pytest.raises(Refused, match="sudden"):
        double.perform("delete_deployment", name="m-free")
    assert "m-free" in [row["name"] for row in double.tables["models"].values()]


def test_our_own_probe_route_does_not_keep_a_deployment() -> None:
    double = world()
    double.model("m-free")
    double.perform("create_probe_route", name="probe-1", deployment="m-free")
    double.perform("delete_deployment", name="m-free")
    assert double.perform("delete_deployment", name="m-free")["already"] is True


# --- whose key


class Directory:
    """Users and keys as the server lists them."""

    def __init__(self, keys: list[tuple[str, str]] | None, users: dict[str, int]) -> None:
        self.keys, self.users_by_name = keys, users

    async def me(self) -> Any:
        return Entry(id=1, username="admin")

    async def users(self) -> list[Any]:
        return [Entry(id=number, username=name) for name, number in self.users_by_name.items()]

    async def api_keys(self) -> list[Any]:
        if self.keys is None:
            raise Refused("no")
        return [Entry(user_name=user, masked_value=masked) for user, masked in self.keys]


class Entry:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


KEY = Secret("gpustack_cb45aaaa_0123")
USERS = {"admin": 1, "prober": 7}


@pytest.mark.parametrize(
    ("keys", "principal", "expected"),
    [
        ([("admin", "gpustack_cb45***")], None, 1),
        ([("prober", "gpustack_cb45***"), ("admin", "gpustack_0000***")], None, 7),
        ([("prober", "gpustack_cb45***"), ("admin", "gpustack_cb45***")], None, 1),
        ([("prober", "gpustack_***")], None, 1),
        ([("prober", "Custom API Key")], None, 1),
        ([], None, 1),
        (None, None, 1),
        ([], "prober", 7),
        ([], 42, 42),
    ],
)
def test_the_owner_of_the_inference_key_is_found(keys: list[tuple[str, str]] | None, principal: Any, expected: int) -> None:
    assert run(owner_of(Directory(keys, USERS), principal, KEY)) == expected  # type: ignore[arg-type]


def test_an_owner_that_cannot_be_told_or_does_not_exist_is_refused() -> None:
    two = Directory([("prober", "gpustack_cb45***"), ("other", "gpustack_cb45***")], USERS)
    with pytest.raises(Refused, match="cannot be told"):
        run(owner_of(two, None, KEY))  # type: ignore[arg-type]
    with pytest.raises(Refused, match="nobody"):
        run(owner_of(two, "nobody", KEY))  # type: ignore[arg-type]
