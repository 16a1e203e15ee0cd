"""What a simulated worker says to the GPUStack server: registration, reports, watches, full-object writes. Decides nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientSession, ClientTimeout

Row = dict[str, Any]
WATCH_SILENCE = 90.0  # the server sends a heartbeat event well before
CREATED, UPDATED, DELETED, HEARTBEAT = 1, 2, 3, 5


class ServerSaidNo(Exception):
    """The server answered 4xx/5xx; `status` says which."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"{method} {path} -> {status} {text[:300]}")
        self.status = status


class NodeClient:
    """One worker's connection. `token` is the cluster's registration token until `register` returned the worker's own."""

    def __init__(self, http: ClientSession, server: str, token: str) -> None:
        self._http, self._server, self.token = http, server, token
        self.worker_id = 0

    async def call(self, method: str, path: str, body: Row | None = None) -> Any:
        """One request; parsed JSON or None. Raises ServerSaidNo, or aiohttp's errors when nobody answers."""
        async with self._http.request(method, self._server + path, json=body, headers=self._headers()) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ServerSaidNo(method, path, answer.status, text)
            return json.loads(text) if text else None

    async def register(self, body: Row) -> Row:
        """`POST /v2/workers`; from now on every call carries the worker's own token."""
        worker: Row = await self.call("POST", "/v2/workers", body)
        self.worker_id, self.token = int(worker["id"]), str(worker["token"])
        return worker

    async def own(self, kind: str) -> list[Row]:
        """Every row of `kind` that belongs to this worker."""
        page = await self.call("GET", f"/v2/{kind}?worker_id={self.worker_id}&perPage=100")
        return list(page["items"])

    async def change(self, kind: str, row_id: int, **fields: Any) -> Row | None:
        """Read the row, change `fields`, write the whole row back (there is no PATCH); None when the row is gone."""
        try:
            row: Row = await self.call("GET", f"/v2/{kind}/{row_id}")
            written: Row = await self.call("PUT", f"/v2/{kind}/{row_id}", {**row, **fields})
            return written
        except ServerSaidNo as error:
            if error.status == 404:
                return None
            raise

    async def watch(self, kind: str) -> AsyncIterator[tuple[int, Row]]:
        """One watch connection: (event type, row), existing rows first, heartbeats left out; ends when the server closes it."""
        url = f"{self._server}/v2/{kind}?watch=true&worker_id={self.worker_id}"
        timeout = ClientTimeout(total=None, sock_read=WATCH_SILENCE)
        async with self._http.get(url, headers=self._headers(), timeout=timeout) as answer:
            if answer.status >= 400:
                raise ServerSaidNo("GET", url, answer.status, await answer.text())
            buffer = b""
            async for piece in answer.content.iter_any():
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    event: Row = json.loads(line) if line.strip() else {"type": HEARTBEAT}
                    if event["type"] != HEARTBEAT:
                        row: Row = event.get("data") or {}
                        yield int(event["type"]), {"id": event.get("id"), **row}

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


async def open_session() -> ClientSession:
    """A session that ignores proxies. Bounded per request; watches lift the bound themselves."""
    return ClientSession(timeout=ClientTimeout(total=30), trust_env=False)


async def forever(what: Any, seconds: float, complain: Any) -> None:
    """Call `what()` every `seconds`; a failure is told and the loop goes on, for the worker must outlive the server."""
    while True:
        try:
            await what()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            complain(error)
        await asyncio.sleep(seconds)
