"""The metrics page of a simulated engine: vLLM's names, types and bucket edges, old and new spellings by version.

Source of names and edges: vLLM's `v1/metrics/loggers.py`. Renders text; keeps numbers, decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
REQUEST_EDGES = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
REASONS = ("stop", "length", "abort", "error")

Labels = dict[str, str]
Sample = tuple[str, Labels, float]  # suffix of the family name, labels, value


@dataclass
class Family:
    """One metric family: name without `_total`, Prometheus type, samples."""

    name: str
    kind: str
    samples: list[Sample]


class Histogram:
    """Cumulative histogram with fixed edges."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    def samples(self, labels: Labels) -> Iterator[Sample]:
        running = 0
        for edge, count in zip((*map(repr, self.edges), "+Inf"), self.counts, strict=True):
            running += count
            yield "_bucket", {**labels, "le": edge}, float(running)
        yield "_count", labels, float(running)
        yield "_sum", labels, self.total


@dataclass
class EngineStats:
    """Everything one engine counts since its start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_EDGES))
    itl: Histogram = field(default_factory=lambda: Histogram(TOKEN_EDGES))
    tpot: Histogram = field(default_factory=lambda: Histogram(TOKEN_EDGES))
    e2e: Histogram = field(default_factory=lambda: Histogram(REQUEST_EDGES))
    queue: Histogram = field(default_factory=lambda: Histogram(REQUEST_EDGES))


def vllm_families(
    stats: EngineStats, labels: Labels, *, running: int, waiting: int, kv_usage: float, started_at: float, version: str
) -> list[Family]:
    """vLLM's page as families. `started_at` is unix seconds; `version` decides between old and new names."""
    new = _parts(version) >= (0, 11)
    kv_name = "vllm:kv_cache_usage_perc" if _parts(version) >= (0, 9, 2) else "vllm:gpu_cache_usage_perc"
    finished: list[Sample] = [("_total", {**labels, "finished_reason": reason}, float(n)) for reason, n in stats.finished.items()]
    families = [
        Family("vllm:num_requests_running", "gauge", [("", labels, float(running))]),
        Family("vllm:num_requests_waiting", "gauge", [("", labels, float(waiting))]),
        Family(kv_name, "gauge", [("", labels, kv_usage)]),
        Family("vllm:prompt_tokens", "counter", [("_total", labels, float(stats.prompt_tokens))]),
        Family("vllm:generation_tokens", "counter", [("_total", labels, float(stats.generation_tokens))]),
        Family("vllm:num_preemptions", "counter", [("_total", labels, 0.0)]),
        Family("vllm:request_success", "counter", finished),
        Family("vllm:time_to_first_token_seconds", "histogram", list(stats.ttft.samples(labels))),
        Family(f"vllm:{'inter_token_latency' if new else 'time_per_output_token'}_seconds", "histogram", list(stats.itl.samples(labels))),
        Family("vllm:e2e_request_latency_seconds", "histogram", list(stats.e2e.samples(labels))),
        Family("vllm:request_queue_time_seconds", "histogram", list(stats.queue.samples(labels))),
        Family("process_start_time_seconds", "gauge", [("", {}, started_at)]),
    ]
    if new:
        families.append(Family("vllm:request_time_per_output_token_seconds", "histogram", list(stats.tpot.samples(labels))))
    return families


def render(families: list[Family]) -> str:
    """Prometheus text format 0.0.4; families of one name must already be merged."""
    lines: list[str] = []
    for family in families:
        page_name = family.name + "_total" if family.kind == "counter" else family.name
        lines.append(f"# HELP {page_name} {family.name.partition(':')[2] or family.name}")
        lines.append(f"# TYPE {page_name} {family.kind}")
        for suffix, labels, value in family.samples:
            inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"{family.name}{suffix}{{{inside}}} {value}" if inside else f"{family.name}{suffix} {value}")
    return "\n".join(lines) + "\n"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
