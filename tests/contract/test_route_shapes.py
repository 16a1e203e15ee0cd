"""Routes as people make them: each shape is taken through a whole rollout and back, and whatever is not ours keeps everything.

Compared are all fields of all rows. Only what time and the server change by themselves is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rollout.backends.gpustack_marker import CLAIM_PREFIX
from rollout.domain.receipts import spec_digest
from rollout.domain.shapes import Balance, balance_of
from rollout.domain.world import RouteView
from tests.contract.bench import Bench
from tests.contract.conftest import Pair
from tests.contract.site import Row, Site, unique

MOVING = {"updated_at", "state", "ready_targets"}
OURS = {"targets", "meta", "lb_mode", "plugins", *MOVING}
"""fields of the route that a rollout changes for a while"""
SERVERS = {"created_model_id"}
"""the server forgets by itself which deployment brought a route along when that one's target leaves"""


@pytest.fixture
def bench(gpustack: Site) -> Bench:
    """The backend on this server."""
    return Bench(gpustack)


@dataclass
class Found:
    """A route as it was found. `kept`: fields of stable's target; `weights`: what a conversion gives, by target."""

    route: Row
    stable: str
    kept: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        return self.weights.get(self.stable, 100)


Make = Callable[[Bench, Pair], Found]


def put_list(bench: Bench, route: Row, entries: list[Row]) -> None:
    body = {"name": route["name"], "targets": entries}
    bench.site.api.put(f"/v2/model-routes/{route['id']}", json=body).raise_for_status()


def beside(bench: Bench, pair: Pair, **fields: Any) -> Found:
    """Stable at 100, and one more target with `fields`."""
    route = bench.site.new_route({pair.a["id"]: 100}, wait=False)
    stable = {"id": bench.site.target_list(route["id"])[0]["id"], "model_id": pair.a["id"], "weight": 100}
    put_list(bench, route, [stable, fields])
    return Found(route, pair.names[0])


def foreign(bench: Bench, pair: Pair) -> Found:
    return beside(bench, pair, model_id=bench.site.deploy()["id"], weight=40, max_running_requests=9)


def fallback(bench: Bench, pair: Pair) -> Found:
    return beside(bench, pair, model_id=bench.site.deploy()["id"], weight=0, fallback_status_codes=["5xx"])


def adapter(bench: Bench, pair: Pair) -> Found:
    model = bench.site.deploy()
    return beside(bench, pair, model_id=model["id"], weight=30, overridden_model_name=f"{model['name']}:poet")


def provider_of(bench: Bench) -> Row:
    body = {
        "name": unique("provider"),
        "config": {"type": "openai", "openaiCustomUrl": "http://127.0.0.1:9/v1"},
        "api_tokens": [{"input": "not-a-token"}],
        "models": [{"name": "gpt-x", "category": "llm"}],
    }
    response = bench.site.api.post("/v2/model-providers", json=body)
    assert response.status_code == 200, response.text
    row: Row = response.json()
    bench.site.forget("model-providers", row["id"])
    return row


def provider(bench: Bench, pair: Pair) -> Found:
    return beside(bench, pair, provider_id=provider_of(bench)["id"], weight=50, overridden_model_name="gpt-x")


def many(bench: Bench, pair: Pair) -> Found:
    other = bench.site.deploy()["id"]
    route = bench.site.new_route([(pair.a["id"], 100), *((other, weight) for weight in range(1, 40))], wait=False)
    bench.until_holds(lambda: bench.site.route(route["id"])["ready_targets"] == 40, 30)
    return Found(route, pair.names[0])


def limited(bench: Bench, pair: Pair) -> Found:
    kept = {"max_running_requests": 7}
    route = bench.site.new_route({pair.a["id"]: 100}, wait=False)
    target = bench.site.target_list(route["id"])[0]
    bench.site.api.put(f"/v2/model-route-targets/{target['id']}", json={"model_id": pair.a["id"], "weight": 100, **kept}).raise_for_status()
    return Found(route, pair.names[0], kept)


