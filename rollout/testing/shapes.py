"""The shapes of an OpenAI-compatible answer: errors, choices, chunks, whole bodies. Pure; knows no engine."""

from __future__ import annotations

import json
from typing import Any

Body = dict[str, Any]


def error_body(message: str, status: int) -> Body:
    """An error as the engine answers it."""
    return {"error": {"message": message, "type": "InternalServerError", "param": None, "code": status}}


def event(payload: Body) -> bytes:
    """One SSE event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def choice(chat: bool, text: str | None, finish: str | None, *, role: bool = False) -> Body:
    """One choice of a chunk; `text` None means the closing chunk."""
    if not chat:
        return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish}
    delta: Body = {} if text is None else {"content": text}
    if role:
        delta = {"role": "assistant", **delta}
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def chunk_frame(head: Body, *, chat: bool) -> tuple[bytes, bytes]:
    """What stands before and after the token in every chunk: serialised once a request, not once a token."""
    mark = "\x00token\x00"
    whole = event(dict(head, choices=[choice(chat, mark, None)]))
    before, after = whole.split(json.dumps(mark)[1:-1].encode())
    return before, after


def whole(head: Body, text: str, finish: str | None, usage: Body, *, chat: bool) -> Body:
    """A non-streamed answer; without finish_reason it has no usage either (a truncated one)."""
    said: Body = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    answer = {**head, "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish}]}
    return answer if finish is None else {**answer, "usage": usage}
