"""Targets: one changes at a time, siblings keep everything, and the route never runs empty."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.errors import BadAnswer, Refused
from tests.unit.backends.gpustack_double import Double, ignored

EXTRA = {"max_running_requests": 7, "overridden_model_name": "m-c:lora", "brand_new_option": {"a": 1}}


def pair(stable: int = 100, canary: int | None = None) -> Double:
    double = Double()
    for name in ("m-a", "m-b", "m-c"):
        double.model(name)
    double.route("chat", {"m-a": stable} | ({"m-b": canary} if canary else {}))
    return double


def target_of(double: Double, model: str) -> dict[str, Any]:
    return next(t for t in double.tables["targets"].values() if t.get("model_id") == double.named("models", model)["id"])


def test_joining_keeps_every_field_of_every_sibling() -> None:
    double = pair()
    double.target("chat", "m-c", 50, **EXTRA)
    double.target("chat", None, 9, provider_id=3, overridden_model_name="gpt")
    double.target("chat", "m-c", 1, fallback_status_codes=["5xx"])
    before = {key: dict(row) for key, row in double.tables["targets"].items()}
    receipt = double.perform("join", route="chat", deployment="m-b", weight=5)
    after = double.tables["targets"]
    assert {key: after[key] for key in before} == before
    assert after[receipt["id"]]["weight"] == 5
    assert (receipt["already"], receipt["active"]) == (False, True)
    assert len(double.writes()) == 1


def test_joining_again_writes_nothing() -> None:
    double = pair(100, 5)
    assert double.perform("join", route="chat", deployment="m-b", weight=5)["already"] is True
    assert double.writes() == []


def test_joining_where_it_is_with_another_weight_reweights_that_one_target() -> None:
    double = pair(100, 5)
    double.perform("join", route="chat", deployment="m-b", weight=11)
    assert double.weights("chat") == {"m-a": 100, "m-b": 11}
    assert [method for method, _ in double.writes()] == ["PUT"]
    assert "/v2/model-route-targets/" in double.writes()[0][1]


def test_a_stable_target_comes_back_with_its_optional_fields() -> None:
    double = pair(100)
    found = {"max_running_requests": 3, "id": 999, "route_id": 77, "state": "active", "nothing": None}
    receipt = double.perform("join", route="chat", deployment="m-b", weight=100, extra=found)
    row = double.tables["targets"][receipt["id"]]
    assert row["max_running_requests"] == 3
    assert (row["id"], row["route_name"]) != (999, 77)
    assert "nothing" not in row


def test_reweighting_repeats_optional_fields() -> None:
    double = pair(100)
    row = double.target("chat", "m-c", 10, **EXTRA)
    double.perform("set_weight", route="chat", deployment="m-c", weight=20)
    assert double.tables["targets"][row["id"]] == {**row, "weight": 20}


@pytest.mark.parametrize("verb", ["join", "set_weight", "twin"])
@pytest.mark.parametrize("weight", [0, -1, True, 1.5, "5", None])
def test_a_weight_that_is_no_positive_integer_is_refused(verb: str, weight: Any) -> None:
    double = pair(100, 5)
    with pytest.raises(Refused):
        double.perform(verb, route="chat", deployment="m-b", weight=weight)
    assert double.writes() == []


def test_on_a_route_without_weights_one_joins_without() -> None:
    """All or none; a fallback has one beside that."""
    double = pair(0)
    double.target("chat", "m-c", 3, fallback_status_codes=["5xx"])
    assert double.perform("join", route="chat", deployment="m-b", weight=0)["active"] is True
    assert double.weights("chat") == {"m-a": 0, "m-b": 0, "m-c": 3}
    assert double.perform("join", route="chat", deployment="m-b", weight=0)["already"] is True
    assert len(double.writes()) == 1


def test_the_sole_targets_weight_is_never_changed_in_place() -> None:
    double = pair(100)
    with pytest.raises(Refused, match="only active target") as caught:
        double.perform("set_weight", route="chat", deployment="m-a", weight=200)
    assert "twin" in caught.value.hint
    assert double.writes() == []


@pytest.mark.parametrize("other", ["unavailable", "fallback"])
def test_a_target_counts_as_sole_when_the_others_take_no_requests(other: str) -> None:
    double = pair(100, 5)
    if other == "unavailable":
        target_of(double, "m-b")["state"] = "unavailable"
    else:
        double.tables["targets"] = {k: t for k, t in double.tables["targets"].items() if t["weight"] == 100}
        double.target("chat", "m-b", 5, fallback_status_codes=["5xx"])
    for verb, args in (("set_weight", {"weight": 50}), ("leave", {})):
        with pytest.raises(Refused):
            double.perform(verb, route="chat", deployment="m-a", **args)
    assert double.writes() == []


def test_leaving_removes_that_target_and_no_other() -> None:
    double = pair(100, 5)
    before = dict(target_of(double, "m-a"))
    double.perform("leave", route="chat", deployment="m-b")
    assert double.weights("chat") == {"m-a": 100}
    assert target_of(double, "m-a") == before
    assert double.perform("leave", route="chat", deployment="m-b")["already"] is True


def denies(double: Double, request: httpx.Request) -> httpx.Response:
    """2.2.3: no single target is ever found."""
    target = request.url.path.rpartition("/")[2]
    return httpx.Response(404, json={"code": 404, "reason": "NotFound", "message": f"ModelRouteTarget with id '{target}' not found."})


def test_a_target_that_is_denied_and_shown_leaves_by_a_list_without_it() -> None:
    double = pair(100, 5)
    double.target("chat", "m-c", 50, **EXTRA)
    before = {model: dict(target_of(double, model)) for model in ("m-a", "m-c")}
    double.fault("DELETE", "targets", denies)
    double.perform("leave", route="chat", deployment="m-b")
    assert double.weights("chat") == {"m-a": 100, "m-c": 50}
    assert {model: target_of(double, model) for model in before} == before
    assert [m for m, _ in double.writes()] == ["DELETE", "PUT"]


def test_a_twins_old_target_leaves_by_a_list_too() -> None:
    double = pair(1)
    double.fault("DELETE", "targets", denies)
    double.perform("twin", route="chat", deployment="m-a", weight=1000)
    assert double.weights("chat") == {"m-a": 1000}


def test_a_list_that_would_leave_nobody_active_is_not_written() -> None:
    """The other target went away between the look and the refused call."""
    double = pair(100, 5)

    def lose(d: Double, request: httpx.Request) -> httpx.Response:
        target_of(d, "m-a")["state"] = "unavailable"
        return denies(d, request)

    double.fault("DELETE", "targets", lose)
    with pytest.raises(Refused, match="would empty the route"):
        double.perform("leave", route="chat", deployment="m-b")
    assert double.weights("chat") == {"m-a": 100, "m-b": 5}


def test_a_deployment_that_is_gone_has_left() -> None:
    double = pair(100)
    assert double.perform("leave", route="chat", deployment="deleted")["already"] is True


@pytest.mark.parametrize("verb", ["join", "set_weight", "leave", "twin", "refresh", "mark_route"])
def test_a_route_that_is_gone_is_refused_by_name(verb: str) -> None:
    with pytest.raises(Refused, match="nowhere"):
        pair().perform(verb, route="nowhere", deployment="m-a", weight=5, marker={})


@pytest.mark.parametrize("verb", ["join", "set_weight", "twin"])
def test_a_deployment_that_is_gone_is_refused_by_name(verb: str) -> None:
    with pytest.raises(Refused, match="deleted"):
        pair().perform(verb, route="chat", deployment="deleted", weight=5)


def test_a_target_that_does_not_become_active_is_said_in_the_receipt() -> None:
    double = pair(100)
    double.named("models", "m-b")["ready_replicas"] = 0
    receipt = double.perform("join", route="chat", deployment="m-b", weight=5)
    assert receipt["active"] is False
    assert 5.0 <= double.clock.seconds < 6.0


def test_seconds_are_those_of_the_write() -> None:
    double = pair(100, 5)

    def slow(d: Double, request: httpx.Request) -> httpx.Response | None:
        d.clock.seconds += 0.7
        return None

    double.fault("PUT", "targets", slow)
    assert double.perform("set_weight", route="chat", deployment="m-b", weight=9)["seconds"] == pytest.approx(0.7)


# --- siblings


def meddle(change: str) -> Any:
    """While we write, somebody else changes a sibling."""

    def fault(double: Double, _request: httpx.Request) -> None:
        rows = double.tables["targets"]
        sibling = next(t for t in rows.values() if t["weight"] == 100)
        match change:
            case "weight":
                sibling["weight"] = 1
            case "option":
                sibling["max_running_requests"] = 1
            case "lost":
                double.target("chat", "m-c", 3)
                del rows[sibling["id"]]
            case "added":
                double.target("chat", "m-c", 3)

    return fault


@pytest.mark.parametrize("change", ["weight", "option", "lost", "added"])
@pytest.mark.parametrize(("verb", "args"), [("set_weight", {"weight": 9}), ("leave", {})])
def test_a_sibling_that_changed_meanwhile_is_an_error_that_names_it(verb: str, args: dict[str, Any], change: str) -> None:
    double = pair(100, 5)
    double.fault("PUT" if verb == "set_weight" else "DELETE", "targets", meddle(change))
    with pytest.raises(BadAnswer, match="sibling target"):
        double.perform(verb, route="chat", deployment="m-b", **args)


def test_a_server_that_drops_a_sibling_on_join_is_caught() -> None:
    double = pair(100)

    def drops(d: Double, request: httpx.Request) -> httpx.Response:
        answer = d.really(request)
        d.tables["targets"] = {k: t for k, t in d.tables["targets"].items() if t["weight"] != 100}
        return answer

    double.fault("PUT", "model-routes", drops)
    with pytest.raises(BadAnswer, match="sibling target"):
        double.perform("join", route="chat", deployment="m-b", weight=5)


# --- twin


def watch_active(double: Double) -> list[int]:
    """How many targets of `chat` were active at each call."""
    seen: list[int] = []
    answer = double.answer

    def watched(request: httpx.Request) -> httpx.Response:
        result = answer(request)
        seen.append(sum(t["state"] == "active" for t in double.tables["targets"].values() if t["route_name"] == "chat"))
        return result

    double.answer = watched  # type: ignore[method-assign]
    return seen


def test_a_twin_replaces_the_target_without_an_empty_instant() -> None:
    double = pair(1)
    old = target_of(double, "m-a")
    double.tables["targets"][old["id"]]["max_running_requests"] = 4
    seen = watch_active(double)
    receipt = double.perform("twin", route="chat", deployment="m-a", weight=1000)
    assert double.weights("chat") == {"m-a": 1000}
    assert double.tables["targets"][receipt["id"]]["max_running_requests"] == 4
    assert receipt["id"] != old["id"]
    assert min(seen) >= 1
    assert [m for m, _ in double.writes()] == ["PUT", "PUT", "DELETE"]
    assert double.calls[[m for m, *_ in double.calls].index("DELETE") - 1][0] == "GET"


def test_a_twin_that_does_not_become_active_leaves_the_old_target() -> None:
    double = pair(1)
    double.never_active = {double.next}
    with pytest.raises(BadAnswer, match="did not become active"):
        double.perform("twin", route="chat", deployment="m-a", weight=1000)
    assert double.weights("chat") == {"m-a": 1, "m-a'": 1000}
    assert not any(method == "DELETE" for method, _ in double.writes())


def test_a_half_made_twin_is_finished() -> None:
    double = pair(1)
    double.target("chat", "m-a", 1000, state="unavailable")
    double.perform("twin", route="chat", deployment="m-a", weight=1000)
    assert double.weights("chat") == {"m-a": 1000}
    assert [m for m, _ in double.writes()] == ["PUT", "DELETE"]
    assert double.perform("twin", route="chat", deployment="m-a", weight=1000)["already"] is True


def test_a_twin_needs_a_target_to_replace() -> None:
    with pytest.raises(Refused, match="no target"):
        pair().perform("twin", route="chat", deployment="m-b", weight=5)


# --- refresh


def test_refresh_sends_the_name_and_nothing_else() -> None:
    double = pair()
    double.perform("refresh", route="chat")
    assert [body for method, _, body in double.calls if method == "PUT"] == [{"name": "chat"}]


def test_what_was_accepted_and_does_not_show_is_an_error() -> None:
    double = pair(100, 5)
    double.fault("PUT", "targets", ignored)
    with pytest.raises(BadAnswer, match="accepted the write, but does not show it"):
        double.perform("set_weight", route="chat", deployment="m-b", weight=9)
    assert double.clock.seconds < 6.0
