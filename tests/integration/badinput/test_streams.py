"""Streams of own requests as they should not be: an outcome with its reason, in bounded time and memory, and no exception."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from rollout.clients.secret import Secret
from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.sources.answers import Answer as Told
from rollout.sources.chat import Chat
from tests.integration.badinput.said import KEYS
from tests.integration.badinput.wire import Answer, Wire, http

KEY = KEYS["ROLLOUT_INFERENCE_KEY"]
STREAM = "text/event-stream"
FIRST: dict[str, Any] = {"model": "m-a", "choices": [{"delta": {"content": "hi"}, "finish_reason": None}]}
LAST: dict[str, Any] = {"model": "m-a", "choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}


def told(answer: Answer, timeout: float = 8.0) -> Told:
    async def ask(url: str) -> Told:
        async with TimedClient(SystemClock()) as client:
            return await Chat(client, url, Secret(KEY)).ask("chat", "hello", 1, timeout=timeout)

    with Wire({"/": answer}) as wire:
        return asyncio.run(ask(wire.url))


def events(*payloads: Any, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {p if isinstance(p, str) else json.dumps(p)}\n\n" for p in payloads) + end


def chunks(*pieces: bytes) -> bytes:
    body = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces)
    return f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n"


def usage(tokens: Any) -> bytes:
    return http(events(FIRST, {**LAST, "usage": {"completion_tokens": tokens}}), kind=STREAM)


CASES: dict[str, tuple[Answer, str, str]] = {
    "sound": (http(events(FIRST, LAST), kind=STREAM), "ok", ""),
    "crlf": (http(events(FIRST, LAST).replace("\n", "\r\n"), kind=STREAM), "ok", ""),
    "comments": (http(": ping\n\nevent: x\nid: 3\nretry: 9\n" + events(FIRST, LAST), kind=STREAM), "ok", ""),
    "split-anywhere": (chunks(*(bytes([b]) for b in events(FIRST, LAST).encode())), "ok", ""),
    "one-json-answer": (http(json.dumps({**LAST, "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})), "ok", ""),
    "html": (http("<html>sign in</html>", kind="text/html"), "truncated", "it is text/html, expected an event stream"),
    "plain-text": (http("hello", kind="text/plain"), "truncated", "it is text/plain"),
    "nothing": (http("", kind=STREAM), "truncated", "no finish_reason"),
    "no-answer": (b"", "truncated", ""),
    "not-http": (b"220 smtp ready\r\nConnection: close\r\n\r\n", "truncated", ""),
    "no-usage": (http(events(FIRST, {**LAST, "usage": None}), kind=STREAM), "truncated", "no usage"),
    "no-end": (http(events(FIRST, end=""), kind=STREAM), "truncated", "no finish_reason"),
    "not-json": (http(events(FIRST, "oops"), kind=STREAM), "truncated", "an event is not JSON"),
    "a-list": (http(events([FIRST]), kind=STREAM), "truncated", "an event is not JSON"),
    "deep": (http(events("[" * 200_000), kind=STREAM), "truncated", "an event is not JSON"),
    "long-number": (http(events("9" * 9000), kind=STREAM), "truncated", "an event is not JSON"),
    "choices-are-text": (http(events({"choices": "stop"}), kind=STREAM), "truncated", "no finish_reason"),
    "choice-is-null": (http(events({"choices": [None]}, LAST), kind=STREAM), "ok", ""),
    "delta-is-text": (http(events({"choices": [{"delta": "hi"}]}, LAST), kind=STREAM), "ok", ""),
    "tokens-are-text": (usage("3"), "truncated", "no usage"),
    "tokens-are-true": (usage(True), "truncated", "no usage"),
    "tokens-are-negative": (usage(-3), "truncated", "no usage"),
    "tokens-are-astronomic": (usage(10**400), "truncated", "no usage"),
    "error-inside": (
        http(events(FIRST, {"error": {"message": "Service unavailable"}}), kind=STREAM),
        "stream_error",
        "Service unavailable",
    ),
    "error-is-odd": (http(events({"error": ["\x1b[2J", {"a": 1}]}), kind=STREAM), "stream_error", ""),
    "aborted": (http(events(FIRST, {**LAST, "choices": [{"finish_reason": "abort"}]}), kind=STREAM), "aborted", "abort"),
    "redirect": (
        http("", status="307 Temporary Redirect", more="Location: http://192.0.2.1/\r\n"),
        "http_error",
        "redirects are not followed",
    ),
    "unauthorized": (http('{"error":{"message":"no"}}', status="401 Unauthorized"), "http_error", "the inference key is wrong"),
    "forbidden": (http('{"error":{"message":"no"}}', status="403 Forbidden"), "http_error", "lacks the scope `inference`"),
    "echoes-the-key": (http(f'{{"error":{{"message":"bad key {KEY}"}}}}', status="400 Bad Request"), "http_error", "bad key ***"),
    "echoes-half-of-the-key": (
        http(f'{{"error":{{"message":"{"x" * 190} bad key {KEY}"}}}}', status="400 Bad Request"),
        "http_error",
        "x bad key ***",
    ),
    "tells-a-password": (
        http('{"error":{"message":"no postgresql://gpustack:canary7never@db.lan/x"}}', status="500 Oops"),
        "http_error",
        "no postgresql://***@db.lan/x",
    ),
    "tells-it-inside": (http(events({"error": {"message": "HF_TOKEN=hf_canary7never"}}), kind=STREAM), "stream_error", "HF_TOKEN=***"),
    "model-is-a-book": (http(events({**LAST, "model": "m" * 5000}), kind=STREAM), "ok", ""),
    "garbage-chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nConnection: close\r\n", "truncated", ""),
    "two-lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9\r\n\r\nabcConnection: close", "truncated", ""),
    "endless-header": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 400_000 + b"\r\nConnection: close\r\n\r\n", "truncated", ""),
    "bytes-after-the-end": (http(events(FIRST, LAST), kind=STREAM) + b"HTTP/1.1 200 OK\r\n", "ok", ""),
    "compressed": (http(b"\x1f\x8b\x08\x00oops", kind=STREAM, more="Content-Encoding: gzip\r\n"), "truncated", "no finish_reason"),
}


@pytest.mark.parametrize("name", CASES, ids=str)
def test_a_stream_that_is_none_has_an_outcome_and_a_reason(name: str) -> None:
    answer, outcome, words = CASES[name]
    seen = told(answer)
    assert (seen.outcome, words in seen.text) == (outcome, True), seen
    assert KEY[:20] not in repr(seen)
    assert "canary7" not in repr(seen)
    assert len(seen.model or "") <= 256
    assert len(seen.detail) <= 256


def flood(piece: bytes) -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for _ in range(50):
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


@pytest.mark.parametrize("piece", [b"data: " + b"x" * (1 << 20), b"data: {}\n\n" * 100_000], ids=["one-line", "events"])
def test_fifty_megabytes_are_given_up_early_in_time_and_memory(piece: bytes) -> None:
    tracemalloc.start()
    began = time.monotonic()
    seen = told(lambda: flood(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen.outcome == "too_large"
    assert time.monotonic() - began < 8
    assert peak < 80 << 20


def test_a_line_of_ten_megabytes_in_small_pieces_costs_what_it_weighs() -> None:
    """Joined piece by piece it would be copied ten thousand times."""
    long = {**FIRST, "padding": "x" * (10 << 20)}
    body = events(long, LAST).encode()
    began = time.process_time()
    seen = told(chunks(*(body[n : n + 1024] for n in range(0, len(body), 1024))), timeout=20)
    assert seen.ok
    assert time.process_time() - began < 6


def test_a_stream_that_drips_ends_at_its_deadline() -> None:
    def drip() -> Iterator[bytes]:
        yield f"HTTP/1.1 200 OK\r\nContent-Type: {STREAM}\r\nContent-Length: 99999\r\n\r\n".encode()
        for _ in range(100):
            time.sleep(0.05)
            yield b":"

    began = time.monotonic()
    seen = told(drip, timeout=0.6)
    assert (seen.outcome, time.monotonic() - began < 2) == ("timeout", True)