def dressed(bench: Bench, pair: Pair) -> Found:
    """Everything that a route can wear: description, categories, meta, generic proxy, an access policy with grants."""
    worn = {"description": "for the search team", "categories": ["llm", "unknown"], "meta": {"team": ["x", {"y": None}]}}
    route = bench.site.new_route({pair.a["id"]: 100}, wait=False, generic_proxy=True, **worn)
    user = bench.site.get("/v2/users/me")["id"]
    access = {"access_policy": "allowed_principals", "principals": [{"principal_type": "user", "principal_id": user}]}
    bench.site.api.post(f"/v2/model-routes/{route['id']}/access", json=access).raise_for_status()
    return Found(route, pair.names[0])


def made_by_a_deployment(bench: Bench, _pair: Pair, replicas: int = 1) -> Found:
    name = bench.site.deploy(enable_model_route=True, replicas=replicas)["name"]
    route = next(row for row in bench.site.get("/v2/model-routes?perPage=1000")["items"] if row["name"] == name)
    bench.site.forget("model-routes", route["id"])
    return Found(route, name)


def scored(bench: Bench, pair: Pair) -> Found:
    """Two replicas: the deployment's own route has no weight, least-load and session affinity."""
    found = made_by_a_deployment(bench, pair, replicas=2)
    return Found(found.route, found.stable, weights={found.stable: 100})


def uniform(bench: Bench, pair: Pair) -> Found:
    """No weights, no policies, and a fallback that has a weight of its own."""
    other, spare = bench.site.deploy(), bench.site.deploy()
    route = bench.site.new_route({pair.a["id"]: 0, other["id"]: 0}, wait=False)
    kept = [{"id": t["id"], "model_id": t["model_id"], "weight": 0} for t in bench.site.target_list(route["id"])]
    put_list(bench, route, [*kept, {"model_id": spare["id"], "weight": 3, "fallback_status_codes": ["4xx", "5xx"]}])
    return Found(route, pair.names[0], weights={pair.names[0]: 100, other["name"]: 100})


SHAPES: list[Make] = [foreign, fallback, adapter, provider, many, limited, dressed, made_by_a_deployment, uniform]
SINCE = {scored: pytest.mark.only(since="2.3")}


def worn(bench: Bench, found: Found, without: set[str]) -> Row:
    """The route's own fields and its grants."""
    row, access = bench.site.route(found.route["id"]), bench.site.get(f"/v2/model-routes/{found.route['id']}/access")
    shown = {"meta": {}, **row}  # a route that never had any shows none, and an empty one after a write
    return {**{k: v for k, v in shown.items() if k not in without | SERVERS}, "access": access}


def rows(bench: Bench, found: Found, *, weights: bool = True) -> dict[int, Row]:
    """Targets by id, stable's and the canary's left to the caller."""
    hidden = MOVING | (set() if weights else {"weight"})
    return {row["id"]: {k: v for k, v in row.items() if k not in hidden} for row in bench.site.target_list(found.route["id"])}


def settled(bench: Bench, found: Found) -> None:
    def look() -> bool:
        targets = bench.site.target_list(found.route["id"])
        return bool(targets) and all(t["state"] == "active" for t in targets)

    bench.until_holds(look)


