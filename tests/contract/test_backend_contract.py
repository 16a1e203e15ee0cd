"""The backend's promises, kept on the sandbox and on the real server: every effect, repeated, under faults and under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from rollout.backends.gpustack_fields import SETTABLE
from rollout.backends.gpustack_marker import CLAIM_PREFIX
from rollout.backends.gpustack_spec import derive_spec, diff_spec
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.domain.receipts import spec_digest
from rollout.errors import BadAnswer, Refused, Unreachable
from tests.contract.bench import Bench
from tests.contract.conftest import Pair
from tests.contract.site import Row, Site, unique


@pytest.fixture
def bench(gpustack: Site) -> Bench:
    """The backend on this server."""
    return Bench(gpustack)


@pytest.fixture
def probe(bench: Bench) -> Iterator[str]:
    """A free name for a private route; gone afterwards."""
    name = unique("probe")
    yield name
    bench.sweep(name)


def weights(bench: Bench, route: Row) -> dict[str, int]:
    world = bench.observe(route["name"])
    assert world.route is not None
    return {str(t.deployment): t.weight for t in world.route.targets}


# --- looking


@pytest.mark.modes
def test_the_world_is_what_the_server_shows(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 90, pair.b["id"]: 10}, meta={"team": "x"})
    world = bench.observe(route["name"], pair.names[0], "no-such-deployment")
    assert world.route is not None
    assert {t.deployment: (t.weight, t.active) for t in world.route.targets} == {pair.names[0]: (90, True), pair.names[1]: (10, True)}
    mode = "weighted" if bench.site.balances else None
    assert (world.route.meta, world.route.lb_mode, world.route.access_policy) == ({"team": "x"}, mode, "authed")
    assert set(world.deployments) == set(pair.names)
    view = world.deployments[pair.names[0]]
    assert view.ready
    assert route["name"] in view.routes
    assert view.instances[0].worker == "spark-01"
    assert (view.spec["source"], view.spec["backend_parameters"]) == ("local_path", pair.a["backend_parameters"])
    assert world.server_version == "v" + bench.site.described["version"]


def test_workers_have_fresh_heartbeats_and_known_memory(bench: Bench) -> None:
    workers = bench.observe("no-route").workers
    assert {"spark-01", "spark-02", "staging"} <= set(workers)
    for view in workers.values():
        assert view.state == "ready"
        assert view.heartbeat_age is not None
        assert view.heartbeat_age < 90
        assert view.unified is True
        assert view.memory_total is not None
        assert view.memory_available is not None
        assert 0 < view.memory_available < view.memory_total


# --- targets


def test_a_join_adds_one_target_and_changes_no_other(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route([(pair.a["id"], 60)], wait=False)
    bench.site.api.put(
        f"/v2/model-routes/{route['id']}",
        json={
            "name": route["name"],
            "targets": [
                {"id": next(iter(bench.targets(route))), "model_id": pair.a["id"], "weight": 60, "max_running_requests": 9},
                {"model_id": pair.a["id"], "weight": 40},
            ],
        },
    ).raise_for_status()
    before = bench.targets(route)
    receipt = bench.perform("join", route=route["name"], deployment=pair.names[1], weight=5)
    after = bench.targets(route)
    assert {key: after[key] for key in before} == before
    assert (after[receipt["id"]]["weight"], receipt["active"], receipt["already"]) == (5, True, False)
    assert bench.perform("join", route=route["name"], deployment=pair.names[1], weight=5)["already"] is True
    assert bench.targets(route) == after
    assert bench.holds("join", route=route["name"], deployment=pair.names[1], weight=5)


@pytest.mark.modes
def test_a_weight_and_a_refresh_move_the_traffic(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 1000, pair.b["id"]: 1})
    assert bench.site.split(route["name"], 40)[pair.names[1]] <= 2
    bench.perform("set_weight", route=route["name"], deployment=pair.names[1], weight=1_000_000)
    bench.perform("refresh", route=route["name"])
    bench.site.until(lambda: bench.site.split(route["name"], 20)[pair.names[1]] >= 19, "the split to move", 10)
    assert weights(bench, route) == {pair.names[0]: 1000, pair.names[1]: 1_000_000}


@pytest.mark.only(since="2.3")
def test_optional_fields_of_a_target_survive_a_new_weight(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 50, pair.b["id"]: 50})
    target = bench.site.targets(route["id"])[pair.b["id"]]
    body = {"model_id": pair.b["id"], "weight": 50, "max_running_requests": 7}
    bench.site.api.put(f"/v2/model-route-targets/{target['id']}", json=body).raise_for_status()
    bench.until_holds(lambda: bench.site.targets(route["id"])[pair.b["id"]]["state"] == "active")
    bench.perform("set_weight", route=route["name"], deployment=pair.names[1], weight=60)
    row = bench.targets(route)[target["id"]]
    assert (row["weight"], row["max_running_requests"]) == (60, 7)


def test_the_last_active_target_neither_leaves_nor_changes_in_place(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 100})
    before = bench.targets(route)
    with pytest.raises(Refused, match="would empty the route"):
        bench.perform("leave", route=route["name"], deployment=pair.names[0])
    with pytest.raises(Refused, match="only active target"):
        bench.perform("set_weight", route=route["name"], deployment=pair.names[0], weight=50)
    assert bench.targets(route) == before


def test_the_last_active_target_does_not_leave_beside_a_dead_one(bench: Bench, pair: Pair) -> None:
    dead = bench.site.deploy(replicas=0, wait=False)
    route = bench.site.new_route({pair.a["id"]: 100, dead["id"]: 100}, wait=False)
    bench.until_holds(lambda: bench.site.targets(route["id"])[pair.a["id"]]["state"] == "active")
    with pytest.raises(Refused, match="would empty the route"):
        bench.perform("leave", route=route["name"], deployment=pair.names[0])
    assert bench.perform("leave", route=route["name"], deployment=dead["name"])["already"] is False


def test_a_target_of_a_deployment_that_does_not_run_is_written_and_said_to_be_inactive(bench: Bench, pair: Pair) -> None:
    dead = bench.site.deploy(replicas=0, wait=False)
    route = bench.site.new_route({pair.a["id"]: 100})
    receipt = bench.perform("join", route=route["name"], deployment=dead["name"], weight=5)
    assert (receipt["active"], weights(bench, route)) == (False, {pair.names[0]: 100, dead["name"]: 5})


@pytest.mark.modes
def test_a_whole_ladder_under_load_loses_nothing_and_gives_everything_back(bench: Bench, pair: Pair) -> None:
    """Twin, join, three rungs, stable leaves, stable comes back, canary leaves: no request without an answer."""
    stable, canary = pair.names
    route = bench.site.new_route({pair.a["id"]: 100})
    name = route["name"]

    with bench.site.load(name, clients=4) as seen:
        bench.perform("twin", route=name, deployment=stable, weight=1000)
        bench.perform("join", route=name, deployment=canary, weight=53)
        for weight in (111, 333, 1000):
            bench.perform("refresh", route=name)
            bench.perform("set_weight", route=name, deployment=canary, weight=weight)
        bench.perform("leave", route=name, deployment=stable)
        bench.site.until(lambda: len(seen) > 10 and set(seen[-8:]) == {canary}, "all traffic on the canary")
        bench.perform("join", route=name, deployment=stable, weight=1000)
        bench.perform("leave", route=name, deployment=canary)
        bench.site.until(lambda: set(seen[-8:]) == {stable}, "all traffic back on stable")
        bench.perform("twin", route=name, deployment=stable, weight=100)
        count = len(seen)
        bench.site.until(lambda: len(seen) > count + 20, "some more traffic")
    assert set(seen) == {stable, canary}
    assert weights(bench, route) == {stable: 100}


# --- the marker


def test_the_marker_is_written_and_removed_beside_everything_else(bench: Bench, pair: Pair) -> None:
    found = {"team": "x", "deep": {"list": [1, None, 2.5], "empty": {}}}
    route = bench.site.new_route({pair.a["id"]: 100}, meta=found)
    before = bench.targets(route)
    marker = {"id": "r1", "nonce": "n", "expires": "2026-01-01T00:00:00+00:00", "receipts": {"extra": {}, "none": None, "share": 0.5}}
    receipt = bench.perform("mark_route", route=route["name"], marker=marker)
    assert receipt["seconds"] > 0
    assert bench.site.route(route["id"])["meta"] == {**found, "rollout": marker}
    assert bench.holds("mark_route", route=route["name"], marker=marker)
    assert bench.perform("mark_route", route=route["name"], marker=marker)["already"] is True
    bench.perform("unmark_route", route=route["name"], meta=found)
    assert bench.site.route(route["id"])["meta"] == found
    assert bench.holds("unmark_route", route=route["name"], meta=found)
    assert (bench.targets(route), bench.site.route(route["id"])["categories"]) == (before, ["llm"])


def test_a_marker_outlives_what_the_server_writes_over_the_route_of_a_deployment(bench: Bench) -> None:
    model = bench.site.deploy(enable_model_route=True)
    name, marker = model["name"], {"id": "r1", "nonce": "n"}
    route = next(row for row in bench.site.get("/v2/model-routes?perPage=1000")["items"] if row["name"] == name)
    bench.until_holds(lambda: bench.observe(name).route is not None)
    bench.perform("mark_route", route=name, marker=marker)
    try:
        changed = {key: value for key, value in bench.site.model(model["id"]).items() if key in SETTABLE}
        body = {**changed, "name": name, "meta": {"from": "the deployment"}}
        bench.site.api.put(f"/v2/models/{model['id']}", json=body).raise_for_status()
        bench.until_holds(lambda: bench.site.route(route["id"])["meta"] == {"from": "the deployment"})
        assert bench.holds("mark_route", route=name, marker=marker)
        with pytest.raises(Refused, match="r1"):
            bench.perform("mark_route", route=name, marker={"id": "r2", "nonce": "other"})
        names = [row["id"] for row in bench.site.user.get("/v1/models").json()["data"]]
        assert not [n for n in names if n.startswith(CLAIM_PREFIX)]
        assert bench.site.ask(CLAIM_PREFIX + name, client=bench.site.user).status_code in (403, 404, 503)
        bench.perform("unmark_route", route=name, meta={})
        assert bench.holds("unmark_route", route=name, meta={})
    finally:
        bench.sweep(CLAIM_PREFIX + name)


def test_of_many_claims_at_the_same_instant_one_wins(bench: Bench) -> None:
    name = bench.site.deploy(enable_model_route=True, wait=False)["name"]

    def claim(number: int) -> str:
        try:
            Bench(bench.site).perform("mark_route", route=name, marker={"id": f"r{number}", "nonce": f"n{number}"})
        except Refused:
            return "refused"
        return f"r{number}"

    try:
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(claim, range(6)))
        winners = [result for result in results if result != "refused"]
        route = bench.observe(name).route
        assert route is not None
        assert [route.meta["rollout"]["id"]] == winners
    finally:
        bench.sweep(CLAIM_PREFIX + name)


# --- private routes


@pytest.mark.modes
def test_a_private_route_answers_its_owner_and_nobody_else_at_any_moment(bench: Bench, pair: Pair, probe: str) -> None:
    going = [True]
    seen: list[int] = []

    def stranger() -> None:
        while going[0]:
            seen.append(bench.site.ask(probe, client=bench.site.user).status_code)

    with ThreadPoolExecutor(2) as pool:
        strangers = [pool.submit(stranger) for _ in range(2)]
        try:
            receipt = bench.perform("create_probe_route", name=probe, deployment=pair.names[1])
            bench.site.until(lambda: bench.site.ask(probe).status_code == 200, "the private route to answer")
            count = len(seen)
            bench.site.until(lambda: len(seen) > count + 10, "the stranger to try again")
        finally:
            going[0] = False
        for task in strangers:
            task.result()
    assert set(seen) <= {403, 404, 503}  # 503: born empty; a name that answers nothing
    assert bench.site.ask(probe).json()["model"] == pair.names[1]
    assert (receipt["active"], receipt["already"]) == (True, False)
    assert bench.holds("create_probe_route", name=probe, deployment=pair.names[1])
    assert bench.perform("create_probe_route", name=probe, deployment=pair.names[1])["already"] is True
    assert probe in bench.observe("no-route", pair.names[1]).deployments[pair.names[1]].routes


def test_a_private_route_goes_and_its_deployment_stays(bench: Bench, pair: Pair, probe: str) -> None:
    bench.perform("create_probe_route", name=probe, deployment=pair.names[0])
    bench.perform("delete_probe_route", name=probe)
    assert bench.holds("delete_probe_route", name=probe)
    assert bench.perform("delete_probe_route", name=probe)["already"] is True
    assert bench.site.model(pair.a["id"])["ready_replicas"] == 1


def test_a_route_of_users_is_never_taken_for_a_private_one(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 100})
    for verb, args in (("create_probe_route", {"deployment": pair.names[0]}), ("delete_probe_route", {})):
        with pytest.raises(Refused, match=route["name"]):
            bench.perform(verb, name=route["name"], **args)
    assert weights(bench, route) == {pair.names[0]: 100}


# --- deployments


def recipe(bench: Bench, base: str, name: str, **env: str) -> dict[str, Any]:
    """Arguments of `create_deployment`: `base` as it is now, with one more environment variable."""
    change: dict[str, Any] = {"unit": "parameters", "to": {"env": env or {"NEW": "1"}}}
    found = bench.observe("no-route", base).deployments[base].spec
    return {
        "name": name,
        "base": base,
        "change": change,
        "sizing": {},
        "digest": spec_digest(derive_spec(found, "parameters", change["to"], {}, name)),
    }


def test_a_deployment_is_made_once_and_deleted_once(bench: Bench, pair: Pair) -> None:
    name = unique("made")
    args = recipe(bench, pair.names[0], name)
    try:
        receipt = bench.perform("create_deployment", **args)
        assert bench.holds("create_deployment", name=name)
        assert bench.perform("create_deployment", **args) == {"already": True, "seconds": 0.0, "id": receipt["id"]}
        bench.site.ready(receipt["id"])
        assert bench.perform("create_deployment", **args)["already"] is True
        with pytest.raises(Refused, match="another spec") as caught:
            bench.perform("create_deployment", **recipe(bench, pair.names[0], name, NEW="2"))
        assert "env" in caught.value.why
        assert all(row["name"] != name for row in bench.site.get("/v2/model-routes")["items"])
        bench.perform("delete_deployment", name=name)
        assert bench.holds("delete_deployment", name=name)
        assert bench.perform("delete_deployment", name=name)["already"] is True
    finally:
        bench.sweep(name)


def test_a_new_deployment_differs_from_its_base_in_the_unit_alone(bench: Bench, pair: Pair) -> None:
    name = unique("equal")
    try:
        bench.perform("create_deployment", **recipe(bench, pair.names[0], name))
        seen = bench.observe("no-route", name, pair.names[0]).deployments
        assert diff_spec(seen[pair.names[0]].spec, seen[name].spec) == [("env", None, {"NEW": "1"})]
    finally:
        bench.sweep(name)


def test_a_deployment_in_a_route_is_not_deleted_but_one_in_our_private_route_is(bench: Bench, pair: Pair, probe: str) -> None:
    used = bench.site.deploy()
    route = bench.site.new_route({used["id"]: 50, pair.a["id"]: 50})
    bench.perform("create_probe_route", name=probe, deployment=used["name"])
    with pytest.raises(Refused) as caught:
        bench.perform("delete_deployment", name=used["name"])
    assert route["name"] in caught.value.message
    assert probe not in caught.value.message
    bench.perform("leave", route=route["name"], deployment=used["name"])
    bench.perform("delete_deployment", name=used["name"])
    assert bench.holds("delete_deployment", name=used["name"])
    bench.until_holds(lambda: weights(bench, route) == {pair.names[0]: 50})


# --- faults between us and the server


@dataclass(frozen=True)
class Case:
    """An effect, the write that meets the fault, and how its end shows."""

    verb: str
    args: Callable[[Pair, Row, str], dict[str, Any]]
    method: str
    path: str
    start: dict[str, int]
    end: dict[str, int]


def _canary(weight: int | None = None) -> Callable[[Pair, Row, str], dict[str, Any]]:
    more = {} if weight is None else {"weight": weight}
    return lambda pair, route, _: {"route": route["name"], "deployment": pair.names[1], **more}


CASES = [
    Case("join", _canary(5), "PUT", "/model-routes/", {"a": 100}, {"a": 100, "b": 5}),
    Case("set_weight", _canary(9), "PUT", "/model-route-targets/", {"a": 100, "b": 5}, {"a": 100, "b": 9}),
    Case("leave", _canary(), "DELETE", "/model-route-targets/", {"a": 100, "b": 5}, {"a": 100}),
    Case("twin", _canary(70), "PUT", "/model-routes/", {"b": 5}, {"b": 70}),
    Case("twin", _canary(70), "DELETE", "/model-route-targets/", {"b": 5}, {"b": 70}),
    Case("mark_route", lambda _p, r, _n: {"route": r["name"], "marker": {"id": "x"}}, "PUT", "/model-routes/", {"a": 100}, {"a": 100}),
    Case("create_probe_route", lambda p, _r, n: {"name": n, "deployment": p.names[1]}, "POST", "/model-routes$", {"a": 100}, {"a": 100}),
    Case("create_probe_route", lambda p, _r, n: {"name": n, "deployment": p.names[1]}, "POST", "/access$", {"a": 100}, {"a": 100}),
    Case("create_probe_route", lambda p, _r, n: {"name": n, "deployment": p.names[1]}, "PUT", "/model-routes/", {"a": 100}, {"a": 100}),
]


@pytest.mark.parametrize("kind", ["lost", "never_sent", "error_500_after"])
@pytest.mark.parametrize("case", CASES, ids=[f"{c.verb}-{c.method}{c.path.strip('/$').replace('/', '-')}" for c in CASES])
def test_one_lost_answer_neither_loses_nor_doubles_a_write(bench: Bench, pair: Pair, probe: str, case: Case, kind: str) -> None:
    ids = {"a": pair.a["id"], "b": pair.b["id"]}
    route = bench.site.new_route({ids[key]: weight for key, weight in case.start.items()})
    args = case.args(pair, route, probe)
    with bench.faults.once(kind, case.method, case.path):
        bench.perform(case.verb, **args)
    assert bench.holds(case.verb, **args)
    assert weights(bench, route) == {pair.names[0 if key == "a" else 1]: weight for key, weight in case.end.items()}
    assert len(bench.targets(route)) == len(case.end)
    assert bench.perform(case.verb, **args)["already"] is True


@pytest.mark.parametrize("kind", ["lost", "never_sent", "error_500_after"])
def test_one_lost_answer_makes_one_deployment_and_deletes_it_once(bench: Bench, pair: Pair, kind: str) -> None:
    name = unique("lost")
    args = recipe(bench, pair.names[0], name)
    try:
        with bench.faults.once(kind, "POST", "/models$"):
            bench.perform("create_deployment", **args)
        rows = [row for row in bench.site.get("/v2/models?perPage=1000")["items"] if row["name"] == name]
        assert len(rows) == 1
        with bench.faults.once(kind, "DELETE", "/models/"):
            bench.perform("delete_deployment", name=name)
        assert bench.holds("delete_deployment", name=name)
    finally:
        bench.sweep(name)


def test_a_write_that_was_accepted_and_not_applied_is_an_error(bench: Bench, pair: Pair) -> None:
    route = bench.site.new_route({pair.a["id"]: 100, pair.b["id"]: 5})
    with bench.faults.once("ignored", "PUT", "/model-route-targets/"), pytest.raises(BadAnswer, match="does not show it"):
        bench.perform("set_weight", route=route["name"], deployment=pair.names[1], weight=9)
    assert weights(bench, route) == {pair.names[0]: 100, pair.names[1]: 5}


# --- what the server refuses


def with_key(site: Site, key: str, call: Callable[[GPUStack], Any]) -> Any:
    async def work() -> Any:
        async with GPUStack(Http(site.described["server_url"], Secret(key), retry=Retry(SystemClock()))) as client:
            return await call(client)

    return asyncio.run(work())


def test_a_wrong_key_and_a_wrong_scope_are_refused_with_a_remedy(gpustack: Site) -> None:
    for key, word in (
        ("gpustack_0000000000000000_00000000000000000000000000000000", "make a new one"),
        (gpustack.described["inference_key"], "scope"),
    ):
        with pytest.raises(Refused) as caught:
            with_key(gpustack, key, lambda client: client.models())
        assert word in caught.value.hint
        assert key not in f"{caught.value} {caught.value.why} {caught.value!r}"


def test_an_unknown_target_id_is_refused_although_the_server_says_500(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 100})
    body = {"name": route["name"], "targets": [{"id": 99_999_999, "model_id": pair.a["id"], "weight": 1}]}
    with pytest.raises(Refused) as caught:
        with_key(gpustack, gpustack.described["management_key"], lambda client: client.put_route(route["id"], body))
    assert getattr(caught.value, "not_found", False)


@pytest.mark.only(since="2.3")
def test_weights_the_server_cannot_split_are_refused_with_its_words(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 100, pair.b["id"]: 5})
    target = gpustack.targets(route["id"])[pair.b["id"]]["id"]
    with pytest.raises(Refused) as caught:
        with_key(
            gpustack,
            gpustack.described["management_key"],
            lambda client: client.put_target(target, {"model_id": pair.b["id"], "weight": 0}),
        )
    assert "positive weight" in caught.value.why


def test_a_port_where_nobody_listens_is_unreachable_within_seconds() -> None:
    async def work() -> None:
        async with GPUStack(Http("http://127.0.0.1:9", None, retry=Retry(SystemClock(), waiting=False))) as client:
            await client.version()

    with pytest.raises(Unreachable):
        asyncio.run(work())
