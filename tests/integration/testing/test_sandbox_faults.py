"""Faults of the sandbox over HTTP: what a controller sees, and what the server has really done."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from rollout.testing.gpustack import Fault
from rollout.testing.sandbox import Sandbox

Story = Callable[[Sandbox, httpx.AsyncClient, dict[str, Any]], Awaitable[None]]
PUT_TARGET: dict[str, Any] = {"method": "PUT", "path": "/v2/model-route-targets/"}


def run(story: Story) -> None:
    """A sandbox with a route `r` over m-a:10 and m-b:20; the story gets it, a management client and the target of m-b."""

    async def main() -> None:
        async with Sandbox(scale=0.02) as box:
            await box.deploy("m-a")
            await box.deploy("m-b", worker="spark-02")
            await box.route("r", {"m-a": 10, "m-b": 20})
            headers = {"Authorization": f"Bearer {box.management_key}"}
            async with httpx.AsyncClient(base_url=box.url, headers=headers, timeout=5, trust_env=False) as api:
                target = box.gpustack.world.one("model-route-targets", model_id=box.model("m-b")["id"])
                assert target is not None
                await story(box, api, dict(target))

    asyncio.run(main())


async def put(api: httpx.AsyncClient, target: dict[str, Any], weight: int) -> httpx.Response:
    return await api.put(f"/v2/model-route-targets/{target['id']}", json={"model_id": target["model_id"], "weight": weight})


def test_a_status_answers_as_often_as_asked_and_applies_nothing() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("status", status=502, times=2, **PUT_TARGET))
        assert [(await put(api, target, 50)).status_code for _ in range(2)] == [502, 502]
        assert box.weights("r") == {"m-a": 10, "m-b": 20}
        assert (await put(api, target, 50)).status_code == 200
        assert box.weights("r") == {"m-a": 10, "m-b": 50}

    run(story)


def test_a_lost_answer_has_been_applied() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("drop", applied=True, **PUT_TARGET))
        with pytest.raises(httpx.RemoteProtocolError):
            await put(api, target, 50)
        assert box.weights("r")["m-b"] == 50

    run(story)


def test_a_dropped_request_has_not_been_applied() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("drop", **PUT_TARGET))
        with pytest.raises(httpx.RemoteProtocolError):
            await put(api, target, 50)
        assert box.weights("r")["m-b"] == 20

    run(story)


def test_a_hanging_write_is_applied_when_released_although_its_client_has_gone() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        fault = box.gpustack.faults.add(Fault("hang", **PUT_TARGET))
        with pytest.raises(httpx.ReadTimeout):
            await api.put(f"/v2/model-route-targets/{target['id']}", json={"model_id": target["model_id"], "weight": 50}, timeout=0.1)
        assert box.weights("r")["m-b"] == 20
        box.gpustack.faults.release(fault)
        await box.until(lambda: box.weights("r")["m-b"] == 50, "the late write")

    run(story)


def test_accepted_and_silently_not_applied() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("ignore", times=None, path="/v2/"))
        answer = await put(api, target, 50)
        assert (answer.status_code, answer.json()["weight"]) == (200, 50)
        route = box.gpustack.world.one("model-routes", name="r")
        assert route is not None
        assert (await api.delete(f"/v2/model-routes/{route['id']}")).status_code == 200
        assert (await api.delete(f"/v2/models/{target['model_id']}")).status_code == 200
        assert box.weights("r") == {"m-a": 10, "m-b": 20}
        assert len(box.engines("m-b")) == 1

    run(story)


def test_applied_and_reverted_by_somebody_else() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("revert", seconds=0.1, **PUT_TARGET))
        await put(api, target, 50)
        assert box.weights("r")["m-b"] == 50
        await box.until(lambda: box.weights("r")["m-b"] == 20, "the revert")

    run(story)


def test_error_pages_and_broken_json() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        box.gpustack.faults.add(Fault("html", status=502, path="/v2/models"))
        answer = await api.get("/v2/models")
        assert answer.status_code == 502
        assert answer.headers["content-type"].startswith("text/html")
        box.gpustack.faults.add(Fault("truncate", path="/v2/models"))
        with pytest.raises(ValueError, match=r"JSON|Unterminated|Expecting"):
            (await api.get("/v2/models")).json()
        assert (await api.get("/v2/models")).status_code == 200

    run(story)


def test_every_management_write_is_logged_in_order_and_reads_are_counted() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        await put(api, target, 50)
        await api.put("/v2/model-routes/1", json={"name": "r"})
        await api.get("/v2/models")
        box.gpustack.faults.add(Fault("drop", path="/v2/"))
        with pytest.raises(httpx.RemoteProtocolError):
            await api.delete(f"/v2/model-route-targets/{target['id']}")
        writes = [(w.method, w.path, w.status, w.fault) for w in box.gpustack.faults.writes]
        path = f"/v2/model-route-targets/{target['id']}"
        assert writes == [("PUT", path, 200, None), ("PUT", "/v2/model-routes/1", 200, None), ("DELETE", path, 0, "drop")]
        assert box.gpustack.faults.writes[0].body == {"model_id": target["model_id"], "weight": 50}
        assert box.gpustack.faults.reads["/v2/models"] == 1

    run(story)


def test_faults_and_log_over_http() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        armed = await api.post("/_fault", json={"kind": "status", "status": 500, **PUT_TARGET})
        assert armed.json()[0]["kind"] == "status"
        assert (await api.post("/_fault", json={"kind": "explode"})).status_code == 400
        assert (await put(api, target, 50)).status_code == 500
        assert (await api.delete("/_fault")).json() == []
        log = (await api.get("/_log")).json()
        assert [(row["method"], row["status"], row["fault"]) for row in log["writes"]] == [("PUT", 500, "status")]
        assert (await api.delete("/_log")).json()["writes"] == []

    run(story)


def test_users_are_hit_only_by_faults_that_say_so() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        body = {"model": "r", "messages": [], "max_tokens": 1}
        headers = {"Authorization": f"Bearer {box.inference_key}"}
        box.gpustack.faults.add(Fault("status", times=None))
        assert (await api.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
        box.gpustack.faults.add(Fault("status", status=502, path="/v1/"))
        assert (await api.post("/v1/chat/completions", json=body, headers=headers)).status_code == 502

    run(story)


def test_watching_replays_and_follows() -> None:
    async def story(box: Sandbox, api: httpx.AsyncClient, target: dict[str, Any]) -> None:
        async with api.stream("GET", "/v2/model-route-targets?watch=true") as response:
            lines = response.aiter_lines()
            replayed = [line for line in [await anext(lines) for _ in range(4)] if line]
            assert all('"type": 1' in line for line in replayed)
            await put(api, target, 50)
            while not (line := await anext(lines)):
                continue
            assert '"type": 2' in line
            assert '"weight": 50' in line

    run(story)
