"""Scaling and deleting files: what is used is left alone, looked at just before; every other field stays as it was."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.domain.world import FileView, Scope
from rollout.errors import Refused
from tests.unit.backends.gpustack_double import Double, error, run

ARGS = {"worker": "spark-01", "source": "local_path /m", "paths": ["/m"]}


def world() -> Double:
    double = Double()
    double._add("workers", {"name": "spark-01", "state": "ready", "status": {"filesystem": [{"mount_point": "/", "used": 7}]}})
    double.model("m-a", local_path="/m", env={"HF_TOKEN": "hf_secret"}, ready_replicas=1)
    double.model("m-idle", local_path="/m", replicas=0, ready_replicas=0)
    double.model("m-c", source="huggingface", huggingface_repo_id="org/m", huggingface_filename="*Q4*")
    double.route("chat", {"m-c": 100})
    double.route("probe", {"m-a": 100}, meta={"rollout-probe": "m-a"}, access_policy="allowed_principals")
    return double


def file(double: Double, **fields: Any) -> int:
    row = {"source": "local_path", "local_path": "/m", "worker_id": double.named("workers", "spark-01")["id"], "resolved_paths": ["/m"]}
    return int(double._add("files", {**row, "size": 5, "state": "ready", **fields})["id"])


def test_files_are_seen_with_everybody_who_uses_them_and_only_when_asked_for() -> None:
    """Also a deployment with 0 replicas: it will want them again."""
    double = world()
    mine = file(double)
    other = file(double, source="huggingface", local_path=None, huggingface_repo_id="org/m", huggingface_filename="*Q4*", worker_id=None)
    found = run(double.backend().observe(Scope("chat", (), files=True)))
    assert found.files == (
        FileView(mine, "spark-01", "local_path /m", ("/m",), 5, "ready", ("m-a", "m-idle")),
        FileView(other, None, "huggingface org/m *Q4*", ("/m",), 5, "ready", ("m-c",)),
    )
    assert found.workers["spark-01"].disks == {"/": 7}
    assert run(double.backend().observe(Scope("chat", ()))).files is None


def test_an_instance_tells_its_reservation_and_how_long_it_took() -> None:
    double = world()
    times = {"created_at": "2026-01-01T11:00:00Z", "updated_at": "2026-01-01T11:01:35Z"}
    row = {"name": "m-c-1", "model_id": double.named("models", "m-c")["id"], "worker_name": "spark-01", **times}
    claim = {"computed_resource_claim": {"ram": 2, "vram": {"0": 8}, "is_unified_memory": True}}
    double._add("instances", {**row, "state": "running", **claim})
    double._add("instances", {**row, "state": "running", "restart_count": 1})
    double._add("instances", {**row, "state": "starting"})
    views = run(double.backend().observe(Scope("chat", ("m-c",)))).deployments["m-c"].instances
    assert [(v.claim, v.loaded) for v in views] == [(10, 95.0), (None, None), (None, None)]


def test_scaling_sends_the_whole_spec_and_changes_the_replicas_alone() -> None:
    double = world()
    before = dict(double.named("models", "m-a"))
    receipt = double.perform("scale", name="m-a", replicas=0)
    assert double.named("models", "m-a") == {**before, "replicas": 0}
    path, body = next((path, body) for method, path, body in double.calls if method == "PUT")
    assert path == f"/v2/models/{before['id']}"
    assert (body["env"], body["source"], body["replicas"]) == ({"HF_TOKEN": "hf_secret"}, "local_path", 0)
    assert "ready_replicas" not in body
    assert "hf_secret" not in str(receipt)
    assert double.perform("scale", name="m-a", replicas=0)["already"] is True


def test_what_users_reach_is_not_scaled_to_0() -> None:
    double = world()
    with pytest.raises(Refused, match="chat still sends to it"):
        double.perform("scale", name="m-c", replicas=0)
    assert double.writes() == []
    double.perform("scale", name="m-c", replicas=2)
    assert double.named("models", "m-c")["replicas"] == 2


def test_scaling_what_is_gone_is_refused() -> None:
    with pytest.raises(Refused, match="No deployment is named m-x"):
        world().perform("scale", name="m-x", replicas=1)


def test_a_file_is_deleted_with_its_bytes() -> None:
    double = world()
    for name in ("m-a", "m-idle"):
        del double.tables["models"][double.named("models", name)["id"]]
    asked: list[httpx.URL] = []

    def listen(_double: Double, request: httpx.Request) -> None:
        asked.append(request.url)

    mine = file(double)
    double.fault("DELETE", "model-files", listen)
    double.perform("delete_file", id=mine, **ARGS)
    assert [url.query for url in asked] == [b"cleanup=true"]
    assert double.tables["files"] == {}
    assert double.perform("delete_file", id=mine, **ARGS)["already"] is True


def test_a_file_that_a_deployment_uses_is_left_alone() -> None:
    double = world()
    mine = file(double)
    with pytest.raises(Refused, match="m-a, m-idle uses it"):
        double.perform("delete_file", id=mine, **ARGS)
    assert double.writes() == []


@pytest.mark.parametrize("fields", [{"local_path": "/other"}, {"resolved_paths": ["/m", "/elsewhere"]}])
def test_an_id_that_means_another_file_now_is_left_alone(fields: dict[str, Any]) -> None:
    double = world()
    mine = file(double, **fields)
    with pytest.raises(Refused, match="is another one now"):
        double.perform("delete_file", id=mine, **ARGS)
    assert double.writes() == []


def test_an_instance_that_still_uses_it_is_the_servers_no() -> None:
    double = world()
    for name in ("m-a", "m-idle"):
        del double.tables["models"][double.named("models", name)["id"]]
    mine = file(double)
    for _ in range(5):
        double.fault("DELETE", "model-files", lambda _d, _r: error(409, "It's being used by model instances: m-a-x."))
    with pytest.raises(Refused) as caught:
        double.perform("delete_file", id=mine, **ARGS)
    assert "m-a-x" in caught.value.why
    assert mine in double.tables["files"]
