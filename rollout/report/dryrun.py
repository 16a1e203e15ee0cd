"""What a rollout would do, before it does anything: also the JSON of `plan --json`. Pure: plan, world and declaration in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.analysis.config import JudgeConfig, Mode
from rollout.analysis.quality import pairs_needed
from rollout.domain import adoption, credentials, route_checks
from rollout.domain.carrying import carrier_of, rung_shares
from rollout.domain.receipts import Pair, Receipts
from rollout.domain.shapes import weighted
from rollout.domain.weights import BALANCED, Rung, load_ratio
from rollout.domain.window import DAY, LONGEST
from rollout.domain.window import LIVE_REQUESTS as WINDOW_REQUESTS
from rollout.domain.world import World
from rollout.plan.model import Plan
from rollout.report.calls import Call, Ladders, calls
from rollout.report.waiting import Asked, Forecast, forecast
from rollout.rung.evidence import BEFORE_FULL, DEADLINE, LIVE_REQUESTS, pairs_wanted

Json = Any
OURS = frozenset({"name", "enable_model_route"})
"""fields in which every canary differs: they are identity, not a change"""


class Part(BaseModel):
    """Base of all parts."""

    model_config = ConfigDict(frozen=True)


class Change(Part):
    """One field in which canary and stable differ. `kind`: unit, or sizing (a confounder)."""

    field: str
    stable: Json
    canary: Json
    kind: str


class RungPlan(Part):
    """One rung: shares in 0..1, the weight (None at 100 %), the load per replica of canary over stable, and what it may decide.

    `effective`: what the route's carrier makes of the weights; several where equal remainders may go either way.
    """

    asked: float
    weight: int | None
    pair_share: float
    route_share: float
    effective: tuple[float, ...]
    load_ratio: float | None
    may: str


class PairPlan(Part):
    """One stable target and its successor; weights as found, and during the ladder."""

    stable: str
    canary: str
    weight: int
    weight_during: int
    changes: tuple[Change, ...]
    rungs: tuple[RungPlan, ...]
    shared: tuple[str, ...]
    """other routes that send to stable: it will not be deleted"""


class Replay(Part):
    """What the replay of a prompt set costs: `requests` of at most `max_tokens` output tokens to each side, for each target.

    `unacceptable`: loss of mean score, 0.05 = 5 points of 100; `needed`: prompts that exclude it when no answer differs;
    `note`: why the set may not be enough, empty when nothing says so.
    """

    file: str
    requests: int
    batches: int
    max_tokens: int
    targets: int
    unacceptable: float
    needed: int
    note: str


class Evidence(Part):
    """How it will be judged. `rate`: requests an hour on stable, None = unknown. `v`, `phi`: noise of a single replica."""

    mode: str
    rate: float | None
    alpha: float
    beta: float
    tolerated_latency: float
    unacceptable_latency: float
    unacceptable_errors: float
    v: float
    phi: float
    note: str
    replay: Replay | None = None


class Deadline(Part):
    """How long something may take (seconds), and what happens then."""

    what: str
    seconds: float
    then: str


@dataclass(frozen=True)
class Declared:
    """What `declare` would fix. `rate`: requests an hour; `diff`: canary -> rows (field, stable, canary).

    `shared`: stable -> other routes that send to it.
    """

    mode: Mode
    rate: float | None
    receipts: Receipts
    ladders: Ladders
    diff: Mapping[str, Sequence[Sequence[Json]]]
    shared: Mapping[str, Sequence[str]]
    standing: str | None = None
    """where an adopted canary goes on, and why there"""
    begin: int = 0
    """index of the rung it goes on with"""
    rate_source: str = ""
    """where the rate comes from, in words"""
    explain: bool = False
    """whether the forecast says why the wait is so long"""

    @property
    def rungs_below(self) -> int:
        """Rungs below 100 % of the first pair; all pairs have the same."""
        return sum(1 for rung in self.ladders[self.receipts.pairs[0].canary] if not rung.full)


class DryRun(Part):
    """The whole forecast. `refusals`: why it would not start."""

    name: str
    server: str
    server_version: str
    route: str
    carried_by: str
    """who splits the route's traffic, in words"""
    unit: str
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    """what is worth knowing about the route as it was found"""
    keys: tuple[str, ...]
    """what to know about the keys: what they may do, and until when"""
    adopts: str | None = None
    """where the canary that a person made goes on, and why there"""
    pairs: tuple[PairPlan, ...]
    evidence: Evidence | None
    forecast: Forecast | None = None
    """what can be found out at today's traffic, and how long that takes, for one target"""
    deadlines: tuple[Deadline, ...]
    shortest: float
    """seconds from the first rung to promotion at the very least"""
    calls: tuple[Call, ...]


