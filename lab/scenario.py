"""One rollout's surroundings on a running lab: deployments, a route and somebody at the terminal; all gone afterwards.

Everything is named after the scenario, so several can share one lab at a time. It sets the stage and reads the server, by plain
HTTP and not by the product's clients; it never does a rollout's work.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from lab.errors import LabError
from lab.operator import Operator

Row = dict[str, Any]
ENGINE = {"SIM_TTFT_BASE": "0.2", "SIM_LOAD_FACTOR": "0.02", "SIM_SLOTS": "256", "SIM_JITTER": "0.1"}
"""0.2 s to the first token of a lone request, and 2 % more for each other request in flight: judged load, not a constant."""
VOLATILE = frozenset({"state", "updated_at", "created_at", "ready_targets", "targets", "name"})
PATIENCE = 30.0


class Scenario:
    """`with Scenario(described, "name", folder) as scene:` — `described` is the lab's description."""

    def __init__(self, described: Mapping[str, Any], name: str, folder: Path) -> None:
        self.described = dict(described)
        self.name = f"{name}-{secrets.token_hex(2)}"
        self.operator = Operator(described, self.name, folder)
        self.api, self.inference, self.user = (self._client(key) for key in ("management_key", "inference_key", "user_key"))

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _client(self, key: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.described[key]}"}
        url = self.described["server_url" if key == "management_key" else "inference_url"]
        # The server closes idle connections after 5 s; ours go sooner.
        return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, limits=httpx.Limits(keepalive_expiry=3.0))

    def close(self) -> None:
        """End the commands, then remove every route and deployment of this scenario and of its rollouts."""
        self.operator.close()
        tags = [self.name, *self._tags()]
        for kind in ("model-routes", "models"):
            for row in self.rows(kind):
                if any(tag in row["name"] for tag in tags):
                    self.api.delete(f"/v2/{kind}/{row['id']}")
        for client in (self.api, self.inference, self.user):
            client.close()

    def _tags(self) -> list[str]:
        """What the names of everything that our rollouts create hold."""
        return [f"-r{state.id[:8]}" for state in self.operator.states()]

    # --- reading

    def rows(self, kind: str, **query: Any) -> list[Row]:
        """Everything of a kind, as the API lists it."""
        answer = self.api.get(f"/v2/{kind}", params={"perPage": 1000, **query})
        if answer.status_code != 200:
            raise LabError(f"cannot list {kind}", answer.text[:300], "look at the server's log")
        return list(answer.json()["items"])

    def model(self, name: str) -> Row:
        """The deployment of that name as the API shows it."""
        return next(row for row in self.rows("models") if row["name"] == name)

    def the_route(self) -> Row:
        """The production route as the API shows it."""
        return next(row for row in self.rows("model-routes", name=self.name) if row["name"] == self.name)

    def targets(self) -> dict[str, Row]:
        """The route's targets by deployment."""
        names = {row["id"]: row["name"] for row in self.rows("models")}
        return {names.get(row["model_id"], "?"): row for row in self.rows("model-route-targets", route_id=self.the_route()["id"])}

    def snapshot(self) -> Row:
        """What a rollback must restore: the route with its meta and grants, and each target without id, state and times."""
        route = self.the_route()
        targets = {name: {k: v for k, v in row.items() if k not in VOLATILE | {"id"}} for name, row in self.targets().items()}
        access = self.api.get(f"/v2/model-routes/{route['id']}/access").json()
        return {"route": {k: v for k, v in route.items() if k not in VOLATILE}, "access": access, "targets": targets}

    def leftovers(self) -> list[str]:
        """Routes and deployments that exist because of our rollouts."""
        tags = self._tags()
        return [row["name"] for kind in ("model-routes", "models") for row in self.rows(kind) if any(tag in row["name"] for tag in tags)]

    def engine(self, deployment: str) -> Row:
        """Counters of a deployment's only engine, from its worker: `total` requests ever, `inflight`, ..."""
        for worker in self.described["workers"]:
            state = httpx.get(f"{worker['url']}/_sim", timeout=10, trust_env=False).json()
            for row in state["instances"]:
                if row["model_name"] == deployment:
                    return {**row, "worker_url": worker["url"]}
        raise LabError(f"no engine of {deployment}", "no worker runs one", "look at its instances")

    def until(self, true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Poll until something is true and give it back; LabError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (seen := true()):
            if time.monotonic() > deadline:
                raise LabError(f"not within {seconds:g} s: {what}", "it did not come true", "look at the server's log")
            time.sleep(0.1)
        return seen

    # --- setting the stage

    def deploy(self, suffix: str, worker: str, image: str = "sim/vllm:1", **env: str) -> str:
        """A ready deployment `<scenario>-<suffix>` on one worker, its engine set by ENGINE and `SIM_*` variables; its name."""
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
        wrote(self.api.post("/v2/models", json=body))
        self.until(lambda: self.model(name)["ready_replicas"] == 1, f"{name} ready")
        return name

    def route(self, weights: Mapping[str, int], extra: Mapping[str, Row] | None = None, **fields: Any) -> None:
        """The production route, named after the scenario: deployment -> weight, and further target fields; active and answering."""
        ids = {row["name"]: row["id"] for row in self.rows("models")}
        targets = [{"model_id": ids[name], "weight": weight, **(extra or {}).get(name, {})} for name, weight in weights.items()]
        wrote(self.api.post("/v2/model-routes", json={"name": self.name, "categories": ["llm"], "targets": targets, **fields}))
        self.until(lambda: all(row["state"] == "active" for row in self.targets().values()), f"targets of {self.name} active")
        self.until(lambda: self.ask().status_code == 200, f"route {self.name} answers")

    def kill_engine(self, deployment: str) -> None:
        """The engine of a deployment dies as a process does: its worker reports it and starts it again a second later."""
        row = self.engine(deployment)
        httpx.post(f"{row['worker_url']}/_sim", json={"crash": row["id"]}, timeout=10, trust_env=False).raise_for_status()

    def ask(self, model: str | None = None, *, client: httpx.Client | None = None) -> httpx.Response:
        """One short request on the route, or on another name."""
        body = {"model": model or self.name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
        return (client or self.inference).post("/v1/chat/completions", json=body)


def wrote(answer: httpx.Response) -> Row:
    """The body of a write that the server took; LabError otherwise."""
    if answer.status_code != 200:
        raise LabError(f"{answer.request.method} {answer.request.url.path} was refused", answer.text[:300], "look at the server's log")
    return dict(answer.json())
