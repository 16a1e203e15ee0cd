"""Rules of the fake server that need a time machine or a fault: run in process, without a listener."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rollout.testing.gpustack import FakeGPUStack, Timing
from rollout.testing.gpustack.auth import Caller
from rollout.testing.gpustack.calls import Call, integer, page
from rollout.testing.gpustack.errors import ApiError, ErrorStyle
from rollout.testing.gpustack.faults import Fault, Faults
from rollout.testing.gpustack.undo import Undo
from rollout.testing.node import SimNode

SCALE = 0.01
SPEC: dict[str, Any] = {"source": "local_path", "local_path": "/m", "backend": "Custom", "image_name": "i", "cluster_id": 1}


class Bench:
    """A fake server with two nodes and nobody listening."""

    def __init__(self, scale: float = SCALE) -> None:
        self.server = FakeGPUStack(Timing(scale=scale))
        self.nodes = [SimNode(name, listen=False) for name in ("spark-01", "spark-02")]
        for node in self.nodes:
            self.server.add_node(node)
        self.world = self.server.world

    def call(self, row_id: int | None = None, **body: Any) -> Call:
        ids = {} if row_id is None else {"id": str(row_id)}
        return Call(ids, {}, body, Caller(self.server.auth.admin, None))

    async def deploy(self, name: str, **fields: Any) -> int:
        model_id = int(self.server.model_api.create(self.call(**{**SPEC, **fields, "name": name}))["id"])
        await until(lambda: self.world.tables["models"][model_id]["state"] == "running")
        return model_id

    async def route(self, name: str, *targets: tuple[int, int]) -> int:
        entries = [{"model_id": model, "weight": weight} for model, weight in targets]
        route_id = int(self.server.route_api.create(self.call(name=name, targets=entries))["id"])
        await until(lambda: self.world.tables["model-routes"][route_id]["ready_targets"] == len(entries))
        return route_id

    def targets(self, route_id: int) -> dict[int, dict[str, Any]]:
        return {row["model_id"]: row for row in self.world.where("model-route-targets", route_id=route_id)}


async def until(true: Callable[[], Any]) -> None:
    for _ in range(5000):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("did not become true in time")


def run(story: Callable[[Bench], Awaitable[None]], scale: float = SCALE) -> None:
    async def main() -> None:
        bench = Bench(scale)
        watching = bench.server.core.spawn(bench.server.workers.run())
        try:
            await story(bench)
        finally:
            watching.cancel()
            await bench.server.core.close()
        assert bench.server.core.failures == []

    asyncio.run(main())


# --- workers


def test_a_failing_health_check_takes_a_while_and_ends_by_itself() -> None:
    async def story(bench: Bench) -> None:
        model = await bench.deploy("m-a", worker_selector={"worker-name": "spark-01"})
        route = await bench.route("r", (model, 1))
        bench.nodes[0].knobs.healthy = False
        await until(lambda: bench.world.tables["workers"][1]["state"] == "unreachable")
        assert bench.world.where("model-instances", model_id=model)[0]["state"] == "unreachable"
        await until(lambda: bench.targets(route)[model]["state"] == "unavailable")
        bench.nodes[0].knobs.healthy = True
        await until(lambda: bench.world.where("model-instances", model_id=model)[0]["state"] == "running")
        await until(lambda: bench.world.tables["workers"][1]["state"] == "ready")
        await until(lambda: bench.targets(route)[model]["state"] == "active")

    run(story)


def test_lost_heartbeats_are_not_ready_and_later_the_instances_move() -> None:
    async def story(bench: Bench) -> None:
        model = await bench.deploy("m-a", worker_selector={"os": "linux"})
        first = bench.world.where("model-instances", model_id=model)[0]
        bench.server.core.nodes[first["worker_id"]].knobs.heartbeats = False
        await until(lambda: bench.world.tables["workers"][first["worker_id"]]["state"] == "not_ready")
        assert first["state"] == "unreachable"
        await until(lambda: bench.world.where("model-instances", model_id=model, state="running"))
        moved = bench.world.where("model-instances", model_id=model)[0]
        assert moved["id"] != first["id"]
        assert moved["worker_id"] != first["worker_id"]

    run(story, scale=0.002)


def test_worker_data_is_as_old_as_the_last_heartbeat() -> None:
    async def story(bench: Bench) -> None:
        bench.nodes[0].knobs.mem_used = 100
        assert bench.world.tables["workers"][1]["status"]["memory"]["used"] > 100
        await until(lambda: bench.world.tables["workers"][1]["status"]["memory"]["used"] == 100)

    run(story)


# --- instances


def test_a_start_that_fails_is_tried_again_with_a_raised_count() -> None:
    async def story(bench: Bench) -> None:
        for node in bench.nodes:
            node.knobs.restart_delay = 0.01
            node.model_knobs["m-a"] = {"fail_start": True}
        bench.server.model_api.create(bench.call(name="m-a", **SPEC))
        await until(lambda: bench.world.where("model-instances", state="error"))
        await until(lambda: bench.world.where("model-instances")[0]["restart_count"] >= 2)
        for node in bench.nodes:
            node.model_knobs["m-a"] = {}
        await until(lambda: bench.world.where("model-instances", state="running"))

    run(story)


def test_no_room_is_looked_at_again_later() -> None:
    async def story(bench: Bench) -> None:
        big: dict[str, Any] = {
            "backend": "vLLM",
            "backend_parameters": ["--gpu-memory-utilization=0.9"],
            "worker_selector": {"worker-name": "spark-01"},
        }
        first = await bench.deploy("m-a", **big)
        second = int(bench.server.model_api.create(bench.call(**{**SPEC, **big, "name": "m-b"}))["id"])
        rows = "model-instances"
        await until(lambda: any("No suitable" in (row["state_message"] or "") for row in bench.world.where(rows, model_id=second)))
        bench.server.model_api.delete(bench.call(first))
        await until(lambda: bench.world.tables["models"][second]["state"] == "running")

    run(story, scale=0.002)


# --- targets


def test_a_target_write_alone_never_drops_the_cache_and_a_list_write_does() -> None:
    async def story(bench: Bench) -> None:
        a, b = await bench.deploy("m-a"), await bench.deploy("m-b")
        route = await bench.route("r", (a, 10), (b, 10))
        cache = bench.server.core.cache
        before = cache.choices("r")
        target = bench.targets(route)[b]
        bench.server.targets.update(bench.call(target["id"], model_id=b, weight=20))
        await until(lambda: target["state"] == "active")
        assert cache.choices("r") is before
        entries = [{"id": row["id"], "model_id": model, "weight": 30} for model, row in bench.targets(route).items()]
        bench.server.route_api.update(bench.call(route, name="r", targets=entries))
        assert cache.choices("r") == []  # both unavailable: requests are lost now
        await until(lambda: len(cache.choices("r")) == 2)

    run(story)


def test_a_cold_cache_during_a_target_write_misses_the_target_until_dropped() -> None:
    async def story(bench: Bench) -> None:
        a, b = await bench.deploy("m-a"), await bench.deploy("m-b")
        route = await bench.route("r", (a, 10), (b, 10))
        target = bench.targets(route)[b]
        bench.server.core.cache.drop("r")
        bench.server.targets.update(bench.call(target["id"], model_id=b, weight=20))
        assert [choice.model_id for choice in bench.server.core.cache.choices("r")] == [a]
        await until(lambda: target["state"] == "active")
        assert [choice.model_id for choice in bench.server.core.cache.choices("r")] == [a]
        bench.server.route_api.update(bench.call(route, name="r"))
        assert len(bench.server.core.cache.choices("r")) == 2

    run(story)


def test_removing_an_own_route_s_target_beside_another_makes_the_route_nobody_s() -> None:
    async def story(bench: Bench) -> None:
        b = await bench.deploy("m-b")
        a = await bench.deploy("m-a", enable_model_route=True)
        route = bench.world.one("model-routes", name="m-a")
        assert route is not None
        await until(lambda: route["ready_targets"] == 1)
        own = bench.targets(route["id"])[a]
        entries = [{"id": own["id"], "model_id": a, "weight": 100}, {"model_id": b, "weight": 1}]
        bench.server.route_api.update(bench.call(route["id"], name="m-a", targets=entries))
        bench.server.targets.delete(bench.call(own["id"]))
        assert route["created_model_id"] is None
        assert bench.world.get("model-routes", route["id"]) is not None

    run(story)


# --- writes that do not stick


def test_an_undone_write_leaves_the_rows_as_they_were() -> None:
    async def story(bench: Bench) -> None:
        a, b = await bench.deploy("m-a"), await bench.deploy("m-b")
        route = await bench.route("r", (a, 10), (b, 10))
        undo = Undo(bench.server.core, bench.server.instances, bench.server.routes)
        before = undo.remember()
        target = bench.targets(route)[b]
        bench.server.targets.update(bench.call(target["id"], model_id=b, weight=99))
        bench.server.route_api.update(bench.call(route, name="r", meta={"x": 1}))
        bench.server.targets.delete(bench.call(bench.targets(route)[a]["id"]))
        undo.apply(undo.difference(before))
        assert {row["weight"] for row in bench.targets(route).values()} == {10}
        assert bench.world.tables["model-routes"][route]["meta"] == {}
        await until(lambda: bench.world.tables["model-routes"][route]["ready_targets"] == 2)

    run(story)


def test_an_undone_creation_leaves_nothing() -> None:
    async def story(bench: Bench) -> None:
        undo = Undo(bench.server.core, bench.server.instances, bench.server.routes)
        before = undo.remember()
        bench.server.model_api.create(bench.call(name="m-a", **SPEC, enable_model_route=True))
        undo.apply(undo.difference(before))
        await asyncio.sleep(0.05)
        assert bench.world.where("models") == []
        assert bench.world.where("model-instances") == []
        assert bench.world.where("model-routes") == []

    run(story)


# --- small parts


def test_faults_match_by_method_and_path_and_run_out() -> None:
    faults = Faults()
    faults.add(Fault("status", method="PUT", path="/v2/model-routes/", times=2))
    assert faults.take("GET", "/v2/model-routes/1") is None
    assert faults.take("PUT", "/v2/models/1") is None
    assert faults.take("PUT", "/v2/model-routes/1") is not None
    assert faults.take("PUT", "/v2/model-routes/1") is not None
    assert faults.take("PUT", "/v2/model-routes/1") is None


def test_faults_hit_users_only_when_they_say_so() -> None:
    faults = Faults()
    faults.add(Fault("status", times=None))
    faults.add(Fault("drop", path="/v1/chat", times=None))
    taken = faults.take("POST", "/v1/chat/completions", inference=True)
    assert taken is not None
    assert taken.kind == "drop"
    managed = faults.take("POST", "/v2/models")
    assert managed is not None
    assert managed.kind == "status"


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown fault kind"):
        Fault("explode")


@pytest.mark.parametrize(("value", "number"), [(5, 5), ("5", 5), (5.0, 5)])
def test_integers_as_the_server_reads_them(value: Any, number: int) -> None:
    assert integer(value, "weight") == number


@pytest.mark.parametrize("value", [True, None, "five", 5.5, [5], float("inf")])
def test_what_is_no_integer_is_422(value: Any) -> None:
    with pytest.raises(ApiError) as refused:
        integer(value, "weight")
    assert refused.value.status == 422


def test_pages() -> None:
    rows = [{"id": number, "updated_at": f"2026-01-0{number}"} for number in range(1, 6)]
    answer = page(rows, {"page": "2", "perPage": "2"})
    assert [row["id"] for row in answer["items"]] == [3, 2]
    assert answer["pagination"] == {"page": 2, "perPage": 2, "total": 5, "totalPage": 3}


def test_an_error_class_turns_to_the_openai_shape_for_good() -> None:
    style = ErrorStyle()
    assert b'"reason"' in bytes(style.answer("/v2/models/9", ApiError(404, "x")).body or b"")  # type: ignore[arg-type]
    assert b'"error"' in bytes(style.answer("/v1/models", ApiError(404, "x")).body or b"")  # type: ignore[arg-type]
    assert b'"error"' in bytes(style.answer("/v2/models/9", ApiError(404, "x")).body or b"")  # type: ignore[arg-type]
    assert b'"reason"' in bytes(style.answer("/v1/models", ApiError(401, "x")).body or b"")  # type: ignore[arg-type]