def dry_run(plan: Plan, world: World, refusals: Sequence[str], declared: Declared | None, judge: JudgeConfig | None) -> DryRun:
    """The forecast. `declared` and `judge` are None when the world does not even allow to compute them."""
    mode = declared.mode if declared else "thin" if plan.evidence.mode == "auto" else plan.evidence.mode.value
    below = declared.rungs_below if declared else 1
    return DryRun(
        name=plan.metadata.name,
        server=plan.gpustack.server,
        server_version=world.server_version,
        route=plan.route.name,
        carried_by=carrier_of(world).words,
        unit=plan.change.unit.value,
        refusals=tuple(refusals),
        notes=tuple(route_checks.notes(plan, world)),
        keys=tuple(credentials.notes(plan, world, shortest(plan, mode, below) * len(plan.stable) + (plan.window.duration or DAY))),
        adopts=declared.standing if declared else None,
        pairs=_pairs(plan, weighted(plan, world), declared) if declared else (),
        evidence=_evidence(plan, declared, judge) if declared and judge else None,
        forecast=forecast(_asked(plan, world, declared, judge)) if declared and judge else None,
        deadlines=deadlines(plan, mode),
        shortest=shortest(plan, mode, below) * len(plan.stable),
        calls=tuple(calls(plan, declared.receipts, declared.ladders, declared.begin)) if declared else (),
    )


def _asked(plan: Plan, world: World, declared: Declared, judge: JudgeConfig) -> Asked:
    """The first target's; the others have the same ladder."""
    pair = declared.receipts.pairs[0]
    stable = world.deployments[pair.stable].replicas
    below = [rung.pair_share for rung in declared.ladders[pair.canary] if not rung.full]
    return Asked(
        plan=plan,
        judge=judge,
        rate=declared.rate,
        source=declared.rate_source,
        shares=below[min(declared.begin, len(below) - 1) :],
        canary_replicas=plan.canary_of(0).sizing.replicas or stable,
        stable_replicas=stable,
        sample=world.samples.get(pair.stable),
        explain=declared.explain,
    )


def _pairs(plan: Plan, world: World, declared: Declared) -> tuple[PairPlan, ...]:
    """In the world as it will be climbed. An adopted canary has a target already, and is counted as a canary alone."""
    pairs = declared.receipts.pairs
    if pairs[0].adopted is not None:
        plan, world = adoption.sized(plan, world, pairs[0].canary), adoption.beside(world, pairs[0].canary)
    return tuple(_pair(plan, world, declared, index) for index in range(len(pairs)))


def _pair(plan: Plan, world: World, declared: Declared, index: int) -> PairPlan:
    pair = declared.receipts.pairs[index]
    stable = world.deployments[pair.stable].replicas
    canary = plan.canary_of(index).sizing.replicas or stable
    changes = [
        Change(field=field, stable=before, canary=after, kind="unit" if field in plan.change.to else "sizing")
        for field, before, after in declared.diff.get(pair.canary, ())
        if field not in OURS
    ]
    return PairPlan(
        stable=pair.stable,
        canary=pair.canary,
        weight=pair.weight,
        weight_during=pair.scaled,
        changes=tuple(sorted(changes, key=lambda change: change.kind == "sizing")),
        rungs=tuple(
            _rung(rung, canary, stable, _effective(plan, world, index, pair, rungs, rung))
            for rungs in (declared.ladders[pair.canary],)
            for rung in rungs
        ),
        shared=tuple(declared.shared.get(pair.stable, ())),
    )


def _effective(plan: Plan, world: World, index: int, pair: Pair, ladder: Sequence[Rung], rung: Rung) -> tuple[float, ...]:
    """The canary's share of the route as it will be carried; at 100 % with the weight of the rung before, and without stable."""
    weight = rung.weight if rung.weight is not None else ladder[-2].weight or 1
    return tuple(sorted(rung_shares(plan, world, index, None if rung.full else pair.scaled, weight)))


def _rung(rung: Rung, canary: int, stable: int, effective: tuple[float, ...]) -> RungPlan:
    ratio = None if rung.full else load_ratio(rung.pair_share, 1 - rung.pair_share, canary, stable)
    return RungPlan(
        asked=rung.asked,
        weight=rung.weight,
        pair_share=rung.pair_share,
        route_share=rung.route_share,
        effective=effective,
        load_ratio=ratio,
        may=may(ratio),
    )


