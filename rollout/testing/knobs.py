"""Knobs of a simulated engine: how fast it is, and how it is sick. Plain data; acts on nothing.

Two ways in besides code: the deployment's environment (`SIM_TTFT_FACTOR=2`) and an image table (`node.image_knobs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
PREFIX = "SIM_"


@dataclass
class Knobs:
    """One engine's behaviour. Times in seconds, memory in bytes, rates as shares 0..1."""

    ttft_base: float = 0.05  # time to first token with one request in flight
    tpot: float = 0.005  # time per output token with one request in flight
    prefill_per_token: float = 0.0  # added to the first token for each prompt token
    tokens: int = 8  # output tokens when the request names no max_tokens
    slots: int = 8  # requests that run at once; more wait in the queue
    load_factor: float = 0.0  # both times grow by 1 + load_factor * (running - 1)
    jitter: float = 0.0  # sigma of the lognormal factor on the first token
    ttft_factor: float = 1.0  # a slow canary: multiplies the first token
    tpot_factor: float = 1.0  # a slow canary: multiplies each further token
    tail_share: float = 0.0  # share of requests whose first token takes `tail_factor` times as long
    tail_factor: float = 1.0
    seed: int | None = None  # of all its randomness; absent: its name
    fail_rate: float = 0.0  # share answered with HTTP 500
    truncate_rate: float = 0.0  # share that ends without finish_reason, usage and [DONE]
    abort_rate: float = 0.0  # share that ends with finish_reason "abort"
    wrong_answers: bool = False  # another text for every prompt
    wrong_rate: float = 0.0  # share of prompts that get another text: the same ones each time
    empty_answers: bool = False  # finishes properly, says nothing
    leak_bytes_per_request: int = 0
    crash_after_requests: int | None = None  # the process dies when request N arrives
    start_delay: float = 0.0  # load time, before the engine is ready
    fail_start: bool = False  # never becomes ready
    bytes_per_token: int = 131072  # KV cache of one token
    kv_bytes: int = 8 * GIB  # KV cache capacity, for the usage gauge
    weights_bytes: int = 5 * GIB
    stuck_gauges: bool = False  # running/waiting gauges never come down again
    bare_metrics: bool = False  # its metrics page has none of the names that are known
    engine_version: str = "0.21.0"  # decides metric names

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None) -> Knobs:
        """Knobs named `SIM_<FIELD>` in a deployment's environment; unknown names raise ValueError."""
        return cls().updated(env_knobs(env or {}))

    def updated(self, changes: Mapping[str, Any]) -> Knobs:
        """A copy with `changes` applied; strings are read as the field's type. Unknown names raise ValueError."""
        unknown = sorted(set(changes) - set(_FIELDS))
        if unknown:
            raise ValueError(f"unknown knobs: {', '.join(unknown)}")
        return dataclasses.replace(self, **{name: _coerce(name, value) for name, value in changes.items()})


def env_knobs(env: Mapping[str, str]) -> dict[str, str]:
    """The `SIM_*` part of an environment, with field names as keys."""
    return {key.removeprefix(PREFIX).lower(): value for key, value in env.items() if key.startswith(PREFIX)}


def _coerce(name: str, value: Any) -> Any:
    default = _FIELDS[name]
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return value.strip().lower() in ("1", "true", "yes", "on")
    if default is None:
        return int(value) if value else None
    return type(default)(value)


_FIELDS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Knobs)}
