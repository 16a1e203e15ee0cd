"""A server in a thread that answers byte for byte as a test says; `site()` is a small sound GPUStack to break one answer of."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

Answer = bytes | Callable[[], Iterable[bytes]]
"""bytes are written at once; a function gives pieces until the client leaves"""
Json = Any


class Wire:
    """`answers`: by the beginning of the path (the longest wins). `heads` are the requests as they came."""

    def __init__(self, answers: dict[str, Answer], tls: ssl.SSLContext | None = None) -> None:
        self.answers, self.heads = answers, list[str]()
        wire = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    wire._serve(self.rfile, self.wfile)
                except (OSError, ValueError):
                    pass  # the client has left

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def finish_request(self, request: Any, client_address: Any) -> None:
                """In the connection's own thread: a client that does not like the certificate holds up nobody."""
                request.settimeout(10)
                try:
                    spoken = tls.wrap_socket(request, server_side=True) if tls else request
                except OSError:
                    return
                with spoken:
                    super().finish_request(spoken, client_address)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _serve(self, reader: Any, writer: Any) -> None:
        if not reader.peek(1)[:1].isalpha():
            writer.write(http("", status="400 Bad Request"))  # TLS, spoken to a port without it
            reader.read1(1 << 16)
            return
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = reader.readline()
                if not line:
                    return
                head += line
            self.heads.append(head.decode("latin-1"))
            length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
            reader.read(length)
            path = head.split(b" ")[1].decode()
            found = max((key for key in self.answers if path.startswith(key)), key=len, default="")
            answer = self.answers.get(found, http("no", status="404 Not Found"))
            if isinstance(answer, bytes):
                writer.write(answer)
                if b"Connection: close" in answer or not answer:
                    return
                continue
            for piece in answer():
                writer.write(piece)
                writer.flush()
            return


def http(body: str | bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    """A whole answer with its length."""
    raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def page(*rows: Json) -> bytes:
    """One page of a list."""
    return http(json.dumps({"items": rows, "pagination": {"page": 1, "perPage": 100, "total": len(rows), "totalPage": 1}}))


MODEL = {
    "id": 1,
    "name": "chat-spark-01",
    "source": "local_path",
    "local_path": "/models/chat",
    "backend": "Custom",
    "image_name": "sim/vllm:1",
    "replicas": 1,
    "ready_replicas": 1,
    "state": "running",
    "categories": ["llm"],
    "env": {},
}
INSTANCE = {"id": 1, "name": "chat-1", "model_id": 1, "state": "running", "worker_name": "spark-01", "worker_id": 1, "restart_count": 0}
ROUTE = {
    "id": 1,
    "name": "chat",
    "categories": ["llm"],
    "meta": {},
    "targets": 1,
    "ready_targets": 1,
    "access_policy": "authed",
    "lb_mode": "weighted",
}
TARGET = {"id": 1, "route_id": 1, "route_name": "chat", "model_id": 1, "weight": 100, "state": "active"}
WORKER = {
    "id": 1,
    "name": "staging",
    "state": "ready",
    "heartbeat_time": "2126-01-01T00:00:00Z",
    "status": {"memory": {"total": 137438953472, "used": 1073741824, "is_unified_memory": True}},
}


def site(**changed: Answer) -> dict[str, Answer]:
    """Sound answers to everything that `rollout plan` asks; by name: version, models, instances, routes, route, targets, ..."""
    answers: dict[str, Answer] = {
        "version": http('{"version": "v2.3.0", "git_commit": "63a03ba"}'),
        "models": page(MODEL),
        "instances": page(INSTANCE),
        "routes": page(ROUTE),
        "route": http(json.dumps(ROUTE)),
        "targets": page(TARGET),
        "workers": page(WORKER),
        "keys": page(),
    }
    answers.update(changed)
    paths = {"version": "/version", "models": "/v2/models", "instances": "/v2/model-instances", "routes": "/v2/model-routes"}
    paths |= {"route": "/v2/model-routes/", "targets": "/v2/model-route-targets", "workers": "/v2/workers", "keys": "/v2/api-keys"}
    return {paths[name]: answer for name, answer in answers.items()}
