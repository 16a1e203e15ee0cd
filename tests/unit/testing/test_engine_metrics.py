"""The metrics page: parsed by a Prometheus parser, with vLLM's names of the version asked for."""

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rollout.testing.engine import Knobs, SimEngine
from rollout.testing.engine_metrics import TTFT_EDGES, Histogram
from rollout.testing.node import SimNode
from rollout.testing.node_metrics import raw_page, unified_page


def page(**knobs: Any) -> dict[str, Any]:
    """Metric families of an engine that has answered two requests."""

    async def main() -> str:
        sim = SimEngine("m-a-x1", "m-a", Knobs().updated({"ttft_base": 0.0, "tpot": 0.0, **knobs}))
        for _ in range(2):
            await sim.serve("/v1/completions", {"prompt": "x", "max_tokens": 4})
        return sim.metrics_text()

    return {family.name: family for family in text_string_to_metric_families(asyncio.run(main()))}


def test_counts_add_up() -> None:
    families = page()
    success = {s.labels["finished_reason"]: s.value for s in families["vllm:request_success"].samples}
    assert success == {"stop": 0, "length": 2, "abort": 0, "error": 0}
    assert families["vllm:generation_tokens"].samples[0].value == 8
    for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds"):
        assert [s.value for s in families[name].samples if s.name.endswith("_count")] == [2]
    assert [s.value for s in families["vllm:inter_token_latency_seconds"].samples if s.name.endswith("_count")] == [6]
    assert families["process_start_time_seconds"].samples[0].value > 1.7e9


@pytest.mark.parametrize(
    ("version", "there", "gone"),
    [
        ("0.21.0", ["vllm:inter_token_latency_seconds", "vllm:kv_cache_usage_perc"], ["vllm:time_per_output_token_seconds"]),
        ("0.10.2", ["vllm:time_per_output_token_seconds", "vllm:kv_cache_usage_perc"], ["vllm:inter_token_latency_seconds"]),
        ("0.8.5", ["vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc"], ["vllm:kv_cache_usage_perc"]),
    ],
)
def test_names_move_with_the_version(version: str, there: list[str], gone: list[str]) -> None:
    families = page(engine_version=version)
    assert set(there) <= set(families)
    assert not set(gone) & set(families)


def test_a_histogram_is_cumulative_and_an_edge_belongs_to_its_bucket() -> None:
    histogram = Histogram(TTFT_EDGES)
    for value in (0.001, 0.0011, 5000.0):
        histogram.observe(value)
    rows = list(histogram.samples({}))
    buckets = [value for suffix, _, value in rows if suffix == "_bucket"]
    assert buckets[0] == 1
    assert buckets[1] == 2
    assert buckets[-2:] == [2, 3]
    assert rows[-2][2] == 3
    assert rows[-1][2] == pytest.approx(5000.0021)


def test_stuck_gauges_stay_at_their_peak() -> None:
    async def main() -> SimEngine:
        sim = SimEngine("m-a-x1", "m-a", Knobs(stuck_gauges=True, slots=1, ttft_base=30))
        tasks = [asyncio.ensure_future(sim.serve("/v1/completions", {"prompt": "x"})) for _ in range(3)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sim

    sim = asyncio.run(main())
    assert sim.inflight == 0
    text = sim.metrics_text()
    assert 'vllm:num_requests_running{engine="0",model_name="m-a"} 1.0' in text
    assert 'vllm:num_requests_waiting{engine="0",model_name="m-a"} 2.0' in text


def test_a_node_shows_vllm_under_unified_names_and_custom_not_at_all() -> None:
    async def main() -> SimNode:
        node = SimNode("spark-01", listen=False, worker_id=7)
        await node.start_instance({"id": 1, "name": "m-a-x1"}, {"id": 3, "name": "m-a", "backend": "vLLM"})
        await node.start_instance({"id": 2, "name": "m-b-x1"}, {"id": 4, "name": "m-b", "backend": "vLLM"})
        await node.start_instance({"id": 3, "name": "m-c-x1"}, {"id": 5, "name": "m-c", "backend": "Custom"})
        return node

    node = asyncio.run(main())
    unified = {family.name: family for family in text_string_to_metric_families(unified_page(node))}
    running = unified["gpustack:num_requests_running"].samples
    assert {sample.labels["model_name"] for sample in running} == {"m-a", "m-b"}
    assert running[0].labels["worker_id"] == "7"
    assert running[0].labels["model_instance_name"] == "m-a-x1"
    assert unified["gpustack:worker_node_memory_total_bytes"].samples[0].value == 128 * 2**30
    raw = {family.name for family in text_string_to_metric_families(raw_page(node))}
    assert "vllm:num_requests_running" in raw
    assert not any(name.startswith("gpustack:") for name in raw)
