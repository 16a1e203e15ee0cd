"""All weights of a route in one write, and what is looked at once before the start."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.domain.world import RouteView, Scope
from rollout.errors import BadAnswer, Refused
from tests.unit.backends.gpustack_double import Double, broken, hang, lost, run


def bare() -> Double:
    """A route without weights: two deployments with all optional fields, a fallback, a provider."""
    double = Double()
    for name in ("m-a", "m-b", "m-f"):
        double.model(name)
    double.route("chat", {"m-a": 0}, lb_mode="scoring")
    double.target("chat", "m-b", 0, max_running_requests=7, overridden_model_name="m-b:poet", brand_new_option={"a": 1})
    double.target("chat", "m-f", 3, fallback_status_codes=["5xx"])
    double.target("chat", None, 0, provider_id=3, overridden_model_name="gpt")
    return double


def provider_of(double: Double) -> str:
    return f"target {next(row['id'] for row in double.tables['targets'].values() if 'model_id' not in row)}"


def weighted(double: Double) -> dict[str, int]:
    return {"m-a": 100, "m-b": 200, provider_of(double): 100}


def fields(double: Double) -> dict[int, Any]:
    return {key: {k: v for k, v in row.items() if k not in ("weight", "state")} for key, row in double.tables["targets"].items()}


def test_one_write_gives_every_named_target_its_weight_and_keeps_all_else() -> None:
    double = bare()
    before = fields(double)
    receipt = double.perform("reweigh", route="chat", weights=weighted(double))
    assert (receipt["already"], receipt["active"]) == (False, True)
    assert list(double.weights("chat").values()) == [100, 200, 3, 100]
    assert fields(double) == before
    lists = [body for method, path, body in double.calls if method == "PUT" and body.get("targets") is not None]
    assert (len(lists), len(lists[0]["targets"])) == (1, 4)
    assert [body for method, _, body in double.calls if method == "PUT"][-1] == {"name": "chat"}


def test_writing_again_writes_nothing() -> None:
    double = bare()
    double.perform("reweigh", route="chat", weights=weighted(double))
    double.calls.clear()
    assert double.perform("reweigh", route="chat", weights=weighted(double))["already"] is True
    assert double.writes() == []


def test_weights_are_taken_back_the_same_way() -> None:
    double = bare()
    rows = {key: dict(row) for key, row in double.tables["targets"].items()}
    double.perform("reweigh", route="chat", weights=weighted(double))
    double.perform("reweigh", route="chat", weights=dict.fromkeys(weighted(double), 0))
    assert double.tables["targets"] == rows


@pytest.mark.parametrize("fault", [lost, broken, hang], ids=["lost", "500", "hang"])
def test_a_lost_answer_is_looked_up_before_anything_is_sent_again(fault: Any) -> None:
    double = bare()
    double.fault("PUT", "/model-routes/", fault)
    double.perform("reweigh", route="chat", weights=weighted(double))
    assert list(double.weights("chat").values()) == [100, 200, 3, 100]


@pytest.mark.parametrize("weights", [{"m-x": 1}, {"m-a": 100, "m-b": -1}, {"m-a": True}, {"m-a": 1.5}])
def test_what_fits_no_target_or_is_no_weight_is_refused_before_a_write(weights: dict[str, Any]) -> None:
    double = bare()
    with pytest.raises(Refused):
        double.perform("reweigh", route="chat", weights=weights)
    assert double.writes() == []


def test_a_target_that_appears_meanwhile_stops_it() -> None:
    double = bare()

    def intrude(_double: Double, request: httpx.Request) -> httpx.Response:
        answer = double.really(request)
        double.target("chat", None, 9, provider_id=4)
        return answer

    double.fault("PUT", "/model-routes/", intrude)
    with pytest.raises(BadAnswer, match="changed while its weights were written"):
        double.perform("reweigh", route="chat", weights=weighted(double))


def test_a_target_that_does_not_come_back_is_said() -> None:
    double = bare()
    double.never_active.add(next(iter(double.tables["targets"])))
    assert double.perform("reweigh", route="chat", weights=weighted(double))["active"] is False


def surveyed(double: Double) -> RouteView:
    route = run(double.backend().observe(Scope("chat", ("m-a",), survey=True))).route
    assert route is not None
    return route


def test_a_survey_names_policies_owner_and_namesakes() -> None:
    double = Double()
    org = double._add("organizations", {"name": "research", "is_platform": False})
    plugins = {"lb": {"mode": "scoring"}, "least-load": {"enabled": False}, "session-affinity": {"sessionKeys": []}}
    double.route("chat", lb_mode="scoring", owner_principal_id=org["id"], plugins=plugins)
    double.route("chat")
    route = surveyed(double)
    assert (route.policies, route.organisation, route.namesakes) == (("session-affinity",), "research", 1)
    assert route.id == min(double.tables["routes"])


@pytest.mark.parametrize("platform", [True, None])
def test_the_platforms_own_route_has_no_organisation(platform: bool | None) -> None:
    """Also where only an administrator may list organisations, and where the server has none."""
    double = Double()
    org = double._add("organizations", {"name": "default", "is_platform": True})
    double.route("chat", owner_principal_id=org["id"])
    if platform is None:
        double.fault(
            "GET", "/organizations", lambda _d, _r: httpx.Response(403, json={"code": 403, "reason": "Forbidden", "message": "no"})
        )
    assert surveyed(double).organisation is None


def test_a_tick_makes_no_survey() -> None:
    double = bare()
    run(double.backend().observe(Scope("chat", ("m-a",))))
    assert not [path for _, path, _ in double.calls if "organizations" in path or path.rstrip("0123456789") != path]
