"""What each engine calls the things we read, old names and new ones, and how one engine's series become a sample. Pure.

Names: vLLM `v1/metrics/loggers.py`; SGLang production metrics; MindIE service metrics; GPUStack `GET /v2/metrics/default-config`
(its worker's `/metrics` renames to `gpustack:*`, `/metrics/raw` keeps the engine's). Counters are listed without `_total`: pages
have them with and without. The first name with a series wins, so that a page holding both spellings is not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollout.domain.world import InstanceSample
from rollout.sources.prometheus_text import Series, histogram, number, total

RUNNING = ("gpustack:num_requests_running", "vllm:num_requests_running", "sglang:num_running_reqs", "num_requests_running")
WAITING = ("gpustack:num_requests_waiting", "vllm:num_requests_waiting", "sglang:num_queue_reqs", "num_requests_waiting")
FINISHED = ("gpustack:request_success", "vllm:request_success", "request_success")
"""by label `finished_reason` where the engine says it: stop, length, abort, error"""
COUNTED = ("sglang:num_requests",)
"""all finished requests, with no reason"""
FAILED = ("request_failed",)
"""MindIE counts failures beside the successes"""
TOKENS = ("gpustack:generation_tokens", "vllm:generation_tokens", "sglang:generation_tokens", "generation_tokens")
TTFT = (
    "gpustack:time_to_first_token_seconds",
    "vllm:time_to_first_token_seconds",
    "sglang:time_to_first_token_seconds",
    "time_to_first_token_seconds",
)
E2E = (
    "gpustack:e2e_request_latency_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_latency_seconds",
    "sglang:e2e_request_latency_seconds",
    "e2e_request_latency_seconds",
)
TPOT = ("vllm:request_time_per_output_token_seconds",)
"""one count a request; the unified `gpustack:time_per_output_token_seconds` may count tokens, whose noise is not that of requests"""
STARTED = ("process_start_time_seconds",)

_COUNTERS = (*FINISHED, *COUNTED, *FAILED, *TOKENS)
_HISTOGRAMS = (*TTFT, *E2E, *TPOT)
WANTED = frozenset(
    [*RUNNING, *WAITING, *STARTED]
    + [name + end for name in _COUNTERS for end in ("", "_total")]
    + [name + end for name in _HISTOGRAMS for end in ("_bucket", "_count")]
)
"""every series name that is read from a page"""

Named = Mapping[str, list[Series]]


def sample_of(series: Iterable[Series]) -> InstanceSample | None:
    """The sample of one engine from all its series; None when no known name is among them. A value that is unclear is None."""
    named: dict[str, list[Series]] = {}
    for one in series:
        named.setdefault(one.name, []).append(one)
    if not named.keys() - set(STARTED):
        return None
    ttft, e2e = _histogram(named, TTFT), _histogram(named, E2E)
    requests, errors = _requests(named, e2e)
    starts = [number(one.value) for one in _gauge(named, STARTED)]
    known = [start for start in starts if start is not None]
    return InstanceSample(
        running=total(_gauge(named, RUNNING)),
        waiting=total(_gauge(named, WAITING)),
        requests=requests,
        errors=errors,
        tokens=total(_counter(named, TOKENS)),
        ttft=ttft,
        e2e=e2e,
        tpot=_histogram(named, TPOT),
        started=max(known, default=None),  # of several processes the youngest: one restart is a restart
    )


def _requests(named: Named, e2e: Mapping[float, float] | None) -> tuple[float | None, float | None]:
    """Finished requests of any kind, and those that finished with an error; the latter None where the engine does not tell."""
    finished, failed = _counter(named, FINISHED), _counter(named, FAILED)
    if not finished:
        counted = _counter(named, COUNTED)
        everything = total(counted) if counted else (e2e[max(e2e)] if e2e else None)
        return everything, None
    if failed:
        done, errors = total(finished), total(failed)
        return (None if done is None or errors is None else done + errors), errors
    return total(finished), total(one for one in finished if one.labels.get("finished_reason") == "error")


def _gauge(named: Named, names: Iterable[str]) -> list[Series]:
    return next((named[name] for name in names if name in named), [])


def _counter(named: Named, names: Iterable[str]) -> list[Series]:
    return _gauge(named, (name + end for name in names for end in ("_total", "")))


def _histogram(named: Named, names: Iterable[str]) -> dict[float, float] | None:
    for name in names:
        if f"{name}_bucket" in named:
            return histogram(named[f"{name}_bucket"], named.get(f"{name}_count", []))
    return None
