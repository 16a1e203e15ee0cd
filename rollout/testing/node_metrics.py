"""A worker's metrics pages: unified names (`/metrics`) and engine names (`/metrics/raw`), contract 9.1.

Only vLLM and SGLang deployments are scraped, a Custom one is left out of both pages, as the real worker does.
"""

from __future__ import annotations

from typing import Any

from rollout.testing.engine_metrics import Family, Labels, Sample, render
from rollout.testing.node import Running, SimNode

SCRAPED = ("vLLM", "SGLang")
UNIFIED = {
    "vllm:num_requests_running": "gpustack:num_requests_running",
    "vllm:num_requests_waiting": "gpustack:num_requests_waiting",
    "vllm:kv_cache_usage_perc": "gpustack:kv_cache_usage_ratio",
    "vllm:gpu_cache_usage_perc": "gpustack:kv_cache_usage_ratio",
    "vllm:prompt_tokens": "gpustack:prompt_tokens",
    "vllm:generation_tokens": "gpustack:generation_tokens",
    "vllm:num_preemptions": "gpustack:request_preemptions",
    "vllm:request_success": "gpustack:request_success",
    "vllm:time_to_first_token_seconds": "gpustack:time_to_first_token_seconds",
    "vllm:request_time_per_output_token_seconds": "gpustack:time_per_output_token_seconds",
    "vllm:time_per_output_token_seconds": "gpustack:time_per_output_token_seconds",
    "vllm:inter_token_latency_seconds": "gpustack:inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds": "gpustack:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds": "gpustack:request_queue_time_seconds",
}


def unified_page(node: SimNode) -> str:
    """`GET /metrics` of the worker: engines under GPUStack's names, then the node's own gauges."""
    return render(_engine_families(node, UNIFIED) + _node_families(node))


def raw_page(node: SimNode) -> str:
    """`GET /metrics/raw` of the worker: the engines' own names with GPUStack's labels added."""
    return render(_engine_families(node, None))


def _engine_families(node: SimNode, names: dict[str, str] | None) -> list[Family]:
    merged: dict[str, Family] = {}
    for run in node.instances.values():
        if run.model.get("backend") not in SCRAPED or not run.engine.ready or run.engine.stopped:
            continue
        labels = _labels(node, run)
        for family in run.engine.families():
            name = family.name if names is None else names.get(family.name)
            if name is None:
                continue
            samples: list[Sample] = [(suffix, {**own, **labels}, value) for suffix, own, value in family.samples]
            merged.setdefault(name, Family(name, family.kind, [])).samples.extend(samples)
    return list(merged.values())


def _labels(node: SimNode, run: Running) -> Labels:
    return {
        "worker_id": str(node.worker_id),
        "worker_name": node.name,
        "model_id": str(run.model.get("id", "")),
        "model_name": str(run.model["name"]),
        "model_instance_id": str(run.instance["id"]),
        "model_instance_name": str(run.instance["name"]),
        "runtime": str(run.model.get("backend")),
        "role": "",
    }


def _node_families(node: SimNode) -> list[Family]:
    status: dict[str, Any] = node.status()["status"]
    labels: Labels = {"worker_id": str(node.worker_id), "worker_name": node.name, "instance": node.ip}
    gpu = {**labels, "gpu_index": "0", "gpu_name": "NVIDIA GB10", "gpu_chip_index": "0"}
    disk = {**labels, "mountpoint": "/"}
    memory, space = status["memory"], status["filesystem"][0]
    gauges: list[tuple[str, Labels, float]] = [
        ("uptime_seconds", labels, status["uptime"]["uptime"]),
        ("cpu_cores", labels, status["cpu"]["total"]),
        ("cpu_utilization_rate", labels, status["cpu"]["utilization_rate"]),
        ("memory_total_bytes", labels, memory["total"]),
        ("memory_used_bytes", labels, memory["used"]),
        ("memory_utilization_rate", labels, memory["utilization_rate"]),
        ("filesystem_total_bytes", disk, space["total"]),
        ("filesystem_used_bytes", disk, space["used"]),
        ("filesystem_utilization_rate", disk, 100 * space["used"] / space["total"]),
        ("gram_total_bytes", gpu, memory["total"]),
        ("gram_used_bytes", gpu, memory["used"]),
        ("gpu_utilization_rate", gpu, 3.0),
        ("gpu_temperature_celsius", gpu, 41.0),
        ("gpu_power_used_watts", gpu, 12.0),
    ]
    return [Family(f"gpustack:worker_node_{name}", "gauge", [("", own, float(value))]) for name, own, value in gauges]
