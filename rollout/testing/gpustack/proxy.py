"""`/v1/*`: inference through the Python proxy, gateway disabled (contract 7, 8; traps 8, 10, 11).

Draws a target, an instance, rewrites `model`, passes the engine's answer on. Streams keep the upstream status and end with an
error event when the engine dies; everything else that goes wrong upstream is a 503.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

from aiohttp import web

from rollout.testing.engine import EngineStopped, Reply
from rollout.testing.gpustack.auth import Auth
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, stream_error_event
from rollout.testing.gpustack.usage import Usage
from rollout.testing.gpustack.world import Row

GONE = "No running instances available"
CUT = "Service unavailable. Please retry your requests after a brief wait."


class Proxy:
    """One object per server; holds no state of a request."""

    def __init__(self, core: Core, auth: Auth, usage: Usage) -> None:
        self.core, self.world, self.auth, self.usage = core, core.world, auth, usage

    async def models(self, request: web.Request) -> web.Response:
        """`GET /v1/models`: routes with an active target that this caller may use."""
        names = self.auth.visible_names(self._caller(request))
        rows = [row for row in self.world.where("model-routes") if row["ready_targets"] > 0 and row["name"] in names]
        data = [{"id": row["name"], "object": "model", "created": 0, "owned_by": "gpustack", "meta": None} for row in rows]
        return web.json_response({"object": "list", "data": data})

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/...` with a `model` in the body."""
        started = time.monotonic()
        caller = self._caller(request)
        try:
            body = json.loads(await request.read())
        except ValueError as error:
            raise ApiError(400, f"We could not parse the JSON body of your request: {error}") from None
        name = body.get("model") if isinstance(body, dict) else None
        if not name:
            raise ApiError(400, "Missing 'model' field")
        if name not in self.auth.visible_names(caller):
            raise ApiError(404, "Model not found")
        choice = self.core.cache.draw(name)
        instance = self.core.cache.instance(choice.model_id) if choice else None
        if choice is None or instance is None:
            raise ApiError(self.core.flavour.gap_status, self.core.flavour.gap) if choice is None else ApiError(503, GONE)
        model, route = self.world.get("models", choice.model_id), self.world.one("model-routes", name=name)
        if model is None or route is None:
            raise ApiError(404, "Model not found")
        if choice.adapter and choice.adapter not in [f"{model['name']}:{entry['lora_name']}" for entry in model["lora_list"] or []]:
            raise ApiError(503, f"No running instances with LoRA '{choice.adapter}' mounted.")
        body["model"] = choice.adapter or model["name"]
        path = request.path.replace("/v1-openai/", "/v1/", 1)
        upstream = asyncio.ensure_future(self._ask(instance, path, body))
        if body.get("stream"):
            return await self._stream(request, upstream, (route, model, caller.key), started)
        return await self._whole(upstream, (route, model, caller.key))

    def _caller(self, request: web.Request) -> Any:
        caller = self.auth.caller(request)
        self.auth.allow(caller, "inference")
        return caller

    async def _ask(self, instance: Row, path: str, body: dict[str, Any]) -> Reply:
        node = self.core.nodes.get(instance["worker_id"])
        run = node.instances.get(instance["id"]) if node else None
        if node is None or run is None:
            return Reply(404, {"code": 404, "reason": "NotFound", "message": f"no instance {instance['id']}"})
        if node.knobs.latency:
            await asyncio.sleep(node.knobs.latency)
        return await run.engine.serve(path, body)

    async def _whole(self, upstream: asyncio.Future[Reply], who: tuple[Row, Row, Row | None]) -> web.Response:
        """A client that leaves does not stop the upstream request."""
        try:
            reply = await asyncio.shield(upstream)
        except EngineStopped:
            raise ApiError(503, "An unexpected error occurred: Server disconnected") from None
        if reply.status >= 400:
            detail = f"Worker request failed: status={reply.status}, error={json.dumps(reply.body)}"
            raise ApiError(503, f"An unexpected error occurred: {detail}")
        if reply.body.get("usage"):
            self.usage.record(*who, reply.body["usage"])
        return web.json_response(reply.body)

    async def _stream(
        self, request: web.Request, upstream: asyncio.Future[Reply], who: tuple[Row, Row, Row | None], started: float
    ) -> web.StreamResponse:
        """Nothing is sent before the first chunk: until then the status is still open."""
        try:
            reply = await upstream
        except EngineStopped:
            raise ApiError(503, CUT) from None
        if reply.stream is None:
            return web.json_response(reply.body, status=reply.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        first_at = 0.0
        async with aclosing(reply.stream) as pieces:
            try:
                async for piece in pieces:
                    if not first_at:
                        first_at = time.monotonic()
                        await response.prepare(request)
                    await response.write(self._last(piece, who, started, first_at) if b'"usage":{' in piece else piece)
            except EngineStopped:
                if first_at:
                    await response.write(stream_error_event())
        if not first_at:
            raise ApiError(503, CUT)
        await response.write_eof()
        return response

    def _last(self, piece: bytes, who: tuple[Row, Row, Row | None], started: float, first_at: float) -> bytes:
        """The closing chunk, with the times the server adds to its usage object."""
        line, rest = piece.split(b"\n\n", 1)
        chunk = json.loads(line.removeprefix(b"data: "))
        usage = chunk["usage"]
        self.usage.record(*who, usage)
        each = (time.monotonic() - first_at) * 1000 / max(int(usage["completion_tokens"]) - 1, 1)
        usage["time_to_first_token_ms"] = (first_at - started) * 1000
        usage["time_per_output_token_ms"] = each
        usage["tokens_per_second"] = 1000 / each if each > 0 else 0
        return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n" + rest
