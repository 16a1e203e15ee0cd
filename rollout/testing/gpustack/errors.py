"""Refusals of the fake GPUStack in the real server's two shapes: `/v2` and OpenAI style. Raises nothing by itself."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "AlreadyExists",
    422: "Invalid",
    500: "InternalServerError",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
}


class ApiError(Exception):
    """An answer that is an error: HTTP status, message, reason (default by status)."""

    def __init__(self, status: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.reason = status, message, reason or REASONS.get(status, "Unknown")

    def response(self, *, openai: bool) -> web.Response:
        """`{"code","reason","message"}`, or OpenAI's `{"error":{...}}`."""
        body: dict[str, Any] = {"code": self.status, "reason": self.reason, "message": self.message}
        if openai:
            body = {"error": {"message": self.message, "code": self.status, "type": self.reason}}
        return web.json_response(body, status=self.status)


class ErrorStyle:
    """Which of the two shapes an error takes.

    Inference errors are in OpenAI's shape, and so is, from the first of its kind on, every later error of that status on
    any path: the real server changes the class of the error, not the one error. 401, 403 and 422 never change.
    """

    def __init__(self) -> None:
        self._turned: set[int] = set()

    def answer(self, path: str, error: ApiError) -> web.Response:
        """The response for an error raised while serving `path`."""
        if path.startswith("/v1") and error.status not in (401, 403, 422):
            self._turned.add(error.status)
        return error.response(openai=error.status in self._turned)


def openai_error(status: int, message: str, kind: str | None = None) -> dict[str, Any]:
    """The body of an inference error."""
    return {"error": {"message": message, "code": status, "type": kind or REASONS.get(status, "Unknown"), "param": None}}


def stream_error_event() -> bytes:
    """What a client sees when its stream is cut: an event inside HTTP 200, and no [DONE]."""
    body = openai_error(503, "Service unavailable. Please retry your requests after a brief wait.")
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def invalid(message: str) -> ApiError:
    """422, the server's word for a body it cannot accept."""
    return ApiError(422, message)
