"""What a rollout could find out at today's traffic, and how long that takes: numbers for JSON, and the sentences about them.

`rollout plan` shows it before anything is touched. Pure: plan, judge and rate in; the estimate itself is `analysis.power`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from rollout.analysis.config import JudgeConfig, Margin
from rollout.analysis.power import Power, Proof, Rung, Setting, Smallest, power, proofs
from rollout.domain.world import EngineSample
from rollout.plan.model import EvidenceMode, Plan
from rollout.rung.evidence import BEFORE_FULL, BUSY, BUSY_WINDOWS, DEADLINE, LIVE_REQUESTS, pairs_wanted

WANTED_SLOWDOWN, WANTED_ERRORS, WANTED_QUALITY = 0.2, 0.05, 0.05
"""effects people ask for first; one that cannot be detected is said in words"""
WORTH = 0.85
"""a change is named when it shortens the wait to less than this part"""
_CLAIMS = {
    "ttft": "time to first token",
    "e2e": "end-to-end latency",
    "tpot": "time per output token",
    "probes": "paired probes",
    "live or probes": "latency, live or by probes",
    "errors": "errors",
    "quality": "answers",
}


class Part(BaseModel):
    """Base of all parts."""

    model_config = ConfigDict(frozen=True)


class Effect(Part):
    """Smallest effects found in 4 of 5 rollouts: slow-down of TTFT (0.2 = +20 %), errors (0.01 = +1 percentage point), loss of mean score
    (0.05 = 5 points of 100). None = none would be.
    """

    slowdown: float | None
    errors: float | None
    quality: float | None


class RungForecast(Part):
    """One rung below 100 %. `seconds`: it lasts at least, its requests waited for; `load_ratio`: requests a replica, canary over stable.

    `within`: what begins with this rung is found while it lasts; `by_deadline`: until the deadline, later rungs included.
    """

    share: float
    seconds: float
    load_ratio: float
    within: Effect
    by_deadline: Effect


class Claim(Part):
    """One claim of a promotion, for a canary just like stable. `hours`: in half of all rollouts, `late_hours`: in 4 of 5; None = not within
    a month. `requests`: canary requests, `pairs`: probe pairs until the median.
    """

    claim: str
    hours: float | None
    late_hours: float | None
    requests: float | None
    pairs: int | None


class Forecast(Part):
    """`rate`: requests an hour on the pair, None = unknown (then only own probes are counted on); `source`: who says so.

    `hours`, `late_hours`: until a PASS and the time the rungs ask for; None = not to be expected. `undetectable`, `why`, `shorter`:
    sentences; the last two only when they were asked for.
    """

    rate: float | None
    source: str
    mode_why: str
    rungs: tuple[RungForecast, ...]
    claims: tuple[Claim, ...]
    dominates: str | None
    hours: float | None
    late_hours: float | None
    deadline_hours: float
    undetectable: tuple[str, ...]
    why: tuple[str, ...] = ()
    shorter: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What the forecast is made from. `shares`: the pair's, of the rungs below 100 %; replicas as the plan wants them."""

    plan: Plan
    judge: JudgeConfig
    rate: float | None
    source: str
    shares: Sequence[float]
    canary_replicas: int
    stable_replicas: int
    sample: EngineSample | None = None
    """stable's counters, for its share of failed requests"""
    explain: bool = False


def forecast(asked: Asked) -> Forecast:
    """The whole forecast; with much traffic it takes a second or two."""
    setting = setting_of(asked)
    found = power(asked.judge, setting)
    least = sum(r.seconds for r in setting.rungs)
    hours, late = _total(found.proofs, least)
    return Forecast(
        rate=asked.rate,
        source=asked.source,
        mode_why=_mode_why(asked),
        rungs=tuple(
            RungForecast(
                share=r.rung.share,
                seconds=r.rung.seconds,
                load_ratio=r.ratio,
                within=_effect(r.within),
                by_deadline=_effect(r.by_deadline),
            )
            for r in found.rungs
        ),
        claims=tuple(_claim(proof) for proof in found.proofs),
        dominates=found.dominates.claim if found.dominates else None,
        hours=hours,
        late_hours=late,
        deadline_hours=setting.deadline / 3600,
        undetectable=tuple(_undetectable(asked, setting, found)),
        why=tuple(_why(asked, setting, found, least)) if asked.explain else (),
        shorter=tuple(_shorter(asked, setting, found.proofs, least)) if asked.explain else (),
    )


