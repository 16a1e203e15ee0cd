"""A TCP server that answers byte for byte as a test says, and a front that shares requests between simulated engines by weight."""

import asyncio
import random
from collections import Counter

from aiohttp import web

from rollout.testing.engine import EngineStopped, SimEngine, write_stream


class WireServer:
    """`replies`: what each request gets, in order; the last one is repeated. A float waits, bytes are written, None cuts."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.asked = asyncio.Event()
        self.connections = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_error):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                for part in reply:
                    if part is None:
                        return
                    if isinstance(part, float):
                        await asyncio.sleep(part)
                    else:
                        writer.write(part)
                        await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()


def page(text, *, status="200 OK", kind="text/plain; version=0.0.4", headers=""):
    """A whole answer with a length."""
    body = text if isinstance(text, bytes) else text.encode()
    return [f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body]


def chunked(*pieces, end=True, gap=0.0):
    """A streamed answer: one chunk a piece; without its end it is cut."""
    parts = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"]
    for piece in pieces:
        parts += [gap, f"{len(piece):x}\r\n".encode() + piece + b"\r\n"]
    return parts + ([b"0\r\n\r\n"] if end else [None])


class Front:
    """Routes by name to engines with weights, as the server does: the answer's `model` is the deployment. Unknown route: 404."""

    def __init__(self, seed=1):
        self.routes: dict[str, list[tuple[SimEngine, int]]] = {}
        self.seen: Counter[str] = Counter()
        self.request_ids: list[str] = []
        self.keys: set[str] = set()
        self.bodies = []
        self._rng = random.Random(seed)

    def route(self, name, *targets):
        """Replaces the targets of a route: (engine, weight) pairs."""
        self.routes[name] = list(targets)

    async def __aenter__(self):
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_error):
        await self._runner.cleanup()

    async def _chat(self, request):
        body = await request.json()
        self.request_ids.append(request.headers["X-Request-Id"])
        self.keys.add(request.headers.get("Authorization", ""))
        self.bodies.append(body)
        targets = self.routes.get(body["model"])
        if targets is None:
            return web.json_response({"error": {"message": "Model not found", "code": 404}}, status=404)
        live = [(engine, weight) for engine, weight in targets if not engine.stopped]
        if not live:
            return web.json_response({"error": {"message": "No running instances available", "code": 503}}, status=503)
        engine = self._rng.choices([e for e, _ in live], [w for _, w in live])[0]
        self.seen[engine.model_name] += 1
        try:
            reply = await engine.serve("/v1/chat/completions", {**body, "model": engine.model_name})
            if reply.stream is None:
                return web.json_response(reply.body, status=reply.status)
            return await write_stream(request, reply.stream, {})
        except EngineStopped:
            request.transport.abort()
            return web.Response(status=503)
