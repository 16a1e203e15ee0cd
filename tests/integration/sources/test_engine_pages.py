"""Metrics pages over HTTP: one scrape a worker, no page taken for a healthy one, and "none" kept apart from "unreadable"."""

import asyncio
import time

import pytest
from wire_server import WireServer, chunked, page

from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.sources.engine_metrics import EngineMetrics
from rollout.sources.prometheus_text import INF
from rollout.sources.refs import DeploymentRef, InstanceRef


def gauges(ident, running=1, waiting=0, requests=10, prefix="vllm:"):
    labels = f'model_instance_id="{ident}",model_instance_name="i-{ident}",engine="0"'
    return (
        f"{prefix}num_requests_running{{{labels}}} {running}\n{prefix}num_requests_waiting{{{labels}}} {waiting}\n"
        f'{prefix}request_success_total{{{labels},finished_reason="stop"}} {requests}\n'
        f'{prefix}request_success_total{{{labels},finished_reason="error"}} 0\n'
    )


def ref(*instances, backend="vLLM"):
    return DeploymentRef(backend, 1, instances)


def on(port, ident=1, own=None):
    return InstanceRef(ident, f"i-{ident}", "127.0.0.1", port, own)


def read(server, refs_of_port, times=1):
    """The last of `times` readings."""

    async def go():
        async with server, TimedClient(SystemClock()) as client:
            metrics = EngineMetrics(client, SystemClock())
            for _ in range(times):
                samples = await metrics.sample(refs_of_port(server.port))
            return samples

    return asyncio.run(go())


def one(reply, **more):
    return read(WireServer(reply), lambda port: {"m": ref(on(port), **more)})["m"]


def test_one_scrape_serves_every_deployment_of_a_worker():
    server = WireServer(page(gauges(1, running=2) + gauges(2, running=5) + gauges(3, running=9)))
    samples = read(server, lambda p: {"a": ref(on(p, 1)), "b": ref(on(p, 2), on(p, 3), backend="SGLang")})
    assert len(server.requests) == 1
    assert (samples["a"].status, samples["a"].in_flight) == ("OK", 2)
    assert {n: s.running for n, s in samples["b"].instances.items()} == {"i-2": 5, "i-3": 9}
    assert samples["b"].in_flight == 14


def test_without_the_raw_page_the_unified_one_is_read_and_asked_for_first_from_then_on():
    server = WireServer(page("no", status="404 Not Found"), page(gauges(1, running=3, prefix="gpustack:")))
    samples = read(server, lambda p: {"m": ref(on(p))}, times=3)
    assert samples["m"].in_flight == 3
    assert [r.split(b" ")[1] for r in server.requests] == [b"/metrics/raw", b"/metrics", b"/metrics", b"/metrics"]


def test_a_broken_raw_page_does_not_hide_the_unified_one():
    server = WireServer(page("oops", status="500 Internal Server Error"), page(gauges(1, running=3, prefix="gpustack:")))
    assert read(server, lambda p: {"m": ref(on(p))})["m"].in_flight == 3


def test_a_worker_that_does_not_answer_is_not_asked_twice():
    server = WireServer([None])
    assert read(server, lambda p: {"m": ref(on(p))})["m"].status == "METRIC_ERROR"
    assert len(server.requests) == 1


def test_a_custom_deployment_is_read_from_its_own_port_without_labels():
    server = WireServer(page("vllm:num_requests_running 1\nvllm:num_requests_waiting 1\nprocess_start_time_seconds 1700000000\n"))
    sample = read(server, lambda p: {"m": ref(on(None, own=p), backend="Custom")})["m"]
    assert server.requests[0].startswith(b"GET /metrics HTTP/1.1")
    assert (sample.in_flight, sample.instances["i-1"].started) == (2, 1700000000)


def test_instances_are_told_apart_by_id_and_by_name_only_without_one():
    by_name = gauges(7, running=4).replace('model_instance_id="7",', "")
    other = gauges(9, running=8).replace('model_instance_name="i-9"', 'model_instance_name="i-7"')
    assert one(page(by_name)).status == "NO_METRIC"
    sample = read(WireServer(page(by_name + other)), lambda p: {"m": ref(on(p, 7))})["m"]
    assert sample.instances["i-7"].running == 4


def test_a_silent_instance_beside_one_that_speaks_makes_in_flight_unknown():
    sample = read(WireServer(page(gauges(1, running=0))), lambda p: {"m": ref(on(p, 1), on(p, 2))})["m"]
    assert sample.status == "OK"
    assert sample.in_flight is None
    assert "i-2" in sample.why