def setting_of(asked: Asked) -> Setting:
    """The traffic, the ladder and our own requests as the judge will see them."""
    evidence, mode, rate = asked.plan.evidence, asked.judge.mode, asked.rate or 0.0
    rungs = tuple(Rung(s, _lasts(asked, s, last=n == len(asked.shares) - 1)) for n, s in enumerate(asked.shares))
    busiest = rate * max(asked.shares, default=0.0) * evidence.window / 3600
    return Setting(
        rate=rate,
        rungs=rungs,
        deadline=DEADLINE[mode] if evidence.deadline is None else evidence.deadline,
        window=evidence.window,
        canary_replicas=asked.canary_replicas,
        stable_replicas=asked.stable_replicas,
        pairs=pairs_wanted(asked.plan, mode),
        batch=evidence.probes.batch,
        batch_every=BUSY_WINDOWS if busiest >= BUSY else 1,
        prompts=len(evidence.quality.prompts) if evidence.quality else 0,
        error_rate=_error_rate(asked.sample),
    )


def _lasts(asked: Asked, share: float, *, last: bool) -> float:
    """Seconds of a rung: the plan's, or until enough canary requests came; never longer than the deadline, which ends the waiting."""
    evidence, mode, rate = asked.plan.evidence, asked.judge.mode, asked.rate or 0.0
    full = BEFORE_FULL[mode] if evidence.min_time_before_full is None else evidence.min_time_before_full
    seconds = max(evidence.min_time, full) if last else evidence.min_time
    if not rate:
        return seconds
    limit = DEADLINE[mode] if evidence.deadline is None else evidence.deadline
    return max(seconds, min(limit, min(evidence.min_requests, LIVE_REQUESTS[mode]) / (rate * share) * 3600))


def _error_rate(sample: EngineSample | None) -> float:
    """Stable's share of failed requests since its engines began, drawn to 0.2 % where it served few."""
    rows = list(sample.instances.values()) if sample is not None and sample.status == "OK" else []
    failed, served = sum(r.errors or 0.0 for r in rows), sum(r.requests or 0.0 for r in rows)
    return min(0.5, (failed + 0.2) / (served + 100.0))


