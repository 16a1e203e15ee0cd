"""Lost answers, hangs, 409, 500 and silence: the wanted end is reached once, or the error says that it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from rollout.errors import BadAnswer, Refused, Unreachable
from tests.unit.backends.gpustack_double import Double, Fault, broken, broken_after, error, garbled_after, hang, ignored, late, lost, recipe


@dataclass(frozen=True)
class Case:
    """One effect, the write of it that meets the fault, and what must be true afterwards."""

    verb: str
    args: dict[str, Any]
    method: str
    path: str
    holds: Callable[[Double], bool]


CASES = [
    Case(
        "join",
        {"route": "chat", "deployment": "m-b", "weight": 5},
        "PUT",
        "model-routes",
        lambda d: d.weights("chat") == {"m-a": 100, "m-b": 5},
    ),
    Case(
        "set_weight",
        {"route": "duo", "deployment": "m-b", "weight": 9},
        "PUT",
        "targets",
        lambda d: d.weights("duo") == {"m-a": 100, "m-b": 9},
    ),
    Case("leave", {"route": "duo", "deployment": "m-b"}, "DELETE", "targets", lambda d: d.weights("duo") == {"m-a": 100}),
    Case("twin", {"route": "chat", "deployment": "m-a", "weight": 900}, "PUT", "model-routes", lambda d: d.weights("chat") == {"m-a": 900}),
    Case("twin", {"route": "chat", "deployment": "m-a", "weight": 900}, "DELETE", "targets", lambda d: d.weights("chat") == {"m-a": 900}),
    Case("refresh", {"route": "chat"}, "PUT", "model-routes", lambda d: d.weights("chat") == {"m-a": 100}),
    Case(
        "mark_route",
        {"route": "chat", "marker": {"id": "r"}},
        "PUT",
        "model-routes",
        lambda d: d.named("routes", "chat")["meta"] == {"team": "x", "rollout": {"id": "r"}},
    ),
    Case("unmark_route", {"route": "duo"}, "PUT", "model-routes", lambda d: d.named("routes", "duo")["meta"] == {"team": "y"}),
    Case("create_deployment", {"base": "m-a", "name": "m-new"}, "POST", "models", lambda d: names(d, "models").count("m-new") == 1),
    Case("delete_deployment", {"name": "m-free"}, "DELETE", "models", lambda d: "m-free" not in names(d, "models")),
    Case("scale", {"name": "m-free", "replicas": 0}, "PUT", "models", lambda d: d.named("models", "m-free")["replicas"] == 0),
    Case(
        "delete_file",
        {"id": 99, "worker": "spark-01", "source": "local_path /old", "paths": ["/old"]},
        "DELETE",
        "model-files",
        lambda d: d.tables["files"] == {},
    ),
    Case("create_probe_route", {"name": "probe", "deployment": "m-b"}, "POST", "model-routes", lambda d: private(d, "probe", "m-b")),
    Case("create_probe_route", {"name": "probe", "deployment": "m-b"}, "POST", "access", lambda d: private(d, "probe", "m-b")),
    Case("create_probe_route", {"name": "probe", "deployment": "m-b"}, "PUT", "model-routes", lambda d: private(d, "probe", "m-b")),
    Case("delete_probe_route", {"name": "old-probe"}, "DELETE", "model-routes", lambda d: "old-probe" not in names(d, "routes")),
]
IDS = [f"{c.verb}-{c.method}-{c.path}" for c in CASES]


def names(double: Double, kind: str) -> list[str]:
    return [row["name"] for row in double.tables[kind].values()]


def private(double: Double, route: str, model: str) -> bool:
    row = double.named("routes", route)
    closed = row["access_policy"] == "allowed_principals" and double.access[row["id"]] == [{"principal_type": "user", "principal_id": 1}]
    return closed and list(double.weights(route)) == [model] and names(double, "routes").count(route) == 1


def perform(double: Double, case: Case) -> dict[str, Any]:
    args = recipe(double, **case.args) if case.verb == "create_deployment" else case.args
    return double.perform(case.verb, **args)


def world() -> Double:
    double = Double()
    for name in ("m-a", "m-b", "m-free"):
        double.model(name)
    double.tables["files"][99] = {"id": 99, "source": "local_path", "local_path": "/old", "worker_id": 1, "resolved_paths": ["/old"]}
    double.route("chat", {"m-a": 100}, meta={"team": "x"})
    double.route("duo", {"m-a": 100, "m-b": 5}, meta={"team": "y", "rollout": {"id": "mine"}})
    double.route("old-probe", {"m-b": 100}, meta={"rollout-probe": "m-b"}, access_policy="allowed_principals")
    return double


@pytest.mark.parametrize("fault", [lost, hang, late, broken, broken_after, garbled_after])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_one_fault_does_not_change_the_end(case: Case, fault: Fault) -> None:
    double = world()
    double.fault(case.method, case.path, fault)
    if (case.verb, fault) == ("refresh", garbled_after):
        with pytest.raises(BadAnswer):
            perform(double, case)
    else:
        perform(double, case)
    assert double.faults == []
    assert case.holds(double)
    assert perform(double, case).get("already", True) is True
    assert case.holds(double)


@pytest.mark.parametrize("case", [c for c in CASES if c.verb != "refresh"], ids=[i for i in IDS if "refresh" not in i])
def test_a_write_that_was_applied_is_not_sent_twice(case: Case) -> None:
    double = world()
    double.fault(case.method, case.path, lost)
    perform(double, case)
    clean = world()
    perform(clean, case)
    assert double.writes() == clean.writes()


@pytest.mark.parametrize("fault", [hang, broken])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_fault_that_stays_ends_as_unreachable_after_a_bounded_number_of_calls(case: Case, fault: Fault) -> None:
    double = world()
    for _ in range(20):
        double.fault(case.method, case.path, fault)
    with pytest.raises(Unreachable):
        perform(double, case)
    assert 20 - len(double.faults) <= 3 + 3
    assert double.clock.seconds < 30


@pytest.mark.parametrize("case", [c for c in CASES if c.verb != "refresh"], ids=[i for i in IDS if "refresh" not in i])
def test_accepted_and_silently_not_applied_is_an_error(case: Case) -> None:
    double = world()
    double.fault(case.method, case.path, ignored)
    with pytest.raises(BadAnswer, match="does not show it"):
        perform(double, case)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_the_server_refuses_is_refused_at_once(case: Case) -> None:
    double = world()
    for _ in range(5):
        double.fault(case.method, case.path, lambda _d, _r: error(422, "either every target carries a positive weight or none may"))
    with pytest.raises(Refused) as caught:
        perform(double, case)
    assert "positive weight" in caught.value.why
    assert len(double.faults) == 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_look_that_fails_leaves_the_outcome_open(when: str) -> None:
    double = world()

    def dark(_d: Double, _r: httpx.Request) -> httpx.Response:
        return error(503, "down")

    def then_dark(d: Double, request: httpx.Request) -> httpx.Response:
        for _ in range(9):
            d.fault("GET", "targets", dark)
        return lost(d, request)

    if when == "before":
        for _ in range(9):
            double.fault("GET", "targets", dark)
    else:
        double.fault("PUT", "targets", then_dark)
    with pytest.raises(Unreachable):
        double.perform("set_weight", route="duo", deployment="m-b", weight=9)
    assert len(double.writes()) == (0 if when == "before" else 1)


def test_the_echo_of_our_own_create_is_not_a_clash() -> None:
    double = world()

    def applied_then_409(d: Double, request: httpx.Request) -> httpx.Response:
        d.really(request)
        return d.really(request)

    double.fault("POST", "models", applied_then_409)
    receipt = double.perform("create_deployment", **recipe(double, "m-a", "m-new"))
    assert receipt["id"] == double.named("models", "m-new")["id"]


def test_a_409_without_anything_of_that_name_is_refused() -> None:
    double = world()
    double.fault("POST", "models", lambda _d, _r: error(409, "a route of that name exists"))
    with pytest.raises(Refused, match="409"):
        double.perform("create_deployment", **recipe(double, "m-a", "m-new"))
    assert len(double.writes()) == 1