@pytest.mark.parametrize("make", [pytest.param(m, id=m.__name__, marks=SINCE.get(m, ())) for m in (*SHAPES, *SINCE)])
def test_a_rollout_and_its_rollback_leave_everything_else_alone(bench: Bench, pair: Pair, make: Make) -> None:
    found, canary = make(bench, pair), pair.names[1]
    settled(bench, found)
    name = found.route["name"]
    bench.site.drop_cache(found.route)  # from the first write on the server tells how a route balances
    before, dress = rows(bench, found), worn(bench, found, MOVING)
    mine = next(row for row in before.values() if row.get("model_id") == _id_of(bench, found.stable))
    siblings = {key: row for key, row in before.items() if key != mine["id"]}

    def untouched(*, weights: bool = True) -> None:
        after = rows(bench, found, weights=weights)
        kept = {k: v if weights else {f: x for f, x in v.items() if f != "weight"} for k, v in siblings.items()}
        assert {key: after.get(key) for key in siblings} == kept
        assert worn(bench, found, OURS) == {k: v for k, v in dress.items() if k not in OURS}

    plain = not found.weights
    try:
        bench.perform("mark_route", route=name, marker={"id": "r1", "nonce": "n"})
        if found.weights:
            receipt = bench.perform("reweigh", route=name, weights=found.weights)
            assert receipt["active"]
            assert bench.holds("reweigh", route=name, weights=found.weights)
            assert bench.perform("reweigh", route=name, weights=found.weights)["already"] is True
            assert bench.site.route(found.route["id"]).get("lb_mode") == ("weighted" if bench.site.balances else None)
            untouched(weights=False)
        bench.perform("join", route=name, deployment=canary, weight=11, extra=found.kept)
        bench.perform("set_weight", route=name, deployment=canary, weight=100)
        bench.perform("refresh", route=name)
        untouched(weights=plain)
        bench.perform("leave", route=name, deployment=found.stable)
        untouched(weights=plain)
        bench.perform("join", route=name, deployment=found.stable, weight=found.weight, extra=found.kept)
        bench.perform("leave", route=name, deployment=canary)
        if found.weights:
            bench.perform("reweigh", route=name, weights=dict.fromkeys(found.weights, 0))
        bench.perform("unmark_route", route=name, meta={})
        untouched()
        assert worn(bench, found, MOVING) == dress
        back = [row for row in rows(bench, found).values() if row["id"] not in siblings]
        born = {"id", "name", "created_at"}
        assert [{k: v for k, v in row.items() if k not in born} for row in back] == [{k: v for k, v in mine.items() if k not in born}]
    finally:
        bench.sweep(CLAIM_PREFIX + name)


def _id_of(bench: Bench, name: str) -> int:
    return next(int(row["id"]) for row in bench.site.get("/v2/models?perPage=1000")["items"] if row["name"] == name)


# --- what a share is made of


def surveyed(bench: Bench, route: Row) -> RouteView:
    view = bench.observe(route["name"], survey=True).route
    assert view is not None
    return view


@pytest.mark.only(since="2.3")
def test_several_replicas_bring_a_route_that_balances_by_policies(bench: Bench, pair: Pair) -> None:
    view = surveyed(bench, scored(bench, pair).route)
    assert view.policies == ("least-load", "session-affinity")
    assert balance_of(view) in (Balance.SCORED, Balance.UNIFORM)  # the mode is told from the first write on
    assert [t.weight for t in view.targets] == [0]


@pytest.mark.only(before="2.3")
def test_several_replicas_bring_a_route_with_a_weight(bench: Bench, pair: Pair) -> None:
    view = surveyed(bench, made_by_a_deployment(bench, pair, replicas=2).route)
    assert (view.policies, balance_of(view), [t.weight for t in view.targets]) == ((), Balance.WEIGHTED, [100])


@pytest.mark.only(gateway=False)
def test_a_fallback_with_a_weight_takes_its_share_while_the_gateway_is_off(bench: Bench, pair: Pair) -> None:
    found = beside(bench, pair, model_id=pair.b["id"], weight=100, fallback_status_codes=["5xx"])
    settled(bench, found)
    bench.site.drop_cache(found.route)
    assert 20 <= bench.site.split(found.route["name"], 80)[pair.names[1]] <= 60  # 40 expected, 4.5 standard errors


