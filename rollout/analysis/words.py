"""The judge's sentences. Numbers come in, words go out; nothing is weighed here."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rollout.analysis.design import BALANCED, Design
from rollout.analysis.state import Crossing, JudgeState

ASSUMPTIONS = (
    "A1: within a window requests of an arm are slow or fail independently, apart from the replica noise (v, phi) named with the verdict; "
    "paired probes have no such noise model, so with one replica a side no bound is claimed where they carry weight",
    "A2: requests are routed by chance, not by prompt, session or cache; the share test watches it",
    "A3: both arms are warm, on equal hardware and equally loaded; the load ratio decides what latency may conclude",
    "A4: edges, weights, margins, reference and noise were fixed before the rollout",
    "the margins hold on odds ratios at bucket edges; their translation into time follows the reference histogram",
)
_NAMES = {
    "ttft": "TTFT",
    "e2e": "end-to-end latency",
    "tpot": "time per output token",
    "errors": "errors",
    "quality": "answer quality",
    "memory": "memory",
    "probes": "probe TTFT",
}


def percent(part: float, signed: bool = False) -> str:
    """0.05 -> "5 %" or "+5 %"; at most three digits."""
    return f"{100 * part:{'+' if signed else ''}.3g} %"


def odds(log: float) -> str:
    """Evidence in words, from its natural logarithm."""
    if log < 0:
        return "less than 1 to 1"
    if log > math.log(1e6):
        return "more than a million to 1"
    value = math.exp(log)
    return f"{value:.0f} to 1" if value >= 10 else f"{value:.1f} to 1"


def failed(design: Design, state: JudgeState, crossing: Crossing, effect: list[dict[str, Any]]) -> str:
    """What was disproved, by how much, and what the canary does instead."""
    config, tally = design.config, state.tally
    claims = [_tolerated(design, metric) for metric in crossing.culprits] or ["no worse than tolerated in any metric (combined evidence)"]
    text = f"FAIL: {odds(crossing.log_evidence)} against '{' and '.join(claims)}' (roll back at {1 / config.alpha:.0f} to 1)"
    parts = _slower(design, state, crossing.culprits, effect)
    if "errors" in crossing.culprits or not crossing.culprits:
        own = tally.pairs + tally.quality_pairs
        canary, stable = tally.errors_canary + tally.pair_errors_canary, tally.errors_stable + tally.pair_errors_stable
        parts.append(f"{canary} of {tally.live_canary + own} canary and {stable} of {tally.live_stable + own} stable failed")
    told = [f"{text}: {parts[0]}", *parts[1:]] if parts else [text]
    return "; ".join([*told, _evidence(state)]) + _bound(design, state)


def _slower(design: Design, state: JudgeState, culprits: Sequence[str], effect: list[dict[str, Any]]) -> list[str]:
    """By how much, where an interval leaves no doubt that it is more: the tail where it is slower than the
    body can be, else the body; and without such an interval the edge at which it shows most.
    """
    said = []
    for test in design.latency:
        if culprits and test.metric not in culprits:
            continue
        sure = [row for row in effect if row["metric"] == test.metric and (row["odds"][0] or 0.0) > 1.0]
        if sure:
            said.append(interval(max(sure, key=_clearly)))
        elif culprits and test.edges and state.starts:
            seen = [state.banks[f"fail/{test.metric}/edges/{start}"].log_mixture() for start in range(len(state.starts))]
            strongest = max((float(log), edge) for logs in seen for log, edge in zip(logs, test.edges, strict=True))
            said.append(f"{_NAMES[test.metric]} differs most in the requests over {strongest[1]:g} s")
    return said


def _clearly(row: dict[str, Any]) -> float:
    """Orders a body's interval by its upper end and a tail's by its lower one: a tail comes first only where the two are apart."""
    low, high = row["slowdown"]
    return float((low or 0.0) if row["part"] == "tail" else math.inf if high is None else high)


def passed(design: Design, state: JudgeState, effect: list[dict[str, Any]]) -> str:
    """What the promotion rests on, how far the canary may be off, and what nobody knows."""
    config = design.config
    tails = design.live_latency and config.mode == "rich" and design.primary is not None and bool(design.primary.tail)
    unknown = f"errors rarer than {percent(config.unacceptable('errors'))} or " + ("tails rarer than 2 %" if tails else "about tails")
    known = [row for row in effect if row["part"] == "body" and None not in row["slowdown"]] if design.live_latency else []
    seen = f": {slowdown(known[0])}" if known else ""
    return f"PASS: {_evidence(state)}{seen}; nothing is known about {unknown}{_bound(design, state)}"


def going_on(design: Design, state: JudgeState, claims: dict[str, float], against: float, more: dict[str, float | None]) -> str:
    """How far the evidence is on both sides, and what is still needed."""
    config = design.config
    weakest = min(claims, key=lambda c: claims[c])
    text = (
        f"CONTINUE: {odds(claims[weakest])} for promotion (at {1 / config.beta:.0f} to 1; weakest: {_claim(weakest)}), "
        f"{odds(against)} against (roll back at {1 / config.alpha:.0f} to 1); {_evidence(state)}"
    )
    return f"{text}; {_needs(design, state, more)}"


def blind(status: str, arms: Sequence[str], windows: int) -> str:
    """Why nothing can be judged: which of the ways of having no numbers it is."""
    why = {
        "METRIC_ERROR": "its metrics could not be read",
        "NO_METRIC": "it does not expose the metrics that are compared",
        "NO_TRAFFIC": "it had no request and no probe",
    }
    kind = "ERROR" if status == "METRIC_ERROR" else "INCONCLUSIVE"
    return f"{kind}: {status} on {' and '.join(arms)}: {why[status]} for {windows} windows; nothing is promoted or rolled back on that"


def share_in_doubt(canary: int, total: int, expected: float, suspects: Sequence[str]) -> str:
    """The split is not the one asked for."""
    served = percent(canary / total) if total else "none"
    return (
        f"INCONCLUSIVE: the canary was served {served} of {total} requests where {percent(expected)} was asked for; "
        f"no verdict while they differ; look at: {', '.join(suspects)}"
    )


def share_suspects(served: float, expected: float) -> tuple[str, ...]:
    """What usually moves the split in that direction."""
    if served == 0:
        return ("a stale proxy or a write the gateway dropped", "the canary's target not active")
    if served < expected:
        return ("a cooldown after canary errors", "session or prefix affinity", "shares rounded over replicas", "a stale proxy")
    return ("stable unavailable or cooled down", "session affinity", "a constant request id", "shares rounded over replicas")


def _needs(design: Design, state: JudgeState, more: dict[str, float | None]) -> str:
    parts = []
    requests = [n for claim, n in more.items() if claim not in ("probes", "quality") and n]
    if requests:
        parts.append(f"needs about {_round(max(requests))} more canary requests")
    if more.get("probes"):
        parts.append(f"needs about {_round(more['probes'] or 0)} more probes")
    if more.get("quality"):
        parts.append(f"needs about {_round(more['quality'] or 0)} more prompts")
    if any(n is None for claim, n in more.items() if claim != "quality"):
        ratio = state.tally.load_ratio
        if ratio is None or not state.tally.live_windows:
            parts.append("no live comparison yet")
        elif ratio < BALANCED[0] and design.live_latency:
            parts.append(f"latency cannot pass at load ratio {ratio:.2g} (a balanced rung or probes can)")
    return "; ".join(parts) or "the longest request has not had time to end"


def _round(value: float) -> str:
    """Two digits are all a forecast is worth."""
    if value > 1e6:
        return "more than a million"
    size = max(1, 10 ** (max(0, int(math.log10(max(value, 1)))) - 1))
    return str(math.ceil(value / size) * size)


def _evidence(state: JudgeState) -> str:
    tally = state.tally
    parts = [f"{tally.pairs} probes"] if tally.pairs else []
    parts += [f"{tally.quality_pairs} replayed prompts"] if tally.quality_pairs else []
    if tally.live_canary or not parts:
        parts.append(f"{tally.live_canary} live requests")
    return ", ".join(parts)


def _tolerated(design: Design, metric: str) -> str:
    margin = design.config.tolerated(metric)
    if metric == "errors":
        return f"errors at most {margin:g} times stable's odds"
    if metric == "quality":
        return "answers no worse than stable's" + (f" by more than {100 * margin:.3g} points of 100" if margin else "")
    if metric == "memory":
        return f"memory growing at most {margin / (1 << 30):.3g} GiB an hour faster than stable's"
    return f"{_NAMES[metric]} no slower than {percent(margin, signed=True) if margin else 'stable'}"


def _claim(claim: str) -> str:
    for metric, name in _NAMES.items():
        if claim.startswith(metric):
            return f"{name}{claim[len(metric) :]}"
    return f"latency, {claim}"


def slowdown(row: dict[str, Any]) -> str:
    """The interval in time alone: "TTFT +12 % to +31 %"."""
    low, high = row["slowdown"]
    name, between = _NAMES[row["metric"]], _between(low, high, lambda part: f"{100 * part:+.0f} %")
    return f"{name} {between}" if between else f"{name}: nothing is known yet"


def interval(row: dict[str, Any]) -> str:
    """The interval in time, and in what users see of it. In the tail only the latter: a few slow requests are no slow-down of all."""
    low, high = row["times_as_many"]
    many = _between(low, high, lambda times: f"{times:.2g}")
    more = f"{many} times as many requests over {row['edge']:g} s" if many else ""
    if row.get("part") == "tail":
        return f"{_NAMES[row['metric']]} in the tail: {more or 'nothing is known yet'}"
    return f"{slowdown(row)}, {more}" if more else slowdown(row)


def _between(low: float | None, high: float | None, say: Callable[[float], str]) -> str:
    """An interval of which one end may be open, or both: then nothing."""
    if low is None:
        return "" if high is None else f"at most {say(high)}"
    return f"at least {say(low)}" if high is None else f"{say(low)} to {say(high)}"


def _bound(design: Design, state: JudgeState) -> str:
    probed = state.tally.pairs > 0
    return "" if design.config.claimed(probed) else f" ({design.config.bound(probed)})"
