"""One rollout's surroundings on a running lab: deployments, a route, a plan, the real `rollout` command; all gone afterwards.

Everything is named after the scenario, so several can share one lab. It sets the stage and reads the server; it never judges
and never does a rollout's work.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from lab.errors import LabError

Row = dict[str, Any]
ROLLOUT = str(Path(sys.executable).with_name("rollout"))
ENGINE = {"SIM_TTFT_BASE": "0.2", "SIM_LOAD_FACTOR": "0.02", "SIM_SLOTS": "256", "SIM_JITTER": "0.1"}
"""Engines of a scenario: 0.2 s to the first token of a single request, 2 % more for each other request in flight."""
COMPRESSED: Row = {
    "evidence": {
        "mode": "sparse",
        "window": "1s",
        "min_requests": 10,
        "min_time": "3s",
        "min_time_before_full": "8s",
        "probes": {"pairs": 120, "batch": 10, "max_tokens": 4},
    },
    "stage": {"worker": "staging", "prompt_tokens": [64], "concurrency": [1, 4], "requests_per_cell": 4, "output_tokens": 8},
    "drain": {"quiet": "2s", "deadline": "5m"},
    "window": {"duration": "3s"},
    "cleanup": {"approval": "none"},
    "ready_within": "60s",
}
"""The product's margins and error bounds; only durations are shorter than anybody would choose."""
VOLATILE = frozenset({"id", "state", "updated_at", "created_at", "ready_targets"})
PATIENCE = 30.0


