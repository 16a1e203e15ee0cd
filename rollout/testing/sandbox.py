"""A whole site on loopback: fake GPUStack, three nodes, keys, and helpers to deploy and to route. Tests and demo start here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rollout.testing.gpustack import FakeGPUStack, Timing
from rollout.testing.gpustack.auth import Caller
from rollout.testing.gpustack.calls import Call
from rollout.testing.gpustack.flavour import DEFAULT
from rollout.testing.node import SimNode
from rollout.testing.node_http import NodeServer

NODES = ("spark-01", "spark-02", "staging")
USER = "sandbox-user"


class SandboxTimeout(Exception):
    """Something did not become true in time: the message says what."""


class Sandbox:
    """`async with Sandbox() as box:`; urls and keys are attributes, nodes are `box.nodes[name]`, faults `box.gpustack.faults`.

    `scale` shortens everything the real server takes time for (1.0: as measured). `engine` are knobs of every engine. `version` is that
    of the server that is stood in for, 2.3.0 or 2.2.3.
    """

    def __init__(
        self,
        *,
        scale: float = 0.1,
        nodes: Sequence[str] = NODES,
        seed: int = 0,
        engine: Mapping[str, Any] | None = None,
        version: str = DEFAULT,
    ) -> None:
        self.gpustack = FakeGPUStack(Timing(scale=scale), seed=seed, version=version)
        self.nodes = {name: SimNode(name, base_knobs=dict(engine or {})) for name in nodes}
        self.servers = [NodeServer(node) for node in self.nodes.values()]
        self.management_key = self.inference_key = self.user_key = ""
        self.user_id = 0

    @property
    def url(self) -> str:
        """Management URL."""
        return self.gpustack.url

    @property
    def inference_url(self) -> str:
        """Inference URL; the same one, since the gateway is disabled."""
        return self.gpustack.url

    async def start(self, port: int = 0) -> None:
        """Listen, register the nodes, create keys and a plain user."""
        for server in self.servers:
            await server.start()
            self.gpustack.add_node(server.node)
        await self.gpustack.start(port=port)
        user = self.gpustack.auth.add_user(USER, "sandbox-user-1")
        self.user_id = int(user["id"])
        self.management_key = self.gpustack.new_key("management", ["management"])
        self.inference_key = self.gpustack.new_key("inference", ["inference"])
        self.user_key = self.gpustack.new_key("user", ["inference"], user)

    async def stop(self) -> None:
        """Close everything; raises the first background error of the fake server, if there was one."""
        await self.gpustack.stop()
        for server in self.servers:
            await server.stop()
        if self.gpustack.core.failures:
            raise self.gpustack.core.failures[0]

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def describe(self) -> dict[str, Any]:
        """What another process needs to know (the lab describes itself in the same words)."""
        workers = [
            {"name": node.name, "url": f"http://{node.ip}:{node.port}", "metrics_url": f"http://{node.ip}:{node.metrics_port}"}
            for node in self.nodes.values()
        ]
        return {
            "server_url": self.url,
            "inference_url": self.inference_url,
            "metrics_url": self.gpustack.metrics_url,
            "admin_password": self.gpustack.admin_password,
            "management_key": self.management_key,
            "inference_key": self.inference_key,
            "user_key": self.user_key,
            "workers": workers,
            "version": self.gpustack.core.flavour.version,
            "mode": "disabled",
        }

    # --- helpers

    async def deploy(self, name: str, *, worker: str | None = "spark-01", backend: str = "vLLM", wait: bool = True, **fields: Any) -> int:
        """A deployment by name, pinned to a worker; returns its id, when ready unless `wait` is off. `fields` as in the API."""
        body: dict[str, Any] = {
            "name": name,
            "source": "local_path",
            "local_path": f"/models/{name}",
            "backend": backend,
            "backend_parameters": ["--gpu-memory-utilization=0.2"] if backend == "vLLM" else None,
            "replicas": 1,
            "cluster_id": 1,
            "categories": ["llm"],
            "enable_model_route": False,
            "worker_selector": {"worker-name": worker} if worker else {},
        }
        if backend == "Custom":
            body |= {"image_name": "sim/engine:1", "run_command": "serve --port {{port}}"}
        model_id = int(self.gpustack.model_api.create(self._call(body | fields))["id"])
        if wait:
            await self.until(lambda: self._ready(model_id), f"deployment {name} ready")
        return model_id

    async def route(self, name: str, targets: Mapping[str, int], *, wait: bool = True, **fields: Any) -> int:
        """A route with targets by deployment name and weight; returns its id, when every target is active unless `wait` is off."""
        entries = [{"model_id": self.model(model)["id"], "weight": weight} for model, weight in targets.items()]
        body = {"name": name, "categories": ["llm"], "targets": entries, **fields}
        route_id = int(self.gpustack.route_api.create(self._call(body))["id"])
        if wait:
            await self.until(
                lambda: self.gpustack.world.tables["model-routes"][route_id]["ready_targets"] == len(entries), f"route {name} ready"
            )
        return route_id

    def model(self, name: str) -> dict[str, Any]:
        """A deployment's row. Raises KeyError."""
        row = self.gpustack.world.one("models", name=name)
        if row is None:
            raise KeyError(name)
        return row

    def weights(self, route: str) -> dict[str, int]:
        """Deployment name to weight, as written in a route."""
        rows = self.gpustack.world.where("model-route-targets", route_name=route)
        return {self.gpustack.world.tables["models"][row["model_id"]]["name"]: row["weight"] for row in rows}

    def engines(self, model: str) -> list[Any]:
        """The live engines of a deployment, wherever they run."""
        return [run.engine for node in self.nodes.values() for run in node.instances.values() if run.model["name"] == model]

    async def until(self, true: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
        """Wait for something to become true. Raises SandboxTimeout."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise SandboxTimeout(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(0.01)

    def _ready(self, model_id: int) -> bool:
        row = self.gpustack.world.tables["models"][model_id]
        return bool(row["ready_replicas"] == row["replicas"] and row["state"] == "running")

    def _call(self, body: dict[str, Any]) -> Call:
        return Call({}, {}, body, Caller(self.gpustack.auth.admin, None))