def may(ratio: float | None) -> str:
    """What latency may decide at this load per replica (the product's rule)."""
    if ratio is None:
        return "no comparison: there is no control"
    if ratio < BALANCED[0]:
        return "latency may fail, not pass: the canary idles"
    return "latency may pass and fail" if ratio <= BALANCED[1] else "latency may pass, not fail: the canary is busier"


def _evidence(plan: Plan, declared: Declared, judge: JudgeConfig) -> Evidence:
    return Evidence(
        mode=declared.mode,
        rate=declared.rate,
        alpha=judge.alpha,
        beta=judge.beta,
        tolerated_latency=judge.tolerated_latency,
        unacceptable_latency=judge.unacceptable_latency,
        unacceptable_errors=judge.unacceptable_errors,
        v=judge.v,
        phi=judge.phi,
        note=judge.bound(pairs_wanted(plan, declared.mode) > 0),
        replay=_replay(plan, judge),
    )


def _replay(plan: Plan, judge: JudgeConfig) -> Replay | None:
    quality = plan.evidence.quality
    if quality is None:
        return None
    count = len(quality.prompts)
    needed = pairs_needed(judge.unacceptable("quality"), judge.beta)
    return Replay(
        file=quality.file,
        requests=count,
        batches=-(-count // quality.batch),
        max_tokens=quality.max_tokens,
        targets=len(plan.stable),
        unacceptable=judge.unacceptable("quality"),
        needed=needed,
        note=f"a promotion needs at least {needed} prompts, when no answer differs: it would hold" if count < needed else "",
    )


def before_full(plan: Plan, mode: str) -> float:
    """Seconds at the last rung below 100, at least."""
    said = plan.evidence.min_time_before_full
    return BEFORE_FULL[mode] if said is None else said


def shortest(plan: Plan, mode: str, rungs_below: int) -> float:
    """Seconds one target needs from its first rung to an empty stable, when everything goes well."""
    last = max(plan.evidence.min_time, before_full(plan, mode))
    return max(0, rungs_below - 1) * plan.evidence.min_time + last + plan.drain.quiet


def deadlines(plan: Plan, mode: str) -> tuple[Deadline, ...]:
    """Everything that is waited for, how long, and what happens then."""
    verdict = plan.evidence.deadline if plan.evidence.deadline is not None else DEADLINE[mode]
    requests = min(plan.evidence.min_requests, LIVE_REQUESTS[mode])
    drained = "cuts the streams that are left" if plan.drain.on_timeout == "proceed" else "holds, never kills"
    removal = "waits for `rollout approve`, then removes stable" if plan.cleanup.approval == "required" else "removes stable"
    staged = (
        () if plan.stage.skip else (Deadline(what="staging deployment ready", seconds=plan.stage.ready_within, then="holds: not_ready"),)
    )
    return (
        *staged,
        Deadline(what="canary ready", seconds=plan.ready_within, then="holds: not_ready"),
        Deadline(what="rung, at least", seconds=plan.evidence.min_time, then=f"and {requests} canary requests"),
        Deadline(what="last rung below 100 %, at least", seconds=before_full(plan, mode), then="and a PASS"),
        Deadline(what="verdict", seconds=verdict, then="holds: inconclusive; the share is kept"),
        Deadline(what="drain of stable", seconds=plan.drain.deadline, then=drained),
        *_parking(plan),
        Deadline(what="rollback window", seconds=_window(plan), then=_sparse(plan, mode) + removal),
    )


def _window(plan: Plan) -> float:
    return DAY if plan.window.duration is None else plan.window.duration


def _parking(plan: Plan) -> Iterator[Deadline]:
    """How long stable runs on, where it may be parked."""
    window = plan.window
    if window.keep == "warm" or window.warm >= _window(plan):
        return
    where = "where memory is needed" if window.keep == "auto" else "with replicas 0"
    asks = ", after `rollout approve --park`" if window.approval == "required" else ""
    yield Deadline(what="stable runs on, at least", seconds=window.warm, then=f"then it is parked {where}{asks}")


def _sparse(plan: Plan, mode: str) -> str:
    """What makes a window of the default length longer."""
    if plan.window.duration is not None or mode != "sparse":
        return ""
    return f"longer until {WINDOW_REQUESTS} live requests, at most {LONGEST / 3600:.0f} h; "
