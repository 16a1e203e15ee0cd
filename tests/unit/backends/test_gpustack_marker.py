"""The marker: beside what was there, never over another's, and safe from the server's own writes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.backends.gpustack_marker import CLAIM_PREFIX
from rollout.domain.world import Scope
from rollout.errors import Refused
from tests.unit.backends.gpustack_double import Double, error, lost, run

OURS, THEIRS = {"id": "r1", "nonce": "x"}, {"id": "r0", "nonce": "z"}
CLAIM = CLAIM_PREFIX + "chat"


def world() -> Double:
    double = Double()
    double.model("m-a")
    double.route("chat", {"m-a": 100}, meta={"owner": "team", "n": {"deep": [1]}})
    return double


def brought() -> Double:
    """`chat` came with its deployment: the server writes the deployment's `meta` over the route's at every event."""
    double = world()
    double.named("routes", "chat")["created_model_id"] = double.named("models", "m-a")["id"]
    return double


def event(double: Double) -> None:
    """Something happens to the deployment."""
    double.named("routes", "chat")["meta"] = {}


def seen(double: Double) -> Any:
    route = run(double.backend().observe(Scope("chat", ()))).route
    assert route is not None
    return route.meta


def test_the_marker_comes_and_goes_beside_what_was_there() -> None:
    double = world()
    found = dict(double.named("routes", "chat")["meta"])
    receipt = double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x"})
    assert double.named("routes", "chat")["meta"] == {**found, "rollout": {"id": "r1", "nonce": "x"}}
    assert set(receipt) >= {"already", "seconds", "id"}
    double.perform("unmark_route", route="chat", meta=found)
    assert double.named("routes", "chat")["meta"] == found
    assert all("targets" not in body for method, _, body in double.calls if method == "PUT")


@pytest.mark.parametrize("other", [{"id": "r0", "nonce": "z"}, {}, "text"])
def test_another_rollouts_marker_is_only_taken_over_when_that_is_said(other: Any) -> None:
    double = world()
    double.named("routes", "chat")["meta"]["rollout"] = other
    with pytest.raises(Refused, match="carries the marker"):
        double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x"})
    assert double.named("routes", "chat")["meta"]["rollout"] == other
    double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x"}, takeover=True)
    assert double.named("routes", "chat")["meta"]["rollout"] == {"id": "r1", "nonce": "x"}


def test_a_marker_that_appears_while_ours_is_lost_is_not_overwritten() -> None:
    double = world()

    def taken(d: Double, _request: httpx.Request) -> httpx.Response:
        d.named("routes", "chat")["meta"]["rollout"] = {"id": "r0", "nonce": "z"}
        return httpx.Response(503, json={"message": "busy"})

    double.fault("PUT", "model-routes", taken)
    with pytest.raises(Refused, match="r0"):
        double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x"})


def test_our_own_marker_may_be_renewed() -> None:
    double = world()
    double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x", "expires": "1"})
    double.perform("mark_route", route="chat", marker={"id": "r1", "nonce": "x", "expires": "2"})
    assert double.named("routes", "chat")["meta"]["rollout"]["expires"] == "2"


def test_a_key_that_somebody_else_wrote_meanwhile_stays() -> None:
    double = world()
    double.perform("mark_route", route="chat", marker={"id": "r1"})
    double.named("routes", "chat")["meta"]["theirs"] = 1
    double.perform("unmark_route", route="chat", meta={})
    assert double.named("routes", "chat")["meta"] == {"owner": "team", "n": {"deep": [1]}, "theirs": 1}


def test_no_marker_on_a_route_that_is_gone_or_bare() -> None:
    double = world()
    assert double.perform("unmark_route", route="gone")["already"] is True
    assert double.perform("unmark_route", route="chat")["already"] is True
    assert double.writes() == []


# --- routes that a deployment brought along


def test_the_marker_of_a_brought_route_outlives_the_deployments_events() -> None:
    double = brought()
    found = dict(double.named("routes", "chat")["meta"])
    double.perform("mark_route", route="chat", marker=OURS)
    assert double.named("routes", "chat")["meta"] == found
    assert seen(double) == {**found, "rollout": OURS}
    event(double)
    assert seen(double) == {"rollout": OURS}
    assert double.weights(CLAIM) == {}
    assert double.perform("mark_route", route="chat", marker=OURS)["already"] is True
    double.perform("mark_route", route="chat", marker={**OURS, "expires": "later"})
    double.perform("unmark_route", route="chat", meta=found)
    assert CLAIM not in [row["name"] for row in double.tables["routes"].values()]
    assert seen(double) == {}
    assert not any("/v2/models" in path for _, path in double.writes())


def test_a_claim_stays_ours_after_the_route_lost_its_deployment() -> None:
    double = brought()
    double.perform("mark_route", route="chat", marker=OURS)
    double.named("routes", "chat")["created_model_id"] = None
    assert seen(double)["rollout"] == OURS
    assert double.perform("mark_route", route="chat", marker=OURS)["already"] is True
    double.perform("unmark_route", route="chat", meta={})
    assert "rollout" not in seen(double)


def test_a_claim_without_its_route_is_removed() -> None:
    double = brought()
    double.perform("mark_route", route="chat", marker=OURS)
    del double.tables["routes"][double.named("routes", "chat")["id"]]
    assert double.perform("unmark_route", route="chat")["already"] is False
    assert list(double.tables["routes"]) == []


def test_another_claim_is_refused_by_name_and_taken_over_when_that_is_said() -> None:
    double = brought()
    double.perform("mark_route", route="chat", marker=THEIRS)
    with pytest.raises(Refused, match="r0"):
        double.perform("mark_route", route="chat", marker=OURS)
    double.perform("mark_route", route="chat", marker=OURS, takeover=True)
    assert seen(double)["rollout"] == OURS


@pytest.mark.parametrize("status", [409, 500])
def test_of_two_claims_at_the_same_instant_the_later_is_refused_by_name(status: int) -> None:
    double = brought()

    def beaten(d: Double, _request: httpx.Request) -> httpx.Response:
        d.route(CLAIM, meta={"rollout": THEIRS})
        return error(status, "already exists" if status == 409 else "IntegrityError")

    double.fault("POST", "model-routes", beaten)
    with pytest.raises(Refused, match="r0"):
        double.perform("mark_route", route="chat", marker=OURS)
    assert seen(double)["rollout"] == THEIRS


def test_a_lost_answer_makes_one_claim() -> None:
    double = brought()
    double.fault("POST", "model-routes", lost)
    double.perform("mark_route", route="chat", marker=OURS)
    assert [row["name"] for row in double.tables["routes"].values()] == ["chat", CLAIM]


def test_a_route_of_users_with_the_name_of_a_claim_is_not_taken_for_one() -> None:
    double = brought()
    double.route(CLAIM, {"m-a": 1}, meta={"theirs": 1})
    assert "rollout" not in seen(double)
    with pytest.raises(Refused, match="409"):
        double.perform("mark_route", route="chat", marker=OURS)
    assert double.perform("unmark_route", route="chat", meta={})["already"] is True
    assert double.weights(CLAIM) == {"m-a": 1}
