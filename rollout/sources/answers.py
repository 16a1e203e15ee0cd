"""What a streamed chat answer says: who served it, when the first token came, and whether it was a success. Pure.

A cut stream looks like success (HTTP 200, `finish_reason: abort`, an error object after the headers), so success is a known
finish reason *and* usage. Nothing here reads a clock: all times come stamped from the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rollout.clients.errors import quotable
from rollout.clients.sse import Exchange, Failure

Json = Any
FINISHED = frozenset({"stop", "length", "tool_calls", "content_filter"})
WHO = 100
"""events of an answer that is too large that are looked at: they say who served"""
_ABOUT = {
    **dict.fromkeys((301, 302, 303, 307, 308), "(it redirects; redirects are not followed, so that a key goes to nobody else) "),
    401: "(the inference key is wrong, expired or deleted) ",
    403: "(the inference key lacks the scope `inference`) ",
}
"""what a status means here, before the server's own words"""
NAME = 256
"""characters of a deployment's name; more than that in `model` is none"""
TEXTS = ("content", "reasoning_content", "reasoning", "text")
"""fields of a delta (or message) whose first non-empty text is the first token"""


@dataclass(frozen=True)
class Answer:
    """One request's result. Times in seconds; `ttft` and `e2e` count from the scheduled send, failed requests keep what they have.

    `outcome`: ok | http_error | truncated | aborted | stream_error | timeout | connect_error | too_large.
    """

    outcome: str
    model: str | None
    """the deployment that served, from the answer's `model`"""
    ttft: float | None
    tpot: float | None
    """(last - first content event) / (tokens - 1)"""
    e2e: float | None
    delay: float | None
    """send delay: the client's own fault"""
    tokens: int | None
    """output tokens by `usage`"""
    detail: str = ""
    retried: bool = False
    content: str = field(default="", repr=False)
    """what was answered, of the first choice; without reasoning"""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def text(self) -> str:
        """One line for an error list."""
        return f"{self.outcome}: {self.detail}" if self.detail else self.outcome


def events(pieces: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The `data` of each server-sent event with the time at which its end arrived; LF or CRLF, split anywhere.

    Comments and other fields are skipped. What stands after the last blank line is given too: some servers leave it out.
    """
    open_line, data, at = list[bytes](), list[bytes](), 0.0
    for at, piece in pieces:
        if b"\n" not in piece:  # joined once at its end: a line of megabytes comes in thousands of pieces
            open_line.append(piece)
            continue
        *lines, rest = b"".join([*open_line, piece]).split(b"\n")
        open_line = [rest]
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line.strip() and data:
                yield at, b"\n".join(data)
                data = []
    rest = b"".join(open_line)
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield at, b"\n".join(data)


@dataclass
class _Seen:
    """What the events have said so far."""

    model: str | None = None
    finish: str | None = None
    tokens: int | None = None
    first: float | None = None
    last: float | None = None
    error: str | None = None
    broken: bool = False
    said: list[str] = field(default_factory=list)

    def take(self, at: float, data: bytes) -> None:
        """One event, or a whole JSON answer of a server that does not stream."""
        try:
            payload: Json = json.loads(data)
        except (ValueError, RecursionError):
            self.broken = True
            return
        if not isinstance(payload, dict):
            self.broken = True
            return
        if payload.get("error") or payload.get("object") == "error":
            self.error = said(payload)
        name = payload.get("model")
        if isinstance(name, str) and len(name) <= NAME:
            self.model = self.model or name
        usage = payload.get("usage")
        if isinstance(usage, dict) and (tokens := _count(usage.get("completion_tokens"))) is not None:
            self.tokens = tokens
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                self._choice(at, choice)

    def _choice(self, at: float, choice: dict[str, Json]) -> None:
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        part = choice.get("delta") or choice.get("message") or choice
        if isinstance(part, dict) and not choice.get("index"):
            self.said += [part[name] for name in ("content", "text") if isinstance(part.get(name), str)]
        if isinstance(part, dict) and _has_content(part):
            self.first = at if self.first is None else self.first
            self.last = at

    def per_token(self) -> float | None:
        """Undefined below two tokens, and when all content came at one instant."""
        if self.first is None or self.last is None or self.tokens is None or self.tokens < 2 or self.last == self.first:
            return None
        return (self.last - self.first) / (self.tokens - 1)


def read(exchange: Exchange, clean: Callable[[str], str] | None = None) -> Answer:
    """The answer that an exchange carries; never raises, whatever the server sent. `clean` takes our key out of what is quoted."""
    seen = _Seen()
    if exchange.status == 200:
        told = _payloads(exchange)
        for at, data in islice(told, WHO) if exchange.failure is Failure.TOO_LARGE else told:
            if data == b"[DONE]":
                break
            seen.take(at, data)
    outcome, detail = _outcome(exchange, seen)
    since = exchange.scheduled
    return Answer(
        outcome,
        seen.model or None,
        None if seen.first is None else seen.first - since,
        seen.per_token(),
        None if exchange.ended is None else exchange.ended - since,
        None if exchange.sent is None else exchange.sent - since,
        seen.tokens,
        quotable(detail, clean),
        exchange.retried,
        "".join(seen.said),
    )


def said(payload: Json) -> str:
    """The message of an error object, in the shapes that engines and gateways use."""
    inner = payload.get("error", payload) if isinstance(payload, dict) else payload
    message = inner.get("message") if isinstance(inner, dict) else inner
    return str(message if message else payload)


def _payloads(exchange: Exchange) -> Iterator[tuple[float, bytes]]:
    if "json" in exchange.headers.get("content-type", "") and exchange.pieces:
        return iter([(exchange.pieces[-1][0], exchange.body)])
    return events(exchange.pieces)


def _outcome(exchange: Exchange, seen: _Seen) -> tuple[str, str]:
    if exchange.failure in (Failure.CONNECT, Failure.TIMEOUT, Failure.TOO_LARGE):
        return exchange.failure.value, exchange.detail
    if exchange.status is None:
        return Failure.CUT.value, exchange.detail
    if exchange.status != 200:
        return "http_error", f"{exchange.status} {_ABOUT.get(exchange.status, '')}{_body_says(exchange.body)}"
    if seen.error is not None:
        return "stream_error", seen.error
    if seen.finish is not None and seen.finish not in FINISHED:
        return "aborted", f"finish_reason {seen.finish}"
    if seen.finish is not None and seen.tokens is not None:
        return "ok", ""
    kind = exchange.headers.get("content-type", "text/event-stream").partition(";")[0].strip()
    if exchange.failure is None and kind != "text/event-stream" and "json" not in kind:
        return Failure.CUT.value, f"it is {kind}, expected an event stream"
    missing = "no finish_reason" if seen.finish is None else "no usage"
    broken = ", an event is not JSON" if seen.broken else ""
    return Failure.CUT.value, exchange.detail or f"{missing}{broken}"


def _count(value: Json) -> int | None:
    """A number of tokens; anything else is unknown."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def _body_says(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        return said(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _has_content(part: dict[str, Json]) -> bool:
    if any(isinstance(part.get(name), str) and part[name] for name in TEXTS):
        return True
    calls = part.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return any(isinstance(f, dict) and bool(f.get("arguments")) for f in functions)
