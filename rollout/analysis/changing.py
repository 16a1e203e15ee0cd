"""A judge's config with single values put otherwise: what would it have said with other margins? For judging again, never for a live judge
(assumption A4: nothing is changed once evidence was seen).
"""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, get_args

from rollout.analysis.config import LATENCIES, METRICS, JudgeConfig, Margin, MetricNoise, Mode, Quality

_NUMBERS = [
    "alpha",
    "beta",
    "tolerated_latency",
    "unacceptable_latency",
    "tail_odds",
    "tolerated_error_odds",
    "unacceptable_errors",
    "v",
    "phi",
    "probe_slo",
    "max_request_seconds",
    "healthy_error_rate",
    "healthy_restarts_per_hour",
    "planned_seconds",
]
_COUNTS = ("rungs", "memory_floor", "planned_requests")
_WORDS = {"mode": get_args(Mode), "quality": get_args(Quality)}
_FLAGS = {"live"}
_OPTIONAL = {"probe_slo", "memory_floor", "quality"}
_MARGINS = ("tolerated", "unacceptable")
_MEMORY = ("memory.sd", "memory.phi")


def settable() -> tuple[str, ...]:
    """Every key that `changed` knows."""
    margins = [f"{metric}.{side}" for metric in METRICS for side in _MARGINS if (metric, side) != ("memory", "unacceptable")]
    noises = [f"{metric}.{part}" for metric in LATENCIES for part in ("v", "phi")]
    return (*_NUMBERS, *_COUNTS, *_WORDS, *sorted(_FLAGS), *margins, *noises, *_MEMORY)


def changed(config: JudgeConfig, values: Mapping[str, str]) -> JudgeConfig:
    """`config` with `values` in it, as a person writes them: `{"ttft.tolerated": "0.1", "alpha": "0.05"}`. ValueError names the key."""
    plain: dict[str, Any] = {}
    margins = {m.metric: {"tolerated": m.tolerated, "unacceptable": m.unacceptable} for m in config.margins}
    noises = {n.metric: {"v": n.v, "phi": n.phi} for n in config.noises}
    memory = dict(zip(_MEMORY, config.memory_noise, strict=True)) if config.memory_noise else {}
    for key, text in values.items():
        value = _value(key, text)
        metric, _, part = key.partition(".")
        if key in _MEMORY:
            memory[key] = value
        elif not part:
            plain[key] = value
        elif part in _MARGINS:
            margins.setdefault(metric, {})[part] = value
        else:
            v, phi = config.noise(metric)
            noises.setdefault(metric, {"v": v, "phi": phi})[part] = value
    for name in ("v", "phi"):  # the value for all metrics is meant for all of them, unless one of them is named too
        if name in plain:
            for metric, parts in noises.items():
                parts[name] = plain[name] if f"{metric}.{name}" not in values else parts[name]
    for name, side in (("tolerated_latency", "tolerated"), ("unacceptable_latency", "unacceptable")):
        if name in plain:
            for metric in (*LATENCIES, "probes"):
                if metric in margins and f"{metric}.{side}" not in values:
                    margins[metric][side] = None
    if memory:
        plain["memory_noise"] = (memory.get("memory.sd", 0.0), memory.get("memory.phi", 0.0))
    plain["margins"] = tuple(Margin(metric, **sides) for metric, sides in margins.items())
    plain["noises"] = tuple(MetricNoise(metric, **parts) for metric, parts in noises.items())
    return replace(config, **plain)


def _value(key: str, text: str) -> Any:
    """The value of a key, of the key's own kind."""
    if key not in settable():
        close = get_close_matches(key, settable(), n=1)
        meant = f"; did you mean `{close[0]}`?" if close else ""
        raise ValueError(f"there is no `{key}`{meant}")
    word = text.strip()
    if key in _OPTIONAL and word.lower() == "none":
        return None
    if key in _FLAGS:
        if word.lower() not in ("true", "false"):
            raise ValueError(f"`{key}` is true or false, not {word!r}")
        return word.lower() == "true"
    if key in _WORDS:
        if word not in _WORDS[key]:
            raise ValueError(f"`{key}` is one of {', '.join(_WORDS[key])}, not {word!r}")
        return word
    try:
        number = int(word) if key in _COUNTS else float(word)
    except ValueError:
        kind = "a whole number" if key in _COUNTS else "a number like 0.1 (shares, not percent)"
        raise ValueError(f"`{key}` is {kind}, not {word!r}") from None
    if number != number or abs(number) == float("inf"):
        raise ValueError(f"`{key}` is a finite number, not {word!r}")
    return number
