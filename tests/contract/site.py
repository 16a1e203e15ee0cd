"""One GPUStack server as a contract test sees it: plain httpx, unique names, everything cleaned up through the API.

Independent of the product's own client, on purpose: these tests say what the server does.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import httpx

from lab.gateway import GatewayView
from tests.conftest import release

Row = dict[str, Any]
DEADLINE = 20.0
_numbers = itertools.count(1)
_run = secrets.token_hex(2)


def unique(prefix: str) -> str:
    """A name no other test and no earlier run uses."""
    return f"{prefix}-{_run}{next(_numbers)}"


def message(response: httpx.Response) -> str:
    """The sentence of an error in either of the server's two shapes."""
    body = response.json()
    return str(body["error"]["message"] if "error" in body else body["message"])


@dataclass
class Stream:
    """A stream that was read to its end. `text` as it came, `chunks` parsed; whether `[DONE]` came, or the connection broke off."""

    status: int
    text: str = ""
    chunks: list[Row] = field(default_factory=list)
    done: bool = False
    broken: bool = False

    @property
    def error(self) -> Row | None:
        return next((chunk["error"] for chunk in self.chunks if "error" in chunk), None)

    @property
    def finish(self) -> str | None:
        return next((c["choices"][0]["finish_reason"] for c in reversed(self.chunks) if c.get("choices")), None)

    @property
    def usage(self) -> Row | None:
        return next((chunk["usage"] for chunk in reversed(self.chunks) if chunk.get("usage")), None)

    @property
    def model(self) -> str:
        return str(self.chunks[0]["model"])


def shares(weights: Mapping[int, int]) -> dict[int, Fraction]:
    """Each one's part of the whole, without those that have none."""
    total = sum(weights.values())
    return {key: Fraction(weight, total) for key, weight in weights.items() if weight}


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _client(url: str, **kwargs: Any) -> httpx.Client:
    """The real server closes idle connections after 5 s: ours go sooner."""
    limits = httpx.Limits(max_connections=100, keepalive_expiry=3.0)
    return httpx.Client(base_url=url, timeout=60, trust_env=False, limits=limits, **kwargs)


