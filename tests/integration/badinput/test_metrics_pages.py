"""Metrics pages as they should not be: a value that is unclear is unknown, never 0, and a page that cannot be read is an error."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.domain.world import EngineSample, InstanceSample
from rollout.sources.engine_metrics import EngineMetrics
from rollout.sources.refs import DeploymentRef, InstanceRef
from tests.integration.badinput.wire import Answer, Wire, http

L = 'model_instance_id="1"'
RUNNING, WAITING = f"vllm:num_requests_running{{{L}}}", f"vllm:num_requests_waiting{{{L}}}"
DONE, TTFT = "vllm:request_success_total", "vllm:time_to_first_token_seconds"


def sampled(answer: Answer) -> EngineSample:
    """One reading of a worker whose pages are all this one."""

    async def read(port: int) -> EngineSample:
        async with TimedClient(SystemClock()) as client:
            ref = DeploymentRef("vLLM", 1, (InstanceRef(1, "i-1", "127.0.0.1", port, None),))
            return (await EngineMetrics(client, SystemClock()).sample({"m": ref}))["m"]

    with Wire({"/metrics": answer}) as wire:
        return asyncio.run(read(wire.port))


def page(*lines: str, kind: str = "text/plain; version=0.0.4") -> bytes:
    return http("\n".join(lines) + "\n", kind=kind)


def bucket(edge: str, count: str, more: str = "") -> str:
    return f'{TTFT}_bucket{{{L},le="{edge}"{more}}} {count}'


OPEN = "application/openmetrics-text; version=1.0.0"
VALUES: dict[str, tuple[bytes, str, object]] = {
    "nan": (page(f"{RUNNING} NaN"), "running", None),
    "infinite": (page(f"{RUNNING} +Inf"), "running", None),
    "negative": (page(f"{RUNNING} -1"), "running", None),
    "negative-counter": (page(f'{DONE}{{{L},finished_reason="stop"}} -7'), "requests", None),
    "exponent": (page(f"{RUNNING} 3e0"), "running", 3),
    "beyond-a-double": (page(f"{RUNNING} 1e999"), "running", None),
    "same-line-twice": (page(f"{RUNNING} 4", f"{RUNNING} 4"), "running", 4),
    "twice-and-different": (page(f"{RUNNING} 4", f"{RUNNING} 9"), "running", None),
    "two-ranks": (page(f'{RUNNING[:-1]},engine="0"}} 1', f'{RUNNING[:-1]},engine="1"}} 2'), "running", 3),
    "one-rank-is-nan": (page(f'{RUNNING[:-1]},engine="0"}} 1', f'{RUNNING[:-1]},engine="1"}} NaN'), "running", None),
    "time-stamp": (page(f"{RUNNING} 2 1764500000000"), "running", 2),
    "crlf": (http(f"{RUNNING} 2\r\n{WAITING} 1\r\n", kind="text/plain"), "running", 2),
    "blanks": (page(f"  {RUNNING}   2  "), "running", 2),
    "escapes": (page(f'{RUNNING[:-1]},path="C:\\\\d\\"q\\n{{}} # x"}} 2'), "running", 2),
    "comma-before-brace": (page(f"{RUNNING[:-1]},}} 2"), "running", 2),
    "utf-8-label": (page(f'{RUNNING[:-1]},team="Größe ✓"}} 2'), "running", 2),
    "help-in-the-middle": (page(f"{RUNNING} 2", "# HELP x y", "# TYPE x gauge", f"{WAITING} 1"), "waiting", 1),
    "no-last-newline": (http(f"{RUNNING} 2", kind="text/plain"), "running", 2),
    "no-content-type": (http(f"{RUNNING} 2\n", kind=""), "running", 2),
    "openmetrics": (page(f"{RUNNING} 2", "# EOF", kind=OPEN), "running", 2),
    "both-spellings": (page(f"vllm:generation_tokens{{{L}}} 5", f"vllm:generation_tokens_total{{{L}}} 5"), "tokens", 5),
    "two-engines-names": (page(f"{RUNNING} 2", f"gpustack:num_requests_running{{{L}}} 2"), "running", 2),
    "exemplar": (
        page(bucket("0.1", '3 # {trace_id="a"} 0.05 1764500000'), bucket("+Inf", "3"), kind=OPEN),
        "ttft",
        {0.1: 3, float("inf"): 3},
    ),
    "exemplar-with-signs": (page(f'{DONE}{{{L},finished_reason="stop"}} 3 # {{id="}} 9"}} 1.0', kind=OPEN), "requests", 3),
    "falling-buckets": (page(bucket("0.1", "5"), bucket("0.5", "3"), bucket("+Inf", "5")), "ttft", None),
    "unsorted-buckets": (page(bucket("+Inf", "5"), bucket("0.5", "3"), bucket("0.1", "1")), "ttft", {0.1: 1, 0.5: 3, float("inf"): 5}),
    "no-last-bucket-but-a-count": (page(bucket("0.1", "1"), f"{TTFT}_count{{{L}}} 5"), "ttft", {0.1: 1, float("inf"): 5}),
    "last-bucket-and-nan-count": (
        page(bucket("0.1", "1"), bucket("+Inf", "3"), f"{TTFT}_count{{{L}}} NaN"),
        "ttft",
        {0.1: 1, float("inf"): 3},
    ),
    "edge-beyond-a-double": (page(bucket("1e400", "1"), bucket("+Inf", "3")), "ttft", None),
    "edge-in-hex": (page(bucket("0x1p-2", "1"), bucket("+Inf", "3")), "ttft", None),
    "empty-edge": (page(bucket("", "1"), bucket("+Inf", "3")), "ttft", None),
    "minus-zero": (page(f"{RUNNING} -0.0"), "running", 0),
    "another-instance-beside": (page(f"{RUNNING} 2", 'vllm:num_requests_running{model_instance_id="2"} 7'), "running", 2),
    "goes-on-behind-its-end": (page(f"{RUNNING} 2", "# EOF", f"{RUNNING} 9", kind=OPEN), "running", None),
    "early-hints": (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20 + page(f"{RUNNING} 2"), "running", 2),
    "nan-bucket": (page(bucket("0.1", "NaN"), bucket("+Inf", "5")), "ttft", None),
    "odd-edge": (page(bucket("fast", "1"), bucket("+Inf", "5")), "ttft", None),
    "nan-edge": (page(bucket("NaN", "1"), bucket("+Inf", "5")), "ttft", None),
    "no-edge": (page(f"{TTFT}_bucket{{{L}}} 1", bucket("+Inf", "5")), "ttft", None),
    "same-edge-twice": (page(bucket("0.1", "1"), bucket("0.10", "2"), bucket("+Inf", "5")), "ttft", None),
    "no-last-bucket-and-no-count": (page(bucket("0.1", "1"), f"{RUNNING} 1"), "ttft", None),
    "edges-differ-by-rank": (
        page(bucket("0.1", "1", ',engine="0"'), bucket("+Inf", "1", ',engine="0"'), bucket("+Inf", "1", ',engine="1"')),
        "ttft",
        None,
    ),
    "two-start-times": (
        page(f"process_start_time_seconds{{{L}}} 17", f'process_start_time_seconds{{{L},rank="1"}} 99', f"{RUNNING} 1"),
        "started",
        99,
    ),
}


@pytest.mark.parametrize("name", VALUES, ids=str)
def test_an_unclear_value_is_unknown_and_a_clear_one_is_read(name: str) -> None:
    answer, key, value = VALUES[name]
    sample = sampled(answer)
    assert sample.status == "OK", sample.why
    row: InstanceSample = sample.instances["i-1"]
    assert getattr(row, key) == value


UNREADABLE: dict[str, tuple[Answer, str]] = {
    "html": (http("<html>sign in</html>", kind="text/html"), "text/html"),
    "json": (http("{}"), "application/json"),
    "protobuf": (http(b"\x0a\x05hello", kind="application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily"), "protobuf"),
    "binary": (http(RUNNING.encode() + b" \xff\xfe\n", kind="text/plain"), "not text"),
    "compressed": (http(b"\x1f\x8b\x08\x00garbage", kind="text/plain", more="Content-Encoding: gzip\r\n"), "not text"),
    "word": (page(f"{RUNNING} many"), "not Prometheus text"),
    "no-value": (page(RUNNING), "not Prometheus text"),
    "open-brace": (page('vllm:num_requests_running{model_instance_id="1" 2'), "not Prometheus text"),
    "open-quote": (page('vllm:num_requests_running{model_instance_id="1} 2'), "not Prometheus text"),
    "no-quotes": (page("vllm:num_requests_running{model_instance_id=1} 2"), "not Prometheus text"),
    "cut-in-the-middle": (page(f"{RUNNING} 1", "vllm:num_requests_waiting{model_ins"), "not Prometheus text"),
    "shorter-than-said": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 900\r\nConnection: close\r\n\r\n# x\n",
        "truncated",
    ),
    "redirect": (http("", status="302 Found", kind="text/plain", more="Location: /login\r\n"), "302"),
    "error": (http("oops", status="500 Oops", kind="text/plain"), "500"),
    "a-part": (http(f"{RUNNING} 2\n", status="206 Partial Content", kind="text/plain"), "206"),
    "nothing": (b"HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n", "204"),
    "utf-16": (http(f"{RUNNING} 2\n".encode("utf-16"), kind="text/plain; charset=utf-16"), "not text"),
    "label-twice": (page('vllm:num_requests_running{model_instance_id="1",model_instance_id="2"} 4'), "not Prometheus text"),
    "underscore-in-a-number": (page(f"{RUNNING} 1_000"), "not Prometheus text"),
    "old-macintosh": (http(f"{RUNNING} 2\r{WAITING} 1\r", kind="text/plain"), "not Prometheus text"),
    "empty-answer": (b"", "truncated"),
    "not-http": (b"220 smtp ready\r\nConnection: close\r\n\r\n", "truncated"),
    "garbage-chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n# Connection: close\r\n", "truncated"),
}


@pytest.mark.parametrize("name", UNREADABLE, ids=str)
def test_a_page_that_cannot_be_read_is_an_error_with_its_reason(name: str) -> None:
    answer, word = UNREADABLE[name]
    sample = sampled(answer)
    assert (sample.status, sample.in_flight) == ("METRIC_ERROR", None)
    assert word in sample.why


@pytest.mark.parametrize("text", ["", "\n\n\n", "# HELP a b\n# TYPE a gauge\n", "up 1\n", "vllm:num_requests_runnings 1\n"], ids=str)
def test_a_page_without_a_known_name_is_no_metric(text: str) -> None:
    assert sampled(http(text, kind="text/plain")).status == "NO_METRIC"


def flood(piece: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(50):
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


@pytest.mark.parametrize("piece", [f"{RUNNING} 1\n".encode() * 20_000, b"x" * (1 << 20)], ids=["lines", "one-line"])
def test_fifty_megabytes_are_given_up_early_in_time_and_memory(piece: bytes) -> None:
    tracemalloc.start()
    began = time.monotonic()
    sample = sampled(lambda: flood(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (sample.status, "too_large" in sample.why or "timeout" in sample.why) == ("METRIC_ERROR", True)
    assert time.monotonic() - began < 5
    assert peak < 64 << 20


def test_a_megabyte_that_nobody_asked_for_is_not_parsed() -> None:
    other = "".join(f'other_metric{{n="{n}"}} {n}\n' for n in range(60_000))
    began = time.process_time()
    sample = sampled(http(other + f"{RUNNING} 3\n" + other, kind="text/plain"))
    assert sample.instances["i-1"].running == 3
    assert time.process_time() - began < 1.5


def test_one_byte_at_a_time_ends_after_two_seconds() -> None:
    def drip() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9999\r\n\r\n"
        for _ in range(60):
            time.sleep(0.1)
            yield b"#"

    began = time.monotonic()
    sample = sampled(drip)
    assert time.monotonic() - began < 4
    assert (sample.status, "timeout" in sample.why) == ("METRIC_ERROR", True)
