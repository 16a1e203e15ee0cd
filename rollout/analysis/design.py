"""What follows from a config alone: tests, weights, restarts; and how their evidence combines.

Formula (3): the rollback evidence is a weighted average over metrics and over restarts. The promotion evidence is one process a claim;
every claim must be proved (intersection-union). Reads banks, never changes them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rollout.analysis.config import LATENCIES, JudgeConfig
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import Bank, Noise, log_mean
from rollout.analysis.reference import reference_of
from rollout.analysis.state import JudgeState

BALANCED = (0.8, 1.25)  # load ratios between which latency may both fail and pass
SHARE_ALARM = 1000.0  # to 1 over the whole rollout


@dataclass(frozen=True, eq=False)
class Design:
    """A config worked out once: its latency tests (TTFT first) and the weight of each metric."""

    config: JudgeConfig
    latency: tuple[LatencyTest, ...]
    weights: dict[str, float]

    @property
    def omega(self) -> float:
        """Weight of each restart."""
        return 1.0 / self.config.rungs

    @property
    def primary(self) -> LatencyTest | None:
        """The latency whose effect is reported and whose tail is claimed."""
        return self.latency[0] if self.latency else None

    @property
    def live_latency(self) -> bool:
        """Whether live histograms can prove anything here; where they cannot, probes have to."""
        return self.config.live and self.config.mode != "sparse" and any(test.body for test in self.latency)


@lru_cache(maxsize=512)
def design_of(config: JudgeConfig) -> Design:
    """The design of a config; kept, because every window asks for it."""
    tests: list[LatencyTest] = []
    for metric in LATENCIES:
        histogram = config.reference(metric)
        if histogram is not None:
            tail = None if tests else config.tail_odds
            low, high = config.tolerated(metric), config.unacceptable(metric)
            tests.append(LatencyTest(metric, reference_of(histogram), low, high, tail, Noise(*config.noise(metric))))
    return Design(config, tuple(tests), config.weights())


def log_fail(design: Design, state: JudgeState) -> tuple[float, dict[str, float]]:
    """log E_FAIL and its weighted part by metric. A restart not yet opened counts as 1.

    With replica noise each restart is a martingale only in the history since it began, so the strongest one is taken instead of the sum
    (a union over restarts; never more than the sum).
    """
    parts: dict[str, list[float]] = {metric: [] for metric in design.weights}
    for start in range(len(state.starts)):
        for metric in parts:
            parts[metric].append(math.log(design.omega * design.weights[metric]) + _log_metric(design, state.banks, metric, start))
    waiting = 1.0 - design.omega * len(state.starts)
    if design.config.noisy:
        totals = [float(np.logaddexp.reduce([parts[m][s] for m in parts])) for s in range(len(state.starts))]
        total = max(totals, default=0.0)
        return total, {m: max(logs, default=-math.inf) for m, logs in parts.items()}
    everything = [log for logs in parts.values() for log in logs] + ([math.log(waiting)] if waiting > 1e-9 else [])
    return float(np.logaddexp.reduce(everything)), {m: float(np.logaddexp.reduce(logs or [-math.inf])) for m, logs in parts.items()}


def log_pass(design: Design, state: JudgeState) -> dict[str, float]:
    """log E of every claim a promotion needs in this evidence mode. Empty = nothing could ever be proved."""
    live: dict[str, float] = {}
    for test in design.latency:
        live.update(test.log_pass(state.banks[f"pass/{test.metric}"]))
    probes = float(state.banks["pass/probes"].log_mixture()[0])
    errors = {"errors": float(state.banks["pass/errors"].log_mixture()[0])}
    if design.config.quality:
        errors["quality"] = float(state.banks["pass/quality"].log_mixture()[0])
    if not design.live_latency:
        return {"probes": probes, **errors}
    if design.config.mode == "thin":
        return {"live or probes": log_mean(np.array([min(live.values()), probes])), **errors}
    return {**live, **errors}


def share_log_odds(config: JudgeConfig, state: JudgeState) -> float:
    """log evidence that the served share is not the configured one on this rung, its weight among the rungs included."""
    return float(state.banks["share"].log_mixture()[0]) - math.log(config.rungs)


def _log_metric(design: Design, banks: Mapping[str, Bank], metric: str, start: int) -> float:
    for test in design.latency:
        if test.metric == metric:
            return test.log_fail(banks[f"fail/{metric}/edges/{start}"], banks[f"fail/{metric}/ordinal/{start}"])
    log = float(banks[f"fail/{metric}/{start}"].log_mixture()[0])
    if metric == "probes" and design.config.probe_slo:
        return log_mean(np.array([log, float(banks[f"fail/probes/slo/{start}"].log_mixture()[0])]))
    return log
