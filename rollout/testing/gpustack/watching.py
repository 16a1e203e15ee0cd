"""`?watch=true`: existing rows as CREATED events, then changes as they happen, heartbeats in between (contract 3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.world import CREATED, HEARTBEAT

BEAT = 15.0
FILTERS = ("model_id", "worker_id", "route_id")


async def watch(core: Core, request: web.Request, kind: str) -> web.StreamResponse:
    """Stream one JSON object per line until the client goes."""
    wanted = {key: int(request.query[key]) for key in FILTERS if request.query.get(key)}
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    queue = core.world.watch(kind)
    try:
        await response.prepare(request)
        for row in core.world.where(kind, **wanted):
            await response.write(_line({"type": CREATED, "data": row, "changed_fields": {}, "id": row["id"]}))
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), BEAT)
            except TimeoutError:
                event = {"type": HEARTBEAT, "data": None}
            if event["data"] is None or all(event["data"].get(key) == value for key, value in wanted.items()):
                await response.write(_line(event))
    finally:
        core.world.unwatch(kind, queue)


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n\n"
