"""The real server with the simulated workers behaves as the contract says: what every other test on it relies on."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab import Lab, Remote, session
from lab.remote import VARIABLE

pytestmark = pytest.mark.lab
__test__ = VARIABLE in os.environ  # without a running lab these tests are not there


def until(what: Any, seconds: float = 15.0) -> Any:
    """The first true answer of `what()`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)
    return answer


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab | Remote]:
    with session() as running:
        yield running


class Real:
    """A test's own deployments and routes on the real server, removed afterwards."""

    def __init__(self, lab: Lab | Remote) -> None:
        self.lab, facts = lab, lab.description()
        self.api = httpx.Client(base_url=facts["server_url"], headers={"Authorization": f"Bearer {lab.keys.management}"}, timeout=60)
        self.chat = httpx.Client(base_url=facts["inference_url"], headers={"Authorization": f"Bearer {lab.keys.inference}"}, timeout=60)
        self.prefix = f"tools-{os.getpid()}-{next(NUMBERS)}"
        self.made: list[str] = []

    def deploy(self, worker: str, backend: str = "vLLM", **fields: Any) -> dict[str, Any]:
        """A running deployment pinned to a worker."""
        name = f"{self.prefix}-{len(self.made)}"
        body = {"name": name, "source": "local_path", "local_path": f"/models/{name}", "backend": backend, "replicas": 1, "cluster_id": 1}
        body |= {"categories": ["llm"], "worker_selector": {"worker-name": worker}, "enable_model_route": False}
        body |= (
            {"backend_parameters": ["--gpu-memory-utilization=0.1"]} if backend == "vLLM" else {"image_name": "sim:1", "run_command": "s"}
        )
        model: dict[str, Any] = self.api.post("/v2/models", json={**body, **fields}).raise_for_status().json()
        self.made.append(f"/v2/models/{model['id']}")
        until(lambda: [row["state"] for row in self.instances(model)] == ["running"])
        return model

    def instances(self, model: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.api.get("/v2/model-instances", params={"model_id": model["id"]}).json()["items"]
        return rows

    def route(self, *models: dict[str, Any]) -> dict[str, Any]:
        """A route over the models with equal weights that answers."""
        body = {"name": self.prefix, "categories": ["llm"], "targets": [{"model_id": model["id"], "weight": 1} for model in models]}
        route: dict[str, Any] = self.api.post("/v2/model-routes", json=body).raise_for_status().json()
        self.made.insert(0, f"/v2/model-routes/{route['id']}")
        until(lambda: self.ask().status_code == 200)
        return route

    def ask(self, **fields: Any) -> httpx.Response:
        body = {"model": self.prefix, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        return self.chat.post("/v1/chat/completions", json={**body, **fields})

    def stream(self, act: Any, tokens: int = 30, delay: float = 0.05) -> str:
        """The last line of a stream during which `act()` was done, after its first token."""
        body = {"model": self.prefix, "messages": [{"role": "user", "content": "hello"}], "stream": True}
        last, acted = "", False
        with self.chat.stream("POST", "/v1/chat/completions", json={**body, "sim": {"tokens": tokens, "delay": delay}}) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                last = line or last
                if line and not acted:
                    acted = True
                    act()
        return last

    def scale(self, model: dict[str, Any], replicas: int) -> None:
        now = self.api.get(f"/v2/models/{model['id']}").json()
        self.api.put(f"/v2/models/{model['id']}", json={**now, "replicas": replicas}).raise_for_status()

    def close(self) -> None:
        for path in self.made:
            self.api.delete(path)
        self.api.close()
        self.chat.close()


@pytest.fixture
def real(lab: Lab | Remote) -> Iterator[Real]:
    world = Real(lab)
    yield world
    world.close()


def test_three_workers_are_ready_and_unified_memory_is_reported(real: Real) -> None:
    rows = {row["name"]: row for row in real.api.get("/v2/workers").json()["items"]}
    assert set(rows) >= {"spark-01", "spark-02", "staging"}
    assert all(row["state"] == "ready" and row["status"]["memory"]["is_unified_memory"] for row in rows.values())
    assert httpx.get(real.lab.description()["server_url"] + "/version").json()["version"] == f"v{real.lab.version}"


def test_worker_page_shows_vllm_and_leaves_custom_to_its_own_port(real: Real) -> None:
    scraped, custom = real.deploy("staging"), real.deploy("staging", "Custom")
    page = httpx.get(real.lab.worker("staging").metrics_url + "/metrics").text
    assert f'model_id="{scraped["id"]}"' in page
    assert f'model_id="{custom["id"]}"' not in page
    own = real.instances(custom)[0]
    assert "vllm:num_requests_running" in httpx.get(f"http://{own['worker_ip']}:{own['port']}/metrics").text


def test_traffic_through_the_server_reaches_the_engine_and_is_counted(real: Real) -> None:
    first, second = real.deploy("spark-01"), real.deploy("spark-02")
    real.route(first, second)
    served = {real.ask().json()["model"] for _ in range(40)}
    assert served == {first["name"], second["name"]}
    assert real.stream(lambda: None, tokens=3) == "data: [DONE]"
    page = httpx.get(real.lab.worker("spark-01").metrics_url + "/metrics").text
    counted = re.search(rf'generation_tokens_total{{[^}}]*model_id="{first["id"]}"[^}}]*}} (\S+)', page)
    assert counted is not None
    assert float(counted[1]) >= 2


def test_scaling_to_zero_cuts_a_stream_at_once(real: Real) -> None:
    model = real.deploy("spark-01")
    real.route(model)
    assert '"code":503' in real.stream(lambda: real.scale(model, 0))


def test_a_stream_outlives_the_removal_of_its_target(real: Real) -> None:
    stable, other = real.deploy("spark-01"), real.deploy("spark-02")
    route = real.route(stable, other)
    targets = real.api.get("/v2/model-route-targets", params={"route_id": route["id"]}).json()["items"]
    leaving = next(row["id"] for row in targets if row["model_id"] == stable["id"])
    assert real.stream(lambda: real.api.delete(f"/v2/model-route-targets/{leaving}")) == "data: [DONE]"


def test_a_crash_raises_the_restart_count_of_the_same_instance(real: Real) -> None:
    model = real.deploy("spark-02")
    before = real.instances(model)[0]
    real.lab.worker("spark-02").crash(before["name"])
    after = until(lambda: [row for row in real.instances(model) if row["restart_count"] == 1 and row["state"] == "running"])
    assert after[0]["id"] == before["id"]


def test_knobs_come_from_the_deployment_and_from_the_control_endpoint(real: Real) -> None:
    model = real.deploy("staging", env={"SIM_TOKENS": "3"})
    real.route(model)
    assert real.ask(max_tokens=None).json()["usage"]["completion_tokens"] == 3
    real.lab.worker("staging").set(fail_rate=1.0, model=model["name"])
    assert real.ask(stream=True).status_code == 500


@pytest.mark.alone
def test_a_restarted_worker_serves_the_same_instance_with_its_new_facts(real: Real) -> None:
    model = real.deploy("staging")
    real.route(model)
    before = real.instances(model)[0]["id"]
    worker = real.lab.worker("staging")
    worker.kill()
    assert real.ask().status_code == 503
    worker.restart(driver_version="581.0")
    until(lambda: real.ask().status_code == 200)
    assert [row["id"] for row in real.instances(model)] == [before]
    until(lambda: "581.0" in real.api.get("/v2/workers", params={"search": "staging"}).text)


@pytest.mark.alone
def test_a_killed_server_comes_back_with_its_routes(real: Real) -> None:
    model = real.deploy("spark-01")
    route = real.route(model)
    real.lab.kill_server()
    with pytest.raises(httpx.TransportError):
        real.ask()
    real.lab.restart_server()
    assert real.api.get(f"/v2/model-routes/{route['id']}").json()["name"] == real.prefix
    until(lambda: real.ask().status_code == 200, 30)
