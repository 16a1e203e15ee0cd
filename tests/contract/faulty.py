"""A transport between the product's client and a real server that loses, delays or invents answers: the same faults on every server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

KINDS = ("lost", "never_sent", "late", "error_500_before", "error_500_after", "page_after", "ignored")


class Faulty(httpx.AsyncBaseTransport):
    """Hits the first request whose method and path match; everything else passes. `sent` are the writes that reached the server."""

    def __init__(self) -> None:
        self._real = httpx.AsyncHTTPTransport(trust_env=False)
        self._armed: tuple[str, str, str] | None = None
        self.sent: list[tuple[str, str]] = []

    def renew(self) -> None:
        """Fresh connections for a new event loop; what is armed stays armed."""
        self._real = httpx.AsyncHTTPTransport(trust_env=False)

    @contextmanager
    def once(self, kind: str, method: str, path: str) -> Iterator[None]:
        """One request of that method whose path has the regex `path` meets the fault; it must have come by the end of the block."""
        self._armed = (kind, method, path)
        yield
        assert self._armed is None, f"no {method} {path} came"

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        kind = self._take(request)
        if kind in ("never_sent", "error_500_before", "ignored"):
            return self._invented(kind, request)
        if request.method != "GET":
            self.sent.append((request.method, request.url.path))
        answer = await self._real.handle_async_request(request)
        if kind is None:
            return answer
        await answer.aread()
        await answer.aclose()
        return self._invented(kind, request)

    def _take(self, request: httpx.Request) -> str | None:
        if self._armed is None:
            return None
        kind, method, path = self._armed
        if method != request.method or not re.search(path, request.url.path):
            return None
        self._armed = None
        return kind

    @staticmethod
    def _invented(kind: str, request: httpx.Request) -> httpx.Response:
        match kind:
            case "lost":
                raise httpx.ReadError("connection reset by peer", request=request)
            case "never_sent" | "late":
                raise httpx.ReadTimeout("timed out", request=request)
            case "error_500_before" | "error_500_after":
                return httpx.Response(500, json={"code": 500, "reason": "InternalServerError", "message": "injected"}, request=request)
            case "page_after":
                return httpx.Response(200, text="<html>welcome</html>", request=request)
            case _:
                return httpx.Response(200, json={}, request=request)

    async def aclose(self) -> None:
        await self._real.aclose()
