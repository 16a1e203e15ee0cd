"""Evidence into one verdict and one sentence. Reads the state, changes nothing, decides nothing about the rollout.

`continue`: go on watching. `inconclusive`: watching alone will not settle it (no traffic, a metric that is not exposed, a served share
in doubt). `error`: the measurements could not be read. Neither of these promotes or rolls back.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rollout.analysis import words
from rollout.analysis.breaker import breaker_alpha
from rollout.analysis.config import JudgeConfig
from rollout.analysis.design import SHARE_ALARM, Design, design_of, log_fail, log_pass, share_log_odds
from rollout.analysis.forecast import forecast
from rollout.analysis.latency import log_odds_interval
from rollout.analysis.state import JudgeState

Kind = Literal["pass", "fail", "continue", "inconclusive", "error"]
CONFIDENCE = 0.95
_BLIND_AFTER = 3  # windows in a row without readable metrics
_IDLE_AFTER = 10  # windows in a row without a request or a probe
_TAIL_FROM = -1.7  # log odds of exceeding an edge: fewer than about one request in seven do in stable's history
_LN10 = math.log(10.0)


@dataclass(frozen=True)
class Verdict:
    """`sentence` names the evidence and what is not known. `details`: the same and more as plain JSON values."""

    kind: Kind
    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ShareAlarm:
    """The served share against the configured one on this rung. `log10_odds`: evidence that they differ; alarm at 1000 to 1."""

    alarm: bool
    log10_odds: float
    canary: int
    total: int
    expected: float
    suspects: tuple[str, ...]


def verdict(config: JudgeConfig, state: JudgeState) -> Verdict:
    """The verdict after the last window. FAIL comes before everything, PASS only after everything that speaks against judging."""
    design = design_of(config)
    details = _details(design, state)
    kind, sentence = _decide(design, state, details)
    return Verdict(kind, sentence, details)


def share_alarm(config: JudgeConfig, state: JudgeState) -> ShareAlarm:
    """The share test of this rung; while it alarms nothing is judged but the breaker."""
    log = share_log_odds(config, state)
    tally = state.tally
    alarm = log >= math.log(SHARE_ALARM)
    served = tally.share_canary / tally.share_total if tally.share_total else 0.0
    suspects = words.share_suspects(served, tally.share_expected) if alarm else ()
    return ShareAlarm(alarm, log / _LN10, tally.share_canary, tally.share_total, tally.share_expected, suspects)


def _decide(design: Design, state: JudgeState, details: dict[str, Any]) -> tuple[Kind, str]:
    config, tally = design.config, state.tally
    if state.breaker.tripped:
        return "fail", f"FAIL: circuit breaker: {state.breaker.tripped}"
    if state.crossing:
        return "fail", words.failed(design, state, state.crossing, details["effect"])
    share = share_alarm(config, state)
    if share.alarm:
        return "inconclusive", words.share_in_doubt(share.canary, share.total, share.expected, share.suspects)
    statuses = {"canary": tally.canary_status, "stable": tally.stable_status}
    if config.live and tally.blind >= _BLIND_AFTER:
        for status in ("METRIC_ERROR", "NO_METRIC"):
            arms = [arm for arm, seen in statuses.items() if seen == status]
            if arms:
                return ("error" if status == "METRIC_ERROR" else "inconclusive"), words.blind(status, arms, tally.blind)
    claims = log_pass(design, state)
    settled = not tally.live_windows or tally.live_seconds >= config.max_request_seconds
    if claims and settled and min(claims.values()) >= -math.log(config.beta):
        return "pass", words.passed(design, state, details["effect"])
    if config.live and tally.idle >= _IDLE_AFTER and "NO_TRAFFIC" in statuses.values():
        return "inconclusive", words.blind("NO_TRAFFIC", [arm for arm, seen in statuses.items() if seen == "NO_TRAFFIC"], tally.idle)
    return "continue", words.going_on(design, state, claims, log_fail(design, state)[0], details["forecast"])


def _details(design: Design, state: JudgeState) -> dict[str, Any]:
    config, tally = design.config, state.tally
    against, parts = log_fail(design, state)
    share = share_alarm(config, state)
    return {
        "mode": config.mode,
        "bound": config.bound(tally.pairs > 0),
        "guaranteed": config.claimed(tally.pairs > 0),
        "noise": {"v": config.v, "phi": config.phi},
        "evidence_against": {
            "log10": against / _LN10,
            "needed_log10": -math.log10(config.alpha),
            "by_metric": {metric: log / _LN10 for metric, log in parts.items() if math.isfinite(log)},
            "culprits": list(state.crossing.culprits) if state.crossing else [],
            "crossed_at_window": state.crossing.window if state.crossing else None,
        },
        "evidence_for": {
            "log10_by_claim": {claim: log / _LN10 for claim, log in log_pass(design, state).items()},
            "needed_log10": -math.log10(config.beta),
        },
        "effect": _effect(design, state),
        "forecast": forecast(design, state),
        "live_requests": {"canary": tally.live_canary, "stable": tally.live_stable},
        "live_errors": {"canary": tally.errors_canary, "stable": tally.errors_stable},
        "probes": {"pairs": tally.pairs, "canary_errors": tally.pair_errors_canary, "stable_errors": tally.pair_errors_stable},
        "restarts": {"canary": tally.restarts_canary, "stable": tally.restarts_stable},
        "windows": {"seen": tally.windows, "dropped": tally.dropped, "compared": tally.live_windows, "balanced": tally.balanced_windows},
        "status": {"canary": tally.canary_status, "stable": tally.stable_status},
        "share": {
            "alarm": share.alarm,
            "log10": share.log10_odds,
            "canary": share.canary,
            "total": share.total,
            "expected": share.expected,
        },
        "breaker": {
            "tripped": state.breaker.tripped,
            "alpha": breaker_alpha(
                config.healthy_error_rate, config.planned_requests, config.healthy_restarts_per_hour, config.planned_seconds
            ),
        },
        "load_ratio": tally.load_ratio,
        "assumptions": list(words.ASSUMPTIONS),
    }


def _effect(design: Design, state: JudgeState) -> list[dict[str, Any]]:
    """Anytime interval at each headline edge: odds ratio, and its translation into a slow-down. None = no bound on that side yet."""
    test = design.primary
    if test is None:
        return []
    rows = []
    for row, edge in enumerate(test.headlines):
        level = 1.0 - (1.0 - CONFIDENCE) / len(test.headlines)
        bounds = log_odds_interval(state.banks["effect/low"], state.banks["effect/high"], row, level)
        slowdowns = [None if b is None else test.reference.slowdown(edge, b) for b in bounds]
        rows.append(
            {
                "metric": test.metric,
                "edge": edge,
                "part": "tail" if test.reference.logit(edge) < _TAIL_FROM else "body",
                "confidence": CONFIDENCE,
                "odds": [None if b is None else math.exp(b) for b in bounds],
                "slowdown": slowdowns,
                "times_as_many": [None if b is None else _risk_ratio(test.reference.logit(edge), b) for b in bounds],
            }
        )
    return rows


def _risk_ratio(logit: float, log_odds: float) -> float:
    """How many times as many requests exceed an edge whose exceedance has this logit, at this log odds ratio."""
    return (1.0 + math.exp(-logit)) / (1.0 + math.exp(-logit - log_odds))
