"""The lab's control port, so that a test in another process can kill and restart parts of a lab it did not start.

`GET /` describes the lab as it is now; `POST /kill/NAME` and `POST /restart/NAME` take a worker's name or `gpustack`, a
worker's restart takes its changed facts as JSON. One request at a time, all in one thread that lives as long as the lab:
the processes it starts would die with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from lab.errors import LabError
from lab.ports import HOST

Act = Callable[[str, str, dict[str, Any]], None]  # verb, name, body
Describe = Callable[[], dict[str, Any]]


class Control:
    """Serves on a free loopback port from construction until `close`."""

    def __init__(self, describe: Describe, act: Act) -> None:
        self._server = HTTPServer((HOST, 0), _handler(describe, act))
        self._thread = threading.Thread(target=self._server.serve_forever, name="lab-control", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(describe: Describe, act: Act) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, describe())

        def do_POST(self) -> None:
            _, verb, name = [*self.path.split("/"), "", ""][:3]
            size = int(self.headers.get("Content-Length") or 0)
            try:
                act(verb, name, json.loads(self.rfile.read(size) or b"{}"))
            except LabError as error:
                self._reply(409, {"message": str(error)})
            else:
                self._reply(200, describe())

        def _reply(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            """Silence: the lab's own lines say what happened."""

    return Handler