class Site:
    """Clients with each kind of credential, and verbs that a controller's life is made of."""

    def __init__(self, described: Row, kind: str) -> None:
        self.described, self.kind = described, kind
        self.balances = release(described["version"]) >= (2, 3)
        self.gateway = described["mode"] != "disabled"
        self.gap = "503" if self.balances else "404"  # what a request gets while its route has no active target
        self.gaps = {self.gap, "503"} if self.gateway else {self.gap}
        server, inference = described["server_url"], described["inference_url"]
        self.api = _client(server, headers=_bearer(described["management_key"]))
        self.inference = _client(inference, headers=_bearer(described["inference_key"]))
        self.user = _client(inference, headers=_bearer(described["user_key"]))
        self.admin = _client(server, auth=("admin", described["admin_password"]))
        self.anonymous = _client(server)
        self._undo: list[tuple[str, int]] = []

    def close(self) -> None:
        for client in (self.api, self.inference, self.user, self.admin, self.anonymous):
            client.close()

    # --- reading

    def get(self, path: str) -> Any:
        response = self.api.get(path)
        assert response.status_code == 200, (path, response.status_code, response.text)
        return response.json()

    def route(self, route_id: int) -> Row:
        return dict(self.get(f"/v2/model-routes/{route_id}"))

    def model(self, model_id: int) -> Row:
        return dict(self.get(f"/v2/models/{model_id}"))

    def targets(self, route_id: int) -> dict[int, Row]:
        """Targets by model id (a test with twins reads the list itself)."""
        return {row["model_id"]: row for row in self.target_list(route_id)}

    def target_list(self, route_id: int) -> list[Row]:
        return list(self.get(f"/v2/model-route-targets?route_id={route_id}")["items"])

    def instances(self, model_id: int) -> list[Row]:
        return list(self.get(f"/v2/model-instances?model_id={model_id}")["items"])

    def worker(self, name: str) -> Row:
        return next(dict(row) for row in self.get("/v2/workers")["items"] if row["name"] == name)

    def until(self, true: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
        """Poll until something is true and answer it."""
        deadline = time.monotonic() + seconds
        while not (seen := true()):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            time.sleep(0.05)
        return seen

    # --- deployments and routes

    def spec(self, name: str, *, worker: str = "spark-01", backend: str = "vLLM", **fields: Any) -> Row:
        """A body of `POST /v2/models` that schedules without a network."""
        body: Row = {
            "name": name,
            "source": "local_path",
            "local_path": f"/models/{name}",
            "backend": backend,
            "replicas": 1,
            "cluster_id": 1,
            "categories": ["llm"],
            "enable_model_route": False,
            "worker_selector": {"worker-name": worker},
        }
        if backend == "Custom":
            body |= {"image_name": "sim/vllm:1", "run_command": "serve --port {{port}}"}
        else:
            body["backend_parameters"] = ["--gpu-memory-utilization=0.07"]
        return body | fields

    def deploy(self, name: str | None = None, *, wait: bool = True, **fields: Any) -> Row:
        """A deployment, ready unless `wait` is off."""
        response = self.api.post("/v2/models", json=self.spec(name or unique("dep"), **fields))
        assert response.status_code == 200, response.text
        row: Row = response.json()
        self._undo.append(("models", row["id"]))
        if wait:
            self.ready(row["id"])
        return self.model(row["id"])

    def ready(self, model_id: int) -> None:
        def look() -> bool:
            row = self.model(model_id)
            return bool(
                row["ready_replicas"] == row["replicas"] and row.get("state", "running") == "running"
            )  # 2.2 has no state of deployments

        self.until(look, f"deployment {model_id} ready")

    def new_route(self, weights: Mapping[int, int] | list[tuple[int, int]], *, wait: bool = True, **fields: Any) -> Row:
        """A route with weights by model id, every target active unless `wait` is off."""
        pairs = list(weights.items()) if isinstance(weights, Mapping) else weights
        entries = [{"model_id": model, "weight": weight} for model, weight in pairs]
        response = self.api.post("/v2/model-routes", json={"name": unique("route"), "categories": ["llm"], "targets": entries, **fields})
        assert response.status_code == 200, response.text
        row: Row = response.json()
        self._undo.append(("model-routes", row["id"]))
        if wait:
            self.settled(row)
        return row

    def settled(self, route: Row) -> None:
        """Until every target is active, the counts say so and a request is answered."""

        def look() -> bool:
            row = self.route(route["id"])
            active = all(target["state"] == "active" for target in self.target_list(route["id"]))
            return bool(active and row["ready_targets"] == row["targets"] and self.ask(route["name"]).status_code == 200)

        self.until(look, f"route {route['name']} ready")

    def active(self, route: Row, target: Row) -> None:
        """Until a target is active; only the list can be read, there is no GET of one target."""

        def look() -> bool:
            return any(row["id"] == target["id"] and row["state"] == "active" for row in self.target_list(route["id"]))

        self.until(look, f"target {target['id']} active")

    def drop_cache(self, route: Row) -> None:
        """The name-only write."""
        response = self.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"]})
        assert response.status_code == 200, response.text

    def remove(self, route: Row, target: Row) -> None:
        """One target leaves; before 2.3 by a list without it, since the server denies to know single targets."""
        if self.balances:
            response = self.api.delete(f"/v2/model-route-targets/{target['id']}")
        else:
            kept = [{k: t[k] for k in ("id", "model_id", "weight")} for t in self.target_list(route["id"]) if t["id"] != target["id"]]
            response = self.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "targets": kept})
        assert response.status_code == 200, response.text

    def forget(self, kind: str, row_id: int) -> None:
        """Clean this up at the end, last made first."""
        self._undo.append((kind, row_id))

    def cleanup(self) -> None:
        for kind, row_id in reversed(self._undo):
            response = self.admin.delete(f"/v2/{kind}/{row_id}")
            assert response.status_code in (200, 404), (kind, row_id, response.text)
        self._undo.clear()

    # --- inference

    def ask(self, model: str, *, client: httpx.Client | None = None, **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, **fields}
        return (client or self.inference).post("/v1/chat/completions", json=body)

    def split(self, model: str, count: int, clients: int = 6) -> Counter[str]:
        """Who answered `count` requests (the answer's `model`); an error counts under its status. A gateway has followed the API before."""
        self.followed(model)

        def one(_: int) -> str:
            response = self.ask(model, sim={"ttft": 0.0})
            return str(response.json()["model"] if response.status_code == 200 else response.status_code)

        with ThreadPoolExecutor(clients) as pool:
            return Counter(pool.map(one, range(count)))

    def followed(self, route: str) -> None:
        """With a gateway: until it was told what the API shows of a route. Weights only where they are carried exactly."""
        if not self.gateway:
            return
        row = next((r for r in self.get(f"/v2/model-routes?name={route}")["items"] if r["name"] == route), None)
        view = GatewayView.of(self.described)

        def told() -> bool:
            active = {t["model_id"]: t["weight"] for t in self.target_list(row["id"]) if t["state"] == "active"} if row else {}
            mode, given = view.shares(row["id"]) if row else ("lb", {})
            if mode == "percent":
                return set(given) <= set(active) and bool(given) == bool(active)
            return shares(given) == shares(active)

        self.until(told, f"the gateway knows the targets of {route}")

    @contextmanager
    def load(self, model: str, clients: int = 6) -> Iterator[list[str]]:
        """Requests without a pause while the block runs; the list grows by who answered, or the status of an error.

        Behind 2.2's gateway an engine may be asked under the route's own name for an instant: those are left out.
        """
        seen: list[str] = []
        going = [True]

        def client() -> None:
            while going[0]:
                response = self.ask(model, sim={"ttft": 0.0})
                who = str(response.json()["model"] if response.status_code == 200 else response.status_code)
                if who != model or self.balances or not self.gateway:
                    seen.append(who)

        with ThreadPoolExecutor(clients) as pool:
            workers = [pool.submit(client) for _ in range(clients)]
            try:
                yield seen
            finally:
                going[0] = False
            for worker in workers:
                worker.result()

    def read_stream(self, model: str, *, started: Callable[[], Any] | None = None, **sim: Any) -> Stream:
        """Read a stream to its end; `started` is called once, after the first chunk."""
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "stream": True, "sim": sim}
        with self.inference.stream("POST", "/v1/chat/completions", json=body) as response:
            seen = Stream(response.status_code)
            try:
                for line in response.iter_lines():
                    seen.text += line + "\n"
                    if line == "data: [DONE]":
                        seen.done = True
                    elif line.startswith("data: "):
                        seen.chunks.append(json.loads(line.removeprefix("data: ")))
                    if started is not None and seen.chunks:
                        started()
                        started = None
            except httpx.RemoteProtocolError:
                seen.broken = True
        return seen

    # --- the simulated workers

    def node_url(self, name: str, which: str = "url") -> str:
        return str(next(worker[which] for worker in self.described["workers"] if worker["name"] == name))

    def node_page(self, name: str, path: str) -> str:
        """A metrics page of a worker's metrics port."""
        response = httpx.get(self.node_url(name, "metrics_url") + path, timeout=10, trust_env=False)
        assert response.status_code == 200
        return response.text

    def node(self, name: str, **control: Any) -> Row:
        """State of a node; with arguments, turn its knobs first."""
        url = self.node_url(name) + "/_sim"
        response = httpx.post(url, json=control, timeout=10, trust_env=False) if control else httpx.get(url, timeout=10, trust_env=False)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def engine(self, model: Row, worker: str = "spark-01") -> Row:
        """Counters of a deployment's engine on a node."""
        return next(row for row in self.node(worker)["instances"] if row["model_name"] == model["name"])