def _total(found: Sequence[Proof], least: float) -> tuple[float | None, float | None]:
    """Hours until everything is proved and every rung has lasted."""

    def worst(values: list[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return max([least, *known]) / 3600 if len(known) == len(values) else None

    return worst([p.seconds for p in found]), worst([p.late for p in found])


def _effect(found: Smallest) -> Effect:
    return Effect(slowdown=found.slowdown, errors=found.errors, quality=found.quality)


def _claim(proof: Proof) -> Claim:
    hours = None if proof.seconds is None else proof.seconds / 3600
    late = None if proof.late is None else proof.late / 3600
    return Claim(claim=proof.claim, hours=hours, late_hours=late, requests=proof.requests, pairs=proof.pairs)


def _mode_why(asked: Asked) -> str:
    if asked.plan.evidence.mode is not EvidenceMode.AUTO:
        return "the plan says so"
    if asked.rate is None:
        return "the rate is unknown, which counts as sparse"
    bounds = {"rich": "3,600 requests/h or more", "thin": "60 to 3,600 requests/h", "sparse": "fewer than 60 requests/h"}
    return bounds[asked.judge.mode]


def per_hour(rate: float | None) -> str:
    """A rate in words."""
    if rate is None:
        return "an unknown rate"
    return f"{rate:,.0f} requests/h" if rate >= 10 or rate == 0 else f"{rate:.2g} requests/h"


def slower_by(slowdown: float | None) -> str:
    """0.6 -> "+60 %", 2 -> "x 3"; None = none."""
    if slowdown is None:
        return "none"
    return f"+{slowdown * 100:.0f} %" if slowdown <= 1 else f"x {slowdown + 1:g}"


def points(part: float | None, unit: str = "pp") -> str:
    """0.05 -> "+5 pp"; None = none."""
    return "none" if part is None else f"+{part * 100:.2g} {unit}"


def hours(value: float | None) -> str:
    """Hours in words; None = not within a month."""
    if value is None:
        return "not within a month"
    if value < 1:
        return f"{math.ceil(value * 60)} min"
    return f"{value:.1f} h" if value < 48 else f"{value / 24:.0f} days"


def _undetectable(asked: Asked, setting: Setting, found: Power) -> Iterator[str]:
    """What people would take for granted and this rollout cannot see, whenever it begins."""
    best = [r.by_deadline for r in found.rungs]
    at = f"at {per_hour(asked.rate)}" + (f" with {setting.pairs} probe pairs" if setting.pairs else " without probes")
    yield from _beyond(f"a slow-down of +{WANTED_SLOWDOWN * 100:.0f} %", at, WANTED_SLOWDOWN, _least(b.slowdown for b in best), slower_by)
    yield from _beyond(f"errors of +{WANTED_ERRORS * 100:g} pp", at, WANTED_ERRORS, _least(b.errors for b in best), points)
    if not setting.prompts:
        yield "wrong answers cannot be detected: the plan names no prompt set (`evidence.quality`)"
        return
    with_set = f"with {setting.prompts} prompts"
    wanted = f"a loss of {WANTED_QUALITY * 100:g} points of quality"
    yield from _beyond(wanted, with_set, WANTED_QUALITY, _least(b.quality for b in best), lambda q: f"{(q or 0) * 100:.2g} points")


def _beyond(wanted: str, at: str, limit: float, smallest: float | None, words: Callable[[float | None], str]) -> Iterator[str]:
    if smallest is None:
        yield f"{wanted} cannot be detected {at}, nor anything worse short of what trips the breaker"
    elif smallest > limit:
        yield f"{wanted} cannot be detected {at}: the smallest is {words(smallest)}"


def _least(values: Iterable[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)


def claimed(claim: str) -> str:
    """A claim's name in words: "ttft body" -> "time to first token, body"."""
    metric, _, part = claim.partition(" ")
    if claim in _CLAIMS:
        return _CLAIMS[claim]
    return f"{_CLAIMS.get(metric, metric)}, {part}" if part else claim


def _why(asked: Asked, setting: Setting, found: Power, least: float) -> Iterator[str]:
    """Each claim: how many requests or pairs at what rate, and which one the rollout waits for."""
    yield f"the rungs last {hours(least / 3600)} at least, requests included; the rest is proof, to {1 / asked.judge.beta:.0f} to 1 each:"
    for proof in found.proofs:
        too_much = _too_much(asked.judge, proof.claim)
        mark = ", the one that is waited for" if proof == found.dominates and (proof.seconds is None or proof.seconds > least) else ""
        yield f"{claimed(proof.claim)} ({too_much} is too much): {_needs(setting, proof)}{mark}"


def _needs(setting: Setting, proof: Proof) -> str:
    if proof.seconds is None:
        sent = f" (the plan sends {setting.pairs})" if "probes" in proof.claim else ""
        if proof.claim == "quality":
            return f"{setting.prompts} prompts do not prove it" if setting.prompts else "no prompt is replayed"
        return f"not within a month at {per_hour(setting.rate)}{sent}"
    late = "" if proof.late is None else f", in 4 of 5 rollouts {hours(proof.late / 3600)}"
    if proof.pairs:
        word = {"live or probes": " or ", "errors": " and "}.get(proof.claim)
        basis = f"about {proof.pairs} probe pairs" + (f"{word}{proof.requests or 0:,.0f} live canary requests" if word else "")
    elif proof.claim == "quality":
        basis = f"{setting.prompts} prompts"
    else:
        basis = f"about {proof.requests or 0:,.0f} canary requests"
    return f"{basis}, {hours(proof.seconds / 3600)}{late}" + ("" if proof.late is not None else ", in 4 of 5 rollouts not within a month")


def _too_much(judge: JudgeConfig, claim: str) -> str:
    if claim == "errors":
        return points(judge.unacceptable("errors"))
    if claim == "quality":
        return f"-{judge.unacceptable('quality') * 100:g} points"
    if claim.endswith("tail"):
        return f"x {judge.tail_odds:g} as many slow ones"
    metric = claim.partition(" ")[0]
    return f"+{judge.unacceptable(metric if metric in ('ttft', 'e2e', 'tpot', 'probes') else 'ttft') * 100:.0f} %"


def _shorter(asked: Asked, setting: Setting, found: Sequence[Proof], least: float) -> Iterator[str]:
    """Changes to the plan that would shorten the wait, each tried; and what would show more."""
    now = _total(found, least)[1]
    for change, judge, other in _variants(asked, setting):
        then = _total(proofs(judge, other), least)[1]
        if then is not None and (now is None or then < WORTH * now):
            yield f"{change}: {hours(then)} instead of {'more than a month' if now is None else hours(now)}"
    if least / 3600 >= (now or math.inf):
        yield "the rungs' own time is what lasts: `evidence.min_time`, `min_time_before_full`, `min_requests`"
    if asked.judge.mode != "rich":
        yield "to detect smaller effects: more probe pairs (`evidence.probes.pairs`), longer rungs (`min_time_before_full`)"
    if asked.judge.noisy and not asked.judge.guaranteed:
        yield "the noise of a single replica is assumed, and costs most of it: a history of stable against itself (`evidence.history`)"
    if not setting.prompts:
        yield "a prompt set (`evidence.quality`) is the only way to see wrong answers; it needs no traffic"


def _variants(asked: Asked, setting: Setting) -> Iterator[tuple[str, JudgeConfig, Setting]]:
    judge, pairs = asked.judge, 2 * (setting.pairs or 120)
    yield f"{pairs} probe pairs (`evidence.probes.pairs`)", judge, replace(setting, pairs=pairs)
    slow, errors = judge.unacceptable("ttft"), judge.unacceptable("errors")
    wider = tuple(Margin(m, None, 1.5 * judge.unacceptable(m)) for m in ("ttft", "e2e", "tpot", "probes"))
    yield f"+{150 * slow:.0f} % too slow instead of +{100 * slow:.0f} % (`evidence.margins`)", _with(judge, wider), setting
    more = (Margin("errors", None, min(0.5, 2 * errors)),)
    yield f"{points(min(0.5, 2 * errors))} of errors too much instead of {points(errors)} (`evidence.margins`)", _with(judge, more), setting
    if setting.flow(setting.rungs[-1]).both < 0.5:
        long = min(1800.0, setting.window * 10)
        yield f"windows of {long / 60:.0f} min (`evidence.window`)", judge, replace(setting, window=long)


def _with(judge: JudgeConfig, margins: tuple[Margin, ...]) -> JudgeConfig:
    """The judge with these unacceptable margins, what it tolerates kept."""
    metrics = {m.metric for m in margins}
    kept = tuple(m for m in judge.margins if m.metric not in metrics)
    said = {m.metric: m.tolerated for m in judge.margins}
    return replace(judge, margins=(*kept, *(replace(m, tolerated=said.get(m.metric)) for m in margins)))