@pytest.mark.only(gateway=False)
def test_a_provider_gets_nothing_while_the_gateway_is_off(bench: Bench, pair: Pair) -> None:
    found = provider(bench, pair)
    settled(bench, found)
    assert bench.site.split(found.route["name"], 40) == {pair.names[0]: 40}
    view = surveyed(bench, found.route)
    assert [(t.provider, t.active) for t in view.targets] == [(False, True), (True, True)]


@pytest.mark.only(gateway=False)
def test_giving_a_sole_target_its_weight_under_load_loses_requests_now_and_then(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 0})
    with bench.site.load(route["name"]) as seen:
        for turn in range(30):
            bench.perform("reweigh", route=route["name"], weights={pair.names[0]: 100 * (1 - turn % 2)})
            if bench.site.gap in seen:
                break
    assert set(seen) == {pair.names[0], bench.site.gap}


@pytest.mark.only(gateway=True, before="2.3")
def test_behind_the_older_gateway_a_route_without_weights_serves_nobody(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 100})
    bench.perform("reweigh", route=route["name"], weights={pair.names[0]: 0})
    bench.until_holds(lambda: bench.site.ask(route["name"]).status_code in (404, 503))
    assert [t["state"] for t in bench.site.target_list(route["id"])] == ["active"]


@pytest.mark.only(gateway=True, since="2.3")
def test_behind_the_gateway_it_loses_nothing(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 0})
    bench.site.followed(route["name"])
    with bench.site.load(route["name"]) as seen:
        for turn in range(10):
            bench.perform("reweigh", route=route["name"], weights={pair.names[0]: 100 * (1 - turn % 2)})
    assert len(seen) >= 100
    assert set(seen) == {pair.names[0]}


# --- adapters


@pytest.fixture
def poets(bench: Bench) -> Iterator[tuple[Row, str]]:
    """A deployment with an adapter, and its successor made as a rollout makes it."""
    roomy = ["--gpu-memory-utilization=0.2"]  # the adapter's weights are counted too
    adapters = [{"lora_name": "poet", "source": "local_path", "local_path": "/loras/poet"}]
    stable = bench.site.deploy(lora_list=adapters, backend_parameters=roomy)
    name = unique("poet")
    spec = bench.observe("no-route", stable["name"]).deployments[stable["name"]].spec
    change: dict[str, Any] = {"unit": "parameters", "to": {"env": {"NEW": "1"}}}
    derived = bench.derive(spec, change, name)
    bench.perform("create_deployment", name=name, base=stable["name"], change=change, sizing={}, digest=spec_digest(derived))
    try:
        bench.site.ready(_id_of(bench, name))
        yield stable, name
    finally:
        bench.sweep(f"probe-{name}", name)


def test_a_canary_serves_the_adapter_that_stable_served(bench: Bench, poets: tuple[Row, str]) -> None:
    stable, canary = poets
    route = bench.site.new_route({stable["id"]: 100}, wait=False)
    asked = {"overridden_model_name": f"{stable['name']}:poet"}
    put_list(bench, route, [{"id": bench.site.target_list(route["id"])[0]["id"], "model_id": stable["id"], "weight": 100, **asked}])
    bench.site.settled(route)
    assert bench.site.ask(route["name"]).json()["model"] == f"{stable['name']}:poet"
    extra = {"overridden_model_name": f"{canary}:poet"}
    bench.perform("create_probe_route", name=f"probe-{canary}", deployment=canary, extra=extra)
    bench.until_holds(lambda: bench.site.ask(f"probe-{canary}").status_code == 200)
    assert bench.site.ask(f"probe-{canary}").json()["model"] == f"{canary}:poet"
    with bench.site.load(route["name"], clients=3) as seen:
        bench.perform("join", route=route["name"], deployment=canary, weight=100, extra=extra)
        bench.perform("leave", route=route["name"], deployment=stable["name"])
        bench.site.until(lambda: set(seen[-8:]) == {f"{canary}:poet"}, "all requests on the canary")
        bench.perform("join", route=route["name"], deployment=stable["name"], weight=100, extra=asked)
        bench.perform("leave", route=route["name"], deployment=canary)
        bench.site.until(lambda: set(seen[-8:]) == {f"{stable['name']}:poet"}, "all requests back")
    assert set(seen) == {f"{stable['name']}:poet", f"{canary}:poet"}


