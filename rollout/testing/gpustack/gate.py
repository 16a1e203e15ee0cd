"""What stands between the listener and the handlers of `/v2`: faults, authentication, errors, the write log.

A request that was accepted is carried out even when its client has gone: the real server does not notice either.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from rollout.testing.gpustack.auth import Auth
from rollout.testing.gpustack.calls import Call
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, ErrorStyle
from rollout.testing.gpustack.faults import Fault, Faults, Write
from rollout.testing.gpustack.undo import Undo

Handler = Callable[[Call], Any]
PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
OPEN_TO_ALL = ("/v2/users/me",)


class Gate:
    """Wraps handlers for aiohttp."""

    def __init__(self, core: Core, auth: Auth, faults: Faults, undo: Undo, style: ErrorStyle) -> None:
        self.core, self.auth, self.faults, self.undo, self.style = core, auth, faults, undo, style
        self._started = time.monotonic()

    def wrap(self, handler: Handler) -> Callable[[web.Request], Any]:
        """An aiohttp handler that runs `handler` behind the gate, shielded from the client's departure."""

        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            return await asyncio.shield(self.core.spawn(self._serve(request, body, handler)))

        return handle

    async def _serve(self, request: web.Request, raw: bytes, handler: Handler) -> web.Response:
        fault = self.faults.take(request.method, request.path)
        arrived = time.monotonic() - self._started
        response = await (self._plain(request, raw, handler) if fault is None else self._sick(fault, request, raw, handler))
        if request.method == "GET":
            self.faults.reads[request.path] += 1
        else:
            status = 0 if response is None else response.status
            self.faults.writes.append(Write(arrived, request.method, request.path_qs, _json(raw), status, fault.kind if fault else None))
        if response is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return response

    async def _plain(self, request: web.Request, raw: bytes, handler: Handler) -> web.Response:
        try:
            return web.json_response(handler(self._call(request, raw)))
        except ApiError as error:
            return self.style.answer(request.path, error)

    def _call(self, request: web.Request, raw: bytes) -> Call:
        caller = self.auth.caller(request)
        self.auth.allow(caller, "management")
        if not caller.is_admin and request.path not in OPEN_TO_ALL and not request.path.startswith("/v2/api-keys"):
            raise ApiError(403, "No permission to access")
        body = _json(raw)
        if body is None:
            if request.method in ("POST", "PUT") and raw:
                raise ApiError(422, "1 validation errors:\n  JSON decode error\n")
            body = {}
        acting = request.headers.get("X-Organization-Id")
        return Call(request.match_info, request.query, body, caller, int(acting) if acting else None)

    async def _sick(self, fault: Fault, request: web.Request, raw: bytes, handler: Handler) -> web.Response | None:
        """The answer under a fault; None closes the connection."""
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
            return await self._plain(request, raw, handler)
        if fault.kind in ("ignore", "revert"):
            return await self._unstuck(fault, request, raw, handler)
        if fault.kind == "truncate":
            whole = (await self._plain(request, raw, handler)).body
            text = whole if isinstance(whole, bytes) else b""
            return web.Response(body=text[: len(text) // 2], content_type="application/json")
        applied = await self._plain(request, raw, handler) if fault.applied else None
        if fault.kind == "hang":
            await fault.released.wait()
            return applied or await self._plain(request, raw, handler)
        if fault.kind == "drop":
            return None
        if fault.kind == "html":
            return web.Response(status=fault.status, text=PAGE, content_type="text/html")
        return self.style.answer(request.path, ApiError(fault.status, "injected fault"))

    async def disturb(self, request: web.Request) -> web.StreamResponse | None:
        """A fault on an inference request: an answer, or None to go on. Faults whose path does not say `v1` never hit users."""
        fault = self.faults.take(request.method, request.path, inference=True)
        if fault is None:
            return None
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        if fault.kind == "hang":
            await fault.released.wait()
        if fault.kind == "status":
            return self.style.answer(request.path, ApiError(fault.status, "injected fault"))
        if fault.kind == "html":
            return web.Response(status=fault.status, text=PAGE, content_type="text/html")
        if fault.kind == "drop" and request.transport is not None:
            request.transport.abort()
            return web.Response(status=503)
        return None

    async def _unstuck(self, fault: Fault, request: web.Request, raw: bytes, handler: Handler) -> web.Response:
        if fault.kind == "ignore" and request.method == "DELETE":
            return web.json_response(None)
        before = self.undo.remember()
        response = await self._plain(request, raw, handler)
        difference = self.undo.difference(before)
        if fault.kind == "ignore":
            self.undo.apply(difference)
        else:
            self.core.later(fault.seconds, self.undo.apply, difference)
        return response


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None