class Scenario:
    """`with Scenario(described, "name", folder) as scene:` — `described` is the lab's description, `folder` holds plan and store."""

    def __init__(self, described: Mapping[str, Any], name: str, folder: Path) -> None:
        self.described, self.folder = dict(described), folder
        self.name = f"{name}-{secrets.token_hex(2)}"
        self.api = self._client("management_key")
        self.inference = self._client("inference_key")
        self.user = self._client("user_key")
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End our own commands, then remove every route and deployment that belongs to this scenario."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for kind in ("model-routes", "models"):
            for row in self._ours(kind):
                self.api.delete(f"/v2/{kind}/{row['id']}")
        for client in (self.api, self.inference, self.user):
            client.close()

    def _client(self, key: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.described[key]}"}
        url = self.described["server_url" if key == "management_key" else "inference_url"]
        # The server closes idle connections after 5 s; ours go sooner.
        return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, limits=httpx.Limits(keepalive_expiry=3.0))

    def _ours(self, kind: str) -> list[Row]:
        tags = [self.name, *(f"-r{row['id'][:8]}" for row in self.rollouts())]
        return [row for row in self.rows(kind) if any(tag in row["name"] for tag in tags)]

    # --- the server

    def rows(self, kind: str, **query: Any) -> list[Row]:
        """Everything of a kind, as the API lists it."""
        answer = self.api.get(f"/v2/{kind}", params={"perPage": 1000, **query})
        if answer.status_code != 200:
            raise LabError(f"cannot list {kind}", answer.text[:300], "look at the server's log")
        return list(answer.json()["items"])

    def until(self, true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Poll until something is true and give it back; LabError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (seen := true()):
            if time.monotonic() > deadline:
                raise LabError(f"not within {seconds:g} s: {what}", "it did not come true", "look at the server's log")
            time.sleep(0.1)
        return seen

    def deploy(self, suffix: str, worker: str, image: str = "sim/vllm:1", **env: str) -> Row:
        """A ready deployment `<scenario>-<suffix>` on one worker, its engine set by `SIM_*` variables."""
        name = f"{self.name}-{suffix}"
        body = {
            "name": name,
            "source": "local_path",
            "local_path": f"/models/{name}",
            "backend": "vLLM",
            "image_name": image,
            "backend_parameters": ["--gpu-memory-utilization=0.1"],
            "env": {**ENGINE, **env},
            "replicas": 1,
            "cluster_id": 1,
            "categories": ["llm"],
            "worker_selector": {"worker-name": worker},
            "enable_model_route": False,
        }
        made: Row = self._wrote(self.api.post("/v2/models", json=body))
        self.until(lambda: self.model(name)["ready_replicas"] == 1, f"{name} ready")
        return self.model(name)

    def model(self, name: str) -> Row:
        """The deployment of that name as the API shows it."""
        return next(row for row in self.rows("models", search=name) if row["name"] == name)

    def route(self, weights: Mapping[str, int], **fields: Any) -> Row:
        """The production route, named after the scenario: deployment -> weight, every target active and answering."""
        ids = {row["name"]: row["id"] for row in self.rows("models")}
        targets = [{"model_id": ids[name], "weight": weight} for name, weight in weights.items()]
        made = self._wrote(self.api.post("/v2/model-routes", json={"name": self.name, "categories": ["llm"], "targets": targets, **fields}))
        self.until(lambda: self.ask().status_code == 200, f"route {self.name} answers")
        return made

    def _wrote(self, answer: httpx.Response) -> Row:
        if answer.status_code != 200:
            raise LabError(f"{answer.request.method} {answer.request.url.path} was refused", answer.text[:300], "look at the server's log")
        return dict(answer.json())

    def snapshot(self) -> Row:
        """What a rollback must restore: the route's own fields, its grants, and its targets by deployment, volatile fields left out."""
        route = next(row for row in self.rows("model-routes", name=self.name))
        names = {row["id"]: row["name"] for row in self.rows("models")}
        targets = {names.get(row["model_id"], "?"): row for row in self.rows("model-route-targets", route_id=route["id"])}
        access = self.api.get(f"/v2/model-routes/{route['id']}/access").json()
        return {
            "route": {k: v for k, v in route.items() if k not in VOLATILE} | {"id": route["id"]},
            "access": access,
            "targets": {name: {k: v for k, v in row.items() if k not in VOLATILE and k != "name"} for name, row in targets.items()},
        }

    def target_ids(self) -> dict[str, int]:
        """Id of each target of the route, by deployment."""
        route = next(row for row in self.rows("model-routes", name=self.name))
        names = {row["id"]: row["name"] for row in self.rows("models")}
        return {names.get(row["model_id"], "?"): row["id"] for row in self.rows("model-route-targets", route_id=route["id"])}

    def weights(self) -> dict[str, int]:
        """Weight of each target of the route, by deployment."""
        return {name: row["weight"] for name, row in self.snapshot()["targets"].items()}

    def leftovers(self) -> list[str]:
        """Routes and deployments of this scenario's rollouts that still exist."""
        tags = [f"-r{row['id'][:8]}" for row in self.rollouts()]
        return [row["name"] for kind in ("model-routes", "models") for row in self.rows(kind) if any(tag in row["name"] for tag in tags)]

    def ask(self, model: str | None = None, *, client: httpx.Client | None = None) -> httpx.Response:
        """One short request on the route, or on another name."""
        body = {"model": model or self.name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
        return (client or self.inference).post("/v1/chat/completions", json=body)

    def kill_instance(self, deployment: str) -> None:
        """Let the engine of a deployment die, as a process does; its worker reports it and starts it again."""
        model = self.model(deployment)
        for instance in self.rows("model-instances", model_id=model["id"]):
            worker = next(row for row in self.described["workers"] if row["name"] == instance["worker_name"])
            httpx.post(f"{worker['url']}/_sim", json={"crash": instance["id"]}, timeout=10, trust_env=False).raise_for_status()

    # --- the command

    def plan(self, stable: list[str], *, worker: str = "spark-02", change: Row | None = None, **parts: Any) -> Path:
        """A plan file for the scenario's route; `parts` are merged into the compressed defaults, part by part."""
        body: Row = {
            "apiVersion": "rollout/v1",
            "kind": "RolloutPlan",
            "metadata": {"name": self.name},
            "gpustack": {
                "server": self.described["server_url"],
                "inference": self.described["inference_url"],
                "management_key": {"env": "LAB_MANAGEMENT_KEY"},
                "inference_key": {"env": "LAB_INFERENCE_KEY"},
            },
            "route": {"name": self.name},
            "change": change or {"unit": "backend_image", "to": {"image_name": "sim/vllm:2"}},
            "stable": [{"deployment": name} for name in stable],
            "canary": {"sizing": {"worker": worker}},
        }
        for key, part in {**COMPRESSED, **parts}.items():
            body[key] = {**COMPRESSED.get(key, {}), **part} if isinstance(part, dict) else part
        path = self.folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(body, sort_keys=False), "utf-8")
        return path

    def environ(self) -> dict[str, str]:
        """The command's environment: keys, a store of its own, nothing of the caller's."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k != "CI"}
        keys = {"LAB_MANAGEMENT_KEY": self.described["management_key"], "LAB_INFERENCE_KEY": self.described["inference_key"]}
        return {**kept, **keys, "HOME": str(self.folder), "ROLLOUT_STORE": str(self.folder / "rollout.db"), "ROLLOUT_ACTOR": "lab"}

    def command(self, *args: str, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        """`rollout ARGS` to its end."""
        return subprocess.run(
            [ROLLOUT, *args], cwd=self.folder, capture_output=True, text=True, env=self.environ(), timeout=timeout, check=False
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """`rollout ARGS` in the background; its screen goes to `screen()`."""
        with (self.folder / "screen.txt").open("a", encoding="utf-8") as screen:
            process = subprocess.Popen([ROLLOUT, *args], cwd=self.folder, stdout=screen, stderr=screen, text=True, env=self.environ())
        self._processes.append(process)
        return process

    def screen(self) -> str:
        """What the commands of `start` have shown so far."""
        path = self.folder / "screen.txt"
        return path.read_text("utf-8") if path.exists() else ""

    def read(self, *args: str) -> Any:
        """`rollout ARGS --json`, parsed; LabError when it printed nothing."""
        done = self.command(*args, "--json")
        if not done.stdout:
            raise LabError(f"rollout {' '.join(args)} printed nothing", done.stderr[-500:], "run it by hand")
        return json.loads(done.stdout)

    def rollouts(self) -> list[Row]:
        """The rollouts in this scenario's store, none before the first."""
        return list(self.read("list")) if (self.folder / "rollout.db").exists() else []
