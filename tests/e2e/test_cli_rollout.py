"""The command against the sandbox: the forecast holds, a rollout is carried through, Ctrl-C detaches, a route is taken back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.effects import WRITES
from rollout.testing.sandbox import Sandbox

ROLLOUT = str(Path(sys.executable).with_name("rollout"))
PLAN = """
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {{name: chat-vllm-0-21}}
gpustack:
  server: {url}
  management_key: {{env: MKEY}}
  inference_key: {{env: IKEY}}
route: {{name: chat}}
change:
  unit: backend_image
  to: {{image_name: "vllm/vllm-openai:v0.21.0"}}
stable: [{{deployment: chat-1}}]
stage: {{worker: staging, requests_per_cell: 2, prompt_tokens: [16], concurrency: [1], output_tokens: 4}}
ladder: [10, 50, 100]
evidence: {{mode: thin, window: 1s, min_time: 1s, min_time_before_full: 1s, probes: {{warm_up: 1}}}}
drain: {{quiet: 1s, deadline: 60s}}
window: {{duration: 1s}}
cleanup: {{approval: none}}
"""


class Site:
    """A sandbox in a thread of its own, and the command pointed at it."""

    def __init__(self, home: Path, version: str) -> None:
        self.home, self.loop, self.box = home, asyncio.new_event_loop(), Sandbox(version=version)
        self.started: list[subprocess.Popen[str]] = []
        self.inference_key: str | None = None
        """instead of the sandbox's own"""
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def open(self) -> None:
        """One deployment on one route, and a plan that replaces it."""
        self.do(self.box.start())
        self.do(self.box.deploy("chat-1", image_name="vllm/vllm-openai:v0.20.0"))
        self.do(self.box.route("chat", {"chat-1": 100}, lb_mode="weighted"))
        (self.home / "plan.yaml").write_text(PLAN.format(url=self.box.url), "utf-8")

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        self.do(self.box.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def environ(self, store: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k != "CI"}
        keys = {"MKEY": self.box.management_key, "IKEY": self.inference_key or self.box.inference_key}
        return {**kept, **keys, "HOME": str(self.home), "ROLLOUT_STORE": str(self.home / store), "ROLLOUT_ACTOR": "ana"}

    def command(self, *args: str, store: str = "r.db") -> subprocess.CompletedProcess[str]:
        line = [ROLLOUT, *args]
        return subprocess.run(line, cwd=self.home, capture_output=True, text=True, env=self.environ(store), timeout=100, check=False)

    def json(self, *args: str, store: str = "r.db") -> Any:
        done = self.command(*args, "--json", store=store)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def running(self, rollout_id: str, until: str) -> subprocess.Popen[str]:
        """`rollout run` as it goes on, once it has said `until`."""
        line = [ROLLOUT, "run", rollout_id]
        process = subprocess.Popen(line, cwd=self.home, stderr=subprocess.PIPE, text=True, env=self.environ("r.db"))
        self.started.append(process)
        assert process.stderr is not None
        assert any(until in told for told in process.stderr), f"{until!r} was never said"
        return process

    def begin(self, *, judged: bool = False) -> str:
        """A rollout whose route is claimed; its rungs are left without a verdict, unless they are to be `judged`. Its id."""
        started = self.command("run", "plan.yaml", "--until", "stage", "--json")
        assert started.returncode == 0, started.stderr
        rollout_id = str(json.loads(started.stdout)["id"])
        assert judged or self.command("promote", rollout_id, "--reason", "the judge has tests of its own").returncode == 0
        return rollout_id


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """On the newest server that is stood in for, unless a test asks for another by `indirect`."""
    made = Site(tmp_path, getattr(request, "param", "2.3.0"))
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("site", ["2.3.0", "2.2.3"], indirect=True)
def test_the_forecast_of_plan_is_what_a_healthy_run_does(site: Site) -> None:
    forecast = site.json("plan", "plan.yaml")
    assert forecast["refusals"] == []
    assert forecast["carried_by"] == "the server itself, by exact weights"
    assert [rung["effective"] for rung in forecast["pairs"][0]["rungs"]] == [[r["route_share"]] for r in forecast["pairs"][0]["rungs"]]
    rollout_id = site.begin()
    done = site.command("run", rollout_id, "--until", "completed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"completed  {rollout_id}")
    rows = site.json("journal", rollout_id)
    made = [row["data"]["effect"]["verb"] for row in rows if row["kind"] == "intent"]
    assert [verb for verb in made if verb in WRITES] == [call["verb"] for call in forecast["calls"]]
    assert site.command("journal", rollout_id, "--verify").returncode == 0
    assert site.json("status", rollout_id)["exit_code"] == 0
    assert list(site.box.weights("chat")) == [f"chat-1-r{rollout_id[:8]}"]
    assert "/v1" not in done.stdout + done.stderr
    assert site.box.management_key not in done.stderr + json.dumps(rows)


@pytest.mark.parametrize(("key", "status"), [("gpustack_0000000000000000_wrong", 401), ("management", 403)])
def test_a_wrong_inference_key_is_refused_before_anything_is_touched(site: Site, key: str, status: int) -> None:
    site.inference_key = site.box.management_key if key == "management" else key
    before = json.dumps(site.box.gpustack.world.where("model-routes"), default=str, sort_keys=True)
    planned = site.command("plan", "plan.yaml")
    assert planned.returncode == 3, planned.stderr
    assert f"refused ({status})" in planned.stdout
    done = site.command("run", "plan.yaml")
    assert done.returncode == 3, done.stderr
    assert "  refused: nothing was changed; " in done.stdout
    assert "the inference key is not accepted at" in done.stdout
    assert ("`management_key` and `inference_key` are one key" in done.stdout) == (status == 403)
    assert json.dumps(site.box.gpustack.world.where("model-routes"), default=str, sort_keys=True) == before
    assert [m["name"] for m in site.box.gpustack.world.where("models")] == ["chat-1"]
    site.inference_key = None
    assert site.command("plan", "plan.yaml").returncode == 0


def test_ctrl_c_detaches_and_the_route_is_taken_back_without_a_store(site: Site) -> None:
    """Detached it stays as it is and can be gone on with; after the takeover the former owner stops with 31."""
    rollout_id = site.begin(judged=True)
    detached = site.running(rollout_id, "joins weight")
    detached.send_signal(signal.SIGINT)
    _, told = detached.communicate(timeout=20)
    assert detached.returncode == 130
    assert f"rollout rollback {rollout_id}" in told
    assert "Traceback" not in told
    assert site.json("status", rollout_id)["phase"] == "running"
    owner = site.running(rollout_id, "watching rung")
    line = ["rollback", "--route", "chat", "--server", site.box.url, "--management-key", "env:MKEY", "--inference-key", "env:IKEY"]
    back = site.command(*line, "--reason", "the job is gone", store="empty.db")
    assert back.returncode == 0, back.stderr
    assert site.box.weights("chat") == {"chat-1": 100}
    assert [m["name"] for m in site.box.gpustack.world.where("models")] == ["chat-1"]
    owner.communicate(timeout=20)
    assert owner.returncode == 31


def test_a_taken_route_is_refused_from_another_store_and_rollback_by_id_gives_it_back(site: Site) -> None:
    rollout_id = site.begin()
    taken = site.command("run", "plan.yaml", store="other.db")
    assert taken.returncode == 30, taken.stderr
    assert site.command("plan", "plan.yaml", store="other.db").returncode == 30
    back = site.command("abort", rollout_id, "--reason", "wrong image")
    assert back.returncode == 0, back.stderr
    assert back.stdout.startswith(f"aborted  {rollout_id}")
    assert site.command("abort", rollout_id, "--reason", "again").returncode == 2
    assert site.json("plan", "plan.yaml")["refusals"] == []