def test_the_old_name_of_an_adapter_is_served_by_nobody(bench: Bench, poets: tuple[Row, str]) -> None:
    """Why the canary's target carries the canary's name: an adapter is mounted under its own deployment."""
    stable, canary = poets
    route = bench.site.new_route({stable["id"]: 100}, wait=False)
    wrong = {"overridden_model_name": f"{stable['name']}:poet"}
    put_list(bench, route, [{"model_id": _id_of(bench, canary), "weight": 100, **wrong}])
    bench.until_holds(lambda: bench.site.target_list(route["id"])[0]["state"] == "active")
    assert bench.site.ask(route["name"]).status_code == 503


# --- owners


@pytest.fixture
def organisation(bench: Bench) -> Row:
    """An organisation of its own, gone at the end."""
    response = bench.site.admin.post("/v2/organizations", json={"name": unique("org")})
    assert response.status_code == 200, response.text
    row: Row = response.json()
    bench.site.forget("organizations", row["id"])
    return row


def test_the_owner_of_a_route_is_told_and_targets_of_others_are_refused(bench: Bench, pair: Pair, organisation: Row) -> None:
    name, acting = unique("route"), {"X-Organization-Id": str(organisation["id"])}
    response = bench.site.admin.post("/v2/model-routes", json={"name": name, "targets": []}, headers=acting)
    assert response.status_code == 200, response.text
    route = response.json()
    bench.site.forget("model-routes", route["id"])
    view = surveyed(bench, route)
    assert (view.organisation, view.namesakes, view.access_policy) == (organisation["name"], 0, "allowed_principals")
    body = {"name": name, "targets": [{"model_id": pair.a["id"], "weight": 100}]}
    refused = bench.site.api.put(f"/v2/model-routes/{route['id']}", json=body)
    assert refused.status_code in (422, 500)
    assert "may only target resources in the same Org" in refused.text
    assert bench.site.ask(name).status_code == 404


def test_two_owners_may_call_their_routes_the_same_and_the_older_one_is_looked_at(bench: Bench, pair: Pair, organisation: Row) -> None:
    ours = bench.site.new_route({pair.a["id"]: 100})
    acting = {"X-Organization-Id": str(organisation["id"])}
    theirs = bench.site.admin.post("/v2/model-routes", json={"name": ours["name"], "targets": []}, headers=acting).json()
    bench.site.forget("model-routes", theirs["id"])
    view = surveyed(bench, ours)
    assert (view.id, view.organisation, view.namesakes) == (ours["id"], None, 1)
    assert bench.site.ask(ours["name"]).json()["model"] == pair.names[0]


def test_on_a_route_without_weights_a_target_joins_without_one_and_is_listed_by_its_deployment(bench: Bench, pair: Pair) -> None:
    """The list by `model_id` alone, over all routes, is what a printed way back looks at before it deletes a deployment."""
    route, there = bench.site.new_route({pair.a["id"]: 0}, wait=False), f"/v2/model-route-targets?model_id={pair.b['id']}"
    assert bench.site.get(there)["items"] == []
    assert bench.perform("join", route=route["name"], deployment=pair.names[1], weight=0)["active"]
    assert {t["model_id"]: t["weight"] for t in bench.site.target_list(route["id"])} == {pair.a["id"]: 0, pair.b["id"]: 0}
    assert [t["route_id"] for t in bench.site.get(there)["items"]] == [route["id"]]
    if bench.site.balances or not bench.site.gateway:  # behind 2.2's gateway such a route serves nobody
        bench.site.settled(route)
        assert set(bench.site.split(route["name"], 20)) == set(pair.names)