@pytest.mark.parametrize("backend", ["vLLM", "Custom"])
def test_a_page_that_names_no_engine_is_no_metric(backend):
    reply = page("python_info 1\nprocess_start_time_seconds 17\n")
    sample = read(WireServer(reply), lambda p: {"m": ref(on(p, own=p), backend=backend)})["m"]
    assert (sample.status, sample.instances) == ("NO_METRIC", {})


def test_a_service_without_a_metrics_page_exposes_none_but_a_worker_without_one_cannot_be_read():
    reply = page("not found", status="404 Not Found")
    own = read(WireServer(reply), lambda p: {"m": ref(on(None, own=p), backend="Custom")})["m"]
    worker = one(reply)
    assert (own.status, worker.status) == ("NO_METRIC", "METRIC_ERROR")


def test_no_running_instance_is_no_metric():
    assert read(WireServer(page("")), lambda _p: {"m": ref()})["m"].status == "NO_METRIC"


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (page("broken", status="500 Internal Server Error"), "500"),
        (page("<html>login</html>", kind="text/html"), "text/html"),
        (page("{}", kind="application/json"), "application/json"),
        (page(b"vllm:num_requests_running{\xff\xfe} 1\n"), "not text"),
        (page(gauges(1) + "vllm:num_requests_running{model_inst"), "not Prometheus text"),
        (chunked(gauges(1).encode(), end=False), "truncated"),
        ([None], "truncated"),
    ],
    ids=["500", "html", "json", "binary", "cut-line", "cut-stream", "no-answer"],
)
def test_a_page_that_cannot_be_read_is_an_error_with_its_reason(reply, word):
    sample = one(reply)
    assert (sample.status, sample.in_flight) == ("METRIC_ERROR", None)
    assert word in sample.why


def test_one_unreadable_page_makes_the_deployment_unreadable_and_keeps_what_was_read():
    async def go():
        async with WireServer(page(gauges(1))) as good, WireServer([None]) as bad, TimedClient(SystemClock()) as client:
            return await EngineMetrics(client, SystemClock()).sample({"m": ref(on(good.port, 1), on(bad.port, 2))})

    sample = asyncio.run(go())["m"]
    assert sample.status == "METRIC_ERROR"
    assert list(sample.instances) == ["i-1"]


def test_an_address_that_is_not_known_is_an_error():
    sample = read(WireServer(page("")), lambda _p: {"m": ref(InstanceRef(1, "i-1", None, None, None))})["m"]
    assert (sample.status, "address" in sample.why) == ("METRIC_ERROR", True)


def test_a_hanging_page_costs_two_seconds_and_not_the_other_workers_sample():
    async def go():
        async with WireServer(page(gauges(1))) as good, WireServer([9.0]) as hung, TimedClient(SystemClock()) as client:
            began = time.monotonic()
            samples = await EngineMetrics(client, SystemClock()).sample({"a": ref(on(good.port)), "b": ref(on(hung.port, 2))})
            return samples, time.monotonic() - began

    samples, seconds = asyncio.run(go())
    assert (samples["a"].status, samples["b"].status) == ("OK", "METRIC_ERROR")
    assert "timeout" in samples["b"].why
    assert 1.9 < seconds < 3.5


def test_a_page_of_fifty_megabytes_is_refused_early():
    line = b'vllm:num_requests_running{model_instance_id="1"} 1\n' * 20_000
    pieces = [f"{len(line):x}\r\n".encode() + line + b"\r\n"] * 52
    reply = [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n"]
    sample = one(reply)
    assert (sample.status, "too_large" in sample.why) == ("METRIC_ERROR", True)


def test_a_histogram_without_its_last_bucket_and_a_nan_gauge_leave_only_those_values_unknown():
    labels = 'model_instance_id="1"'
    text = (
        f"vllm:num_requests_running{{{labels}}} NaN\nvllm:num_requests_waiting{{{labels}}} 2\n"
        f'vllm:time_to_first_token_seconds_bucket{{{labels},le="0.1"}} 3\n'
        f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="0.1"}} 3\nvllm:e2e_request_latency_seconds_count{{{labels}}} 5\n'
    )
    row = one(page(text)).instances["i-1"]
    assert (row.running, row.waiting, row.ttft, row.e2e) == (None, 2, None, {0.1: 3, INF: 5})
