"""A simulated node's HTTP face: what the GPUStack server and a scraper ask a worker for, plus the control endpoint `/_sim`.

`GET /_sim` shows the state. `POST /_sim` takes any of:
  {"knobs": {...}, "model": NAME | "image": NAME}   engine knobs (see `Knobs`), all engines when neither is given
  {"healthy"|"heartbeats"|"hard_stop"|"dead_metrics"|"mem_used"|"restart_delay"|"latency"|"deletes": value}   node knobs
  {"facts": {"driver_version"|"os_version"|"kernel"|"worker_version": text}}   what the node reports from the next status on
  {"crash": INSTANCE_ID}   kill that engine
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from aiohttp import web

from rollout.testing.knobs import GIB
from rollout.testing.node import SimNode, counters
from rollout.testing.node_metrics import raw_page, unified_page

FACTS = ("driver_version", "os_version", "kernel", "worker_version")
MODEL_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_hidden_layers": 28,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


class NodeServer:
    """Listeners of one node: worker port and metrics port (one listener when they are equal)."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self._runners: list[web.AppRunner] = []

    def app(self) -> web.Application:
        """All paths of the worker; the metrics port serves the same application."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._healthz)
        app.router.add_get("/version", self._version)
        app.router.add_get("/files/{name}", self._files)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/raw", self._metrics)
        app.router.add_get("/_sim", self._state)
        app.router.add_post("/_sim", self._control)
        app.router.add_route("*", "/v1/{tail:.*}", self._proxy)
        return app

    async def start(self) -> None:
        """Listen; port 0 takes a free one and writes it back to the node."""
        node = self.node
        node.port = await self._listen(node.port)
        node.metrics_port = node.metrics_port if node.metrics_port == node.port else await self._listen(node.metrics_port)

    async def stop(self) -> None:
        """Stop every instance (hard) and every listener."""
        for instance_id in list(self.node.instances):
            await self.node.stop_instance(instance_id)
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, port: int) -> int:
        runner = web.AppRunner(self.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, self.node.ip, port).start()
        self._runners.append(runner)
        return int(runner.addresses[0][1])

    # --- what the server asks

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response("ok", status=200 if self.node.knobs.healthy else 500)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.node.worker_version, "git_commit": "sim"})

    async def _files(self, request: web.Request) -> web.Response:
        name, path = request.match_info["name"], request.query.get("path", "")
        if name == "file-exists":
            exists = path not in self.node.gone
            return web.json_response({"exists": exists, "path": path, "is_file": False, "is_dir": exists})
        if name == "model-weight-size":
            return web.json_response({"size": 5 * GIB})
        if name == "model-config" and path.endswith("config.json"):
            return web.json_response(MODEL_CONFIG)
        return web.json_response({"detail": "File not found"}, status=404)

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("X-GPUStack-Model-Instance")
        run = self.node.find(header)
        if run is None:
            return web.json_response({"code": 404, "reason": "NotFound", "message": f"no instance {header}"}, status=404)
        if self.node.knobs.latency:
            await asyncio.sleep(self.node.knobs.latency)
        return await run.engine.handle(request)

    # --- what a scraper asks

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.node.knobs.dead_metrics == "hang":
            await asyncio.sleep(3600)
        if self.node.knobs.dead_metrics == "error":
            return web.Response(status=500, text="metrics are broken")
        page = raw_page(self.node) if request.path.endswith("/raw") else unified_page(self.node)
        return web.Response(text=page, content_type="text/plain")

    # --- control

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(node_state(self.node))

    async def _control(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        try:
            await apply_control(self.node, body)
        except ValueError as error:
            return web.json_response({"message": str(error)}, status=400)
        return web.json_response(node_state(self.node))


async def apply_control(node: SimNode, body: dict[str, Any]) -> None:
    """Apply a `/_sim` body. Raises ValueError for a key nobody knows."""
    known = {field.name for field in dataclasses.fields(node.knobs)}
    unknown = sorted(set(body) - known - {"knobs", "model", "image", "crash", "facts"})
    if unknown:
        raise ValueError(f"unknown control keys: {', '.join(unknown)}")
    for key in known & set(body):
        setattr(node.knobs, key, body[key])
    if "knobs" in body:
        node.set_knobs(body["knobs"], model=body.get("model"), image=body.get("image"))
    for fact, text in body.get("facts", {}).items():
        if fact not in FACTS:
            raise ValueError(f"unknown fact {fact}; one of {', '.join(FACTS)}")
        setattr(node, fact, str(text))
    if "crash" in body:
        await node.crash_instance(int(body["crash"]))


def node_state(node: SimNode) -> dict[str, Any]:
    """The node as `/_sim` shows it: memory, knobs, live and finished instances with their counters."""
    live = [
        {
            "id": instance_id,
            "name": run.engine.name,
            "model_name": run.model["name"],
            "port": run.port,
            "ready": run.engine.ready,
            **counters(run.engine),
        }
        for instance_id, run in node.instances.items()
    ]
    return {
        "name": node.name,
        "worker_id": node.worker_id,
        "mem_total": node.mem_total,
        "mem_used": node.mem_used,
        "mem_available": node.mem_available,
        "knobs": dataclasses.asdict(node.knobs),
        "instances": live,
        "finished": node.finished,
        "files": node.files,
    }
