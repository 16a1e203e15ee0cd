"""GPUStack 2.2 and 2.3: deployments, instances, files, workers, drain (contract 4, 5, 8, 10, 14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Pair
from tests.contract.site import Row, Site, message, unique


def put(site: Site, model: Row, **fields: Any) -> Row:
    body = {"name": model["name"], "source": "local_path", "local_path": model["local_path"], **fields}
    response = site.api.put(f"/v2/models/{model['id']}", json=body)
    assert response.status_code == 200, response.text
    row: Row = response.json()
    return row


def replaced(site: Site, model: Row, old: Row) -> list[Row]:
    """Running instances other than `old`."""
    return [row for row in site.instances(model["id"]) if row["id"] != old["id"] and row["state"] == "running"]


# --- deployments


def test_a_new_deployment_has_no_state_and_becomes_running(gpustack: Site) -> None:
    fresh = gpustack.deploy(wait=False)
    assert fresh["ready_replicas"] in (0, 1)
    gpustack.ready(fresh["id"])
    row = gpustack.model(fresh["id"])
    assert (row.get("state"), row["ready_replicas"], row["replicas"]) == ("running" if gpustack.balances else None, 1, 1)
    instance = gpustack.instances(fresh["id"])[0]
    assert (instance["state"], instance["worker_name"], instance["restart_count"]) == ("running", "spark-01", 0)
    assert instance["name"].startswith(fresh["name"] + "-")
    assert instance["ports"] == [instance["port"]]
    assert instance["resolved_path"] == fresh["local_path"]


def test_a_deployment_name_is_taken_once(gpustack: Site, pair: Pair) -> None:
    again = gpustack.api.post("/v2/models", json=gpustack.spec(pair.a["name"]))
    assert again.status_code == 409
    assert again.json()["reason"] == "AlreadyExists"


def test_an_own_route_needs_a_free_route_name(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1}, wait=False)
    assert gpustack.api.post("/v2/models", json=gpustack.spec(route["name"], enable_model_route=True)).status_code == 409


def test_name_and_source_are_mandatory_and_the_rest_is_kept(gpustack: Site) -> None:
    model = gpustack.deploy(env={"A": "1"}, description="first")
    assert gpustack.api.put(f"/v2/models/{model['id']}", json={"name": model["name"]}).status_code == 422
    assert gpustack.api.put(f"/v2/models/{model['id']}", json={"source": "local_path"}).status_code == 422
    changed = put(gpustack, model, description="second")
    assert changed["description"] == "second"
    for field in ("env", "replicas", "backend", "backend_parameters", "categories", "worker_selector"):
        assert changed[field] == model[field]


def test_a_new_spec_does_not_touch_what_runs(gpustack: Site) -> None:
    model = gpustack.deploy(env={"SIM_TOKENS": "2"})
    before = gpustack.instances(model["id"])[0]
    put(gpustack, model, env={"SIM_TOKENS": "5"})
    route = gpustack.new_route({model["id"]: 1})
    answer = gpustack.ask(route["name"], max_tokens=None).json()
    assert answer["usage"]["completion_tokens"] == 2  # the old environment
    assert gpustack.instances(model["id"])[0]["id"] == before["id"]
    assert gpustack.model(model["id"])["env"] == {"SIM_TOKENS": "5"}


def test_scaling_to_zero_ends_the_instance_and_the_state_says_pending(gpustack: Site) -> None:
    model = gpustack.deploy()
    route = gpustack.new_route({model["id"]: 1})
    put(gpustack, model, replicas=0)
    gpustack.until(lambda: not gpustack.instances(model["id"]), "no instance")
    gpustack.until(lambda: str(gpustack.ask(route["name"]).status_code) in gpustack.gaps, "nobody answers")
    if gpustack.balances:
        gpustack.until(lambda: gpustack.model(model["id"])["state"] == "pending", "pending")
    gpustack.until(lambda: gpustack.target_list(route["id"])[0]["state"] == "unavailable", "target unavailable")
    put(gpustack, model, replicas=1)
    gpustack.settled(route)


def test_replicas_take_turns_and_one_goes_when_they_shrink(gpustack: Site) -> None:
    model = gpustack.deploy(replicas=2)
    route = gpustack.new_route({model["id"]: 1})
    names = {row["name"] for row in gpustack.instances(model["id"])}
    assert len(names) == 2
    asked = 40 if gpustack.gateway else 8  # a gateway draws, the server's proxy takes turns
    served = {gpustack.ask(route["name"]).json()["system_fingerprint"] for _ in range(asked)}
    assert served == names
    put(gpustack, model, replicas=1)
    gpustack.until(lambda: len(gpustack.instances(model["id"])) == 1, "one instance")
    assert {row["name"] for row in gpustack.instances(model["id"])} < names


def test_a_deleted_instance_is_replaced(gpustack: Site) -> None:
    model = gpustack.deploy()
    old = gpustack.instances(model["id"])[0]
    assert gpustack.api.delete(f"/v2/model-instances/{old['id']}").status_code == 200
    gpustack.until(lambda: replaced(gpustack, model, old), "replaced")
    assert len(gpustack.instances(model["id"])) == 1


@pytest.mark.only(since="2.3")
def test_restart_replaces_the_instances(gpustack: Site) -> None:
    model = gpustack.deploy()
    old = gpustack.instances(model["id"])[0]
    answer = gpustack.api.post(f"/v2/models/{model['id']}/restart").json()
    assert answer["restarted"] is True
    assert answer["deleted_instances"] == [old["name"]]
    gpustack.until(lambda: replaced(gpustack, model, old), "rebuilt")


def test_a_crash_raises_the_restart_count(gpustack: Site) -> None:
    model = gpustack.deploy()
    instance = gpustack.instances(model["id"])[0]
    gpustack.node("spark-01", crash=instance["id"])

    def back() -> bool:
        row = gpustack.get(f"/v2/model-instances/{instance['id']}")
        return bool(row["state"] == "running" and row["restart_count"] >= 1)

    gpustack.until(back, "instance restarted")
    assert gpustack.get(f"/v2/model-instances/{instance['id']}")["last_restart_time"]


def test_an_instance_that_fails_to_start_says_error(gpustack: Site) -> None:
    model = gpustack.deploy(wait=False, env={"SIM_FAIL_START": "1"}, restart_on_error=False)
    gpustack.until(lambda: [row for row in gpustack.instances(model["id"]) if row["state"] == "error"], "error")
    assert gpustack.instances(model["id"])[0]["state_message"]
    if gpustack.balances:
        gpustack.until(lambda: gpustack.model(model["id"])["state"] == "error", "deployment in error")
    assert gpustack.model(model["id"])["ready_replicas"] == 0


def test_a_selector_pins_the_worker(gpustack: Site) -> None:
    model = gpustack.deploy(worker="staging")
    assert gpustack.instances(model["id"])[0]["worker_name"] == "staging"


def test_vllm_without_a_memory_fraction_does_not_fit_beside_another(gpustack: Site) -> None:
    gpustack.deploy(worker="staging", backend_parameters=["--gpu-memory-utilization=0.3"])
    second = gpustack.deploy(wait=False, worker="staging", backend_parameters=[])

    def refused() -> Any:
        rows = gpustack.instances(second["id"])
        return [row for row in rows if row["state"] == "pending" and "No suitable workers" in (row["state_message"] or "")]

    gpustack.until(refused, "pending with a reason")


def test_a_custom_backend_schedules_too(gpustack: Site) -> None:
    model = gpustack.deploy(backend="Custom")
    route = gpustack.new_route({model["id"]: 1})
    assert gpustack.ask(route["name"]).json()["model"] == model["name"]


# --- the route a deployment brings along


def test_an_own_route_has_weight_100(gpustack: Site) -> None:
    model = gpustack.deploy(enable_model_route=True)
    route = gpustack.get(f"/v2/model-routes?name={model['name']}")["items"][0]
    assert route["created_model_id"] == model["id"]
    assert [(row["model_id"], row["weight"]) for row in gpustack.target_list(route["id"])] == [(model["id"], 100)]
    assert "lb_mode" not in route or gpustack.gateway  # not derived before somebody writes the route, or it is rendered
    gpustack.drop_cache(route)
    assert gpustack.route(route["id"]).get("lb_mode") == ("weighted" if gpustack.balances else None)


@pytest.mark.only(since="2.3")
def test_an_own_route_of_two_replicas_is_scored_and_not_weighted(gpustack: Site, pair: Pair) -> None:
    model = gpustack.deploy(replicas=2, enable_model_route=True)
    route = gpustack.get(f"/v2/model-routes?name={model['name']}")["items"][0]
    target = gpustack.target_list(route["id"])[0]
    assert target["weight"] == 0
    gpustack.drop_cache(route)
    assert gpustack.route(route["id"])["lb_mode"] == "scoring"
    entries = [{"id": target["id"], "model_id": model["id"], "weight": 0}, {"model_id": pair.b["id"], "weight": 1}]
    assert gpustack.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "targets": entries}).status_code == 422


def test_an_own_route_loses_its_meta_to_every_event_of_its_deployment(gpustack: Site) -> None:
    model = gpustack.deploy(enable_model_route=True)
    route = gpustack.get(f"/v2/model-routes?name={model['name']}")["items"][0]
    gpustack.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "meta": {"rollout": "r1"}})
    put(gpustack, model, replicas=2)
    gpustack.until(lambda: gpustack.route(route["id"])["meta"] == {}, "meta gone")


def test_an_own_route_goes_with_its_last_target(gpustack: Site) -> None:
    model = gpustack.deploy(enable_model_route=True)
    route = gpustack.get(f"/v2/model-routes?name={model['name']}")["items"][0]
    gpustack.settled(route)
    gpustack.remove(route, gpustack.target_list(route["id"])[0])
    gpustack.until(lambda: gpustack.api.get(f"/v2/model-routes/{route['id']}").status_code == 404, "route gone")
    gpustack.until(lambda: gpustack.ask(model["name"]).status_code == 404, "404")


def test_an_own_route_with_another_target_outlives_its_deployment(gpustack: Site, pair: Pair) -> None:
    model = gpustack.deploy(enable_model_route=True)
    route = gpustack.get(f"/v2/model-routes?name={model['name']}")["items"][0]
    gpustack.forget("model-routes", route["id"])
    own = gpustack.target_list(route["id"])[0]
    entries = [{"id": own["id"], "model_id": model["id"], "weight": 100}, {"model_id": pair.b["id"], "weight": 1}]
    assert gpustack.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "targets": entries}).status_code == 200
    gpustack.settled(route)
    assert gpustack.api.delete(f"/v2/models/{model['id']}").status_code == 200
    gpustack.until(lambda: gpustack.route(route["id"])["ready_targets"] == 1, "one target left")
    assert gpustack.split(route["name"], 10) == {pair.b["name"]: 10}


# --- deletion and files


def test_a_deleted_deployment_leaves_every_route(gpustack: Site, pair: Pair) -> None:
    model = gpustack.deploy()
    alone, shared = gpustack.new_route({model["id"]: 1}), gpustack.new_route({model["id"]: 50, pair.b["id"]: 50})
    assert gpustack.api.delete(f"/v2/models/{model['id']}").json() is None
    assert gpustack.api.get(f"/v2/models/{model['id']}").status_code == 404
    gpustack.until(
        lambda: str(gpustack.ask(alone["name"]).status_code) in gpustack.gaps, "nobody answers on the route that had nothing else"
    )
    gpustack.until(lambda: gpustack.route(shared["id"])["targets"] == 1, "one target left")
    assert list(gpustack.targets(shared["id"])) == [pair.b["id"]]
    assert gpustack.target_list(alone["id"]) == []


def test_files_outlive_deployments_and_are_guarded_while_used(gpustack: Site) -> None:
    model = gpustack.deploy()
    worker = gpustack.worker("spark-01")["id"]

    def files() -> list[Row]:
        return [row for row in gpustack.get(f"/v2/model-files?worker_id={worker}")["items"] if row["local_path"] == model["local_path"]]

    row = files()[0]
    assert (row["state"], row["resolved_paths"]) == ("ready", [model["local_path"]])
    refused = gpustack.api.delete(f"/v2/model-files/{row['id']}")
    assert refused.status_code == 409
    assert gpustack.instances(model["id"])[0]["name"] in message(refused)
    gpustack.api.delete(f"/v2/models/{model['id']}")
    assert [item["id"] for item in files()] == [row["id"]]
    gpustack.until(lambda: gpustack.api.delete(f"/v2/model-files/{row['id']}").status_code == 200, "file row deleted")
    assert gpustack.api.get(f"/v2/model-files/{row['id']}").status_code == 404


# --- drain: nobody waits for a request


def test_a_stream_outlives_its_target_and_a_weight_change(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 1_000_000, pair.b["id"]: 1})
    target = gpustack.targets(route["id"])[pair.a["id"]]

    def leave() -> None:
        body = {"model_id": pair.a["id"], "weight": 1}
        assert gpustack.api.put(f"/v2/model-route-targets/{target['id']}", json=body).status_code == 200
        gpustack.remove(route, target)
        assert gpustack.split(route["name"], 10) == {pair.b["name"]: 10}

    stream = gpustack.read_stream(route["name"], started=leave, tokens=20, delay=0.1)
    assert stream.model == pair.a["name"]
    assert (stream.finish, stream.done) == ("stop", True)


def cut(site: Site, end: Any) -> None:
    """A stream that is cut: HTTP 200, no [DONE], no finish_reason; an error event inside; with a gateway the connection breaks off."""
    model = site.deploy()
    route = site.new_route({model["id"]: 1})
    stream = site.read_stream(route["name"], started=lambda: end(model), tokens=200, delay=0.1)
    assert stream.status == 200
    assert not stream.done
    assert stream.finish is None
    assert stream.broken is site.gateway
    if site.gateway:
        return
    assert stream.error is not None
    assert stream.error["code"] == 503
    assert stream.error["message"] == "Service unavailable. Please retry your requests after a brief wait."


def test_scaling_to_zero_cuts_streams(gpustack: Site) -> None:
    cut(gpustack, lambda model: put(gpustack, model, replicas=0))


def test_deleting_a_deployment_cuts_streams(gpustack: Site) -> None:
    cut(gpustack, lambda model: gpustack.api.delete(f"/v2/models/{model['id']}"))


def test_a_crash_cuts_streams(gpustack: Site) -> None:
    cut(gpustack, lambda model: gpustack.node("spark-01", crash=gpustack.instances(model["id"])[0]["id"]))


# --- workers


def test_maintenance_keeps_what_runs_and_takes_nothing_new(gpustack: Site) -> None:
    model = gpustack.deploy(worker="staging")
    route = gpustack.new_route({model["id"]: 1})
    worker = gpustack.worker("staging")

    def maintain(on: bool) -> None:
        body = {"name": worker["name"], "labels": worker["labels"], "maintenance": {"enabled": on, "message": "drain"}}
        assert gpustack.api.put(f"/v2/workers/{worker['id']}", json=body).status_code == 200
        wanted = "maintenance" if on else "ready"
        gpustack.until(lambda: gpustack.worker("staging")["state"] == wanted, wanted)

    try:
        maintain(True)
        assert gpustack.ask(route["name"]).status_code == 200
        second = gpustack.deploy(wait=False, worker="staging")
        gpustack.until(lambda: [row for row in gpustack.instances(second["id"]) if "READY" in (row["state_message"] or "")], "refused")
    finally:
        maintain(False)
    assert gpustack.ask(route["name"]).status_code == 200


def test_heartbeats_and_facts_of_workers(gpustack: Site) -> None:
    rows = gpustack.get("/v2/workers")["items"]
    assert {row["name"] for row in rows} >= {"spark-01", "spark-02", "staging"}
    for row in rows:
        assert row["state"] == "ready"
        assert row["heartbeat_time"]
        assert row["unreachable"] is False
        assert row["status"]["os"]["version"]
        assert row["status"]["gpu_devices"][0]["driver_version"]
        assert row["labels"]["worker-name"] == row["name"]


def test_workers_show_memory_and_what_is_claimed(gpustack: Site) -> None:
    model = gpustack.deploy(unique("claim"), worker="staging", backend_parameters=["--gpu-memory-utilization=0.2"])
    total = gpustack.worker("staging")["status"]["gpu_devices"][0]["memory"]["total"]
    assert gpustack.instances(model["id"])[0]["computed_resource_claim"]["vram"]["0"] == int(total * 0.2)

    def agrees() -> bool:
        worker = gpustack.worker("staging")
        assert worker["status"]["memory"]["total"] > worker["status"]["memory"]["used"] > 0
        rows = gpustack.get(f"/v2/model-instances?worker_id={worker['id']}")["items"]
        claims = sum(row["computed_resource_claim"]["vram"]["0"] for row in rows)
        return bool(worker["status"]["gpu_devices"][0]["memory"]["allocated"] == claims >= int(total * 0.2))

    gpustack.until(agrees, "what is claimed is shown")
