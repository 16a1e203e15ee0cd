"""Out of memory and back, and files on disk: the product's own effects on the sandbox and on the real server."""

from __future__ import annotations

from typing import Any

import pytest

from rollout.domain.world import FileView
from rollout.errors import Refused
from tests.contract.bench import Bench
from tests.contract.site import Row, Site, message, unique

VOLATILE = ("replicas", "ready_replicas", "state", "state_message", "updated_at", "stale", "role_status", "restarting_since")
GIB = 1 << 30


@pytest.fixture
def bench(gpustack: Site) -> Bench:
    """The backend on this server."""
    return Bench(gpustack)


def files_of(bench: Bench, name: str) -> list[FileView]:
    """Rows whose source is that of a deployment."""
    world = bench.world(name)
    assert world.files is not None
    return [row for row in world.files if name in row.users]


def spec(row: Row) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in VOLATILE}


def test_replicas_go_to_0_and_come_back_with_everything_else_as_it_was(bench: Bench) -> None:
    """The instance is gone, its file row stays, the reservation is free; the same spec is running again afterwards."""
    site = bench.site
    model = site.deploy(env={"SIM_TOKENS": "3"}, description="as found", meta={"team": "x"})
    name = model["name"]
    before = bench.world(name)
    (row,) = before.deployments[name].instances
    assert row.claim is not None
    assert row.claim >= 8 * GIB
    assert row.loaded is not None
    assert 0 <= row.loaded < 30
    assert bench.perform("scale", name=name, replicas=0)["already"] is False
    assert bench.perform("scale", name=name, replicas=0)["already"] is True
    site.until(lambda: not site.instances(model["id"]), "no instance")
    parked = bench.world(name)
    assert (parked.deployments[name].replicas, parked.deployments[name].ready) == (0, False)
    assert parked.deployments[name].spec == {**before.deployments[name].spec, "replicas": 0}
    assert [(f.worker, f.paths, f.state) for f in files_of(bench, name)] == [("spark-01", (model["local_path"],), "ready")]
    bench.perform("scale", name=name, replicas=1)
    site.ready(model["id"])
    assert spec(site.model(model["id"])) == spec(model)
    assert bench.holds("scale", name=name, replicas=1)


def test_what_a_route_of_users_reaches_is_not_scaled_to_0(bench: Bench) -> None:
    model = bench.site.deploy()
    route = bench.site.new_route({model["id"]: 1})
    with pytest.raises(Refused, match=f"{route['name']} still sends to it"):
        bench.perform("scale", name=model["name"], replicas=0)
    assert bench.site.model(model["id"])["replicas"] == 1


def test_parked_files_can_be_deleted_by_anybody_and_the_world_shows_it(bench: Bench) -> None:
    """409 while the deployment runs; parked, nothing protects them: that is why they are watched."""
    site = bench.site
    model = site.deploy()
    (mine,) = files_of(bench, model["name"])
    refused = site.admin.delete(f"/v2/model-files/{mine.id}?cleanup=true")
    assert refused.status_code == 409
    assert "being used by model instances" in message(refused)
    bench.perform("scale", name=model["name"], replicas=0)
    site.until(lambda: site.admin.delete(f"/v2/model-files/{mine.id}?cleanup=true").status_code == 200, "the file row goes")
    assert files_of(bench, model["name"]) == []


def test_a_file_is_deleted_from_disk_once_its_deployment_is_gone(bench: Bench) -> None:
    """The row goes, the worker's files go, and its disk shows that later."""
    site = bench.site
    model = site.deploy(name := unique("gone"))
    path = model["local_path"]
    (mine,) = files_of(bench, name)
    args = {"id": mine.id, "worker": "spark-01", "source": mine.source, "paths": list(mine.paths)}
    with pytest.raises(Refused, match=f"{name} uses it"):
        bench.perform("delete_file", **args)
    site.until(lambda: path in site.node("spark-01")["files"], "the files are on disk")
    disk = site.node("spark-01")["files"][path]
    bench.perform("delete_deployment", name=name)
    site.until(lambda: _used(bench) == _on_disk(site), "the worker's report is up to date", 60)
    before = _used(bench)
    assert bench.perform("delete_file", **args)["already"] is False
    assert bench.perform("delete_file", **args)["already"] is True
    site.until(lambda: path not in site.node("spark-01")["files"], "the files are gone")
    site.until(lambda: before - _used(bench) >= 0.9 * disk, "the disk shows it", 60)


def _on_disk(site: Site) -> int:
    """Bytes used on the simulated node's disk."""
    return 300 * GIB + sum(site.node("spark-01")["files"].values())


def _used(bench: Bench) -> int:
    return bench.world("none").workers["spark-01"].disks["/"]


def test_a_file_that_another_deployment_shares_is_left_alone(bench: Bench) -> None:
    """One row for both on that worker; also while the other one has 0 replicas."""
    site = bench.site
    one = site.deploy()
    other = site.deploy(local_path=one["local_path"])
    (mine,) = files_of(bench, one["name"])
    assert mine.users == tuple(sorted((one["name"], other["name"])))
    bench.perform("scale", name=other["name"], replicas=0)
    bench.perform("delete_deployment", name=one["name"])
    args = {"id": mine.id, "worker": "spark-01", "source": mine.source, "paths": list(mine.paths)}
    with pytest.raises(Refused, match=f"{other['name']} uses it"):
        bench.perform("delete_file", **args)
    assert one["local_path"] in site.node("spark-01")["files"]
