"""A rollout that is found half done: is this canary the plan's, and which rung does its weight mean? Pure.

Two ways lead here: a canary that a person made by hand (`adopt`), and a rollout whose owner is gone (`takeover --plan`). Both go
on from what the server shows. Must not raise a share that nobody judged, and must not guess what it cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rollout.domain.health import serving
from rollout.domain.preflight import findings
from rollout.domain.receipts import Pair, Receipts, TargetReceipt, adapter_of
from rollout.domain.shapes import conversion
from rollout.domain.state import StepName
from rollout.domain.weights import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE, Rung, expressible, nearest, pair_share
from rollout.domain.world import DeploymentView, TargetView, World, named
from rollout.plan.hidden import keepable
from rollout.plan.model import Plan

Json = Any
Derive = Callable[[Mapping[str, Json], Mapping[str, Json], Mapping[str, Json], str], dict[str, Json]]
Diff = Callable[[Mapping[str, Json], Mapping[str, Json]], list[tuple[str, Json, Json]]]
LOOSE = frozenset(
    {
        *("name", "enable_model_route", "categories", "description"),
        *("replicas", "worker_selector", "gpu_selector", "gpu_type_selector", "placement_strategy", "gpu_memory_utilization"),
    }
)
"""fields in which a hand-made canary may differ from what the plan would have made: identity, and sizing, which is only printed"""


@dataclass(frozen=True)
class Standing:
    """Where a found canary stands on the ladder. `rung`: index of the rung to go on with; `share`: of the pair, as found (0..1)."""

    rung: int
    weight: int
    share: float
    route_share: float
    words: str

    def facts(self, target: int, now: datetime) -> dict[str, Json]:
        """What the state must hold so that this rung is the next one looked at; the rungs under it are left."""
        at = now.isoformat()
        found = {"at": at, "rung": self.rung, "weight": self.weight, "share": self.share, "route_share": self.route_share}
        left = {f"{target}.rung.{index}.left": {"at": at, "found": True} for index in range(self.rung)}
        return {f"{target}.found": found, **left}


@dataclass(frozen=True)
class Going:
    """Where to go on: the step, the index of the stable target, the facts that belong to it, and why in one sentence."""

    step: StepName
    target: int
    facts: dict[str, Json]
    why: str

    def fact(self) -> dict[str, Json]:
        """How the state keeps it until the route is ours."""
        return {"step": self.step.value, "target": self.target, "why": self.why}


def standing(ladder: Sequence[Rung], stable: int, canary: int, others: int) -> Standing:
    """The rung that a canary's weight beside `stable` means. Not on a rung: the next lower one, since only a judged share is raised.

    Below the lowest rung it goes on with that one, as every canary begins. `others`: summed weight of all other targets.
    """
    below, share = [r for r in ladder if not r.full], pair_share(stable, canary)
    route_share = canary / (stable + canary + others)
    near = [r for r in below if abs(r.pair_share - share) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * r.pair_share)]
    under = [r for r in below if r.pair_share < share]
    said = f"weight {canary} beside {stable} is {share:.2%} of the pair"
    if near:
        rung = min(near, key=lambda r: abs(r.pair_share - share))
        words = f"{said}: rung {rung.index + 1} of the ladder"
    elif under:
        rung = under[-1]
        words = f"{said}: on no rung, so it is lowered to rung {rung.index + 1} ({rung.pair_share:.2%}); only a judged share is raised"
    else:
        rung = below[0]
        words = f"{said}: below the ladder, so it goes on with the first rung ({rung.pair_share:.2%})"
    return Standing(rung.index, canary, share, route_share, words)


def beside(world: World, canary: str) -> World:
    """The world as if the canary had no target: what the plan's own checks are about, and what a rollback goes back to."""
    if world.route is None:
        return world
    return replace(world, route=replace(world.route, targets=tuple(t for t in world.route.targets if t.deployment != canary)))


def sized(plan: Plan, world: World, canary: str) -> Plan:
    """The plan with as many replicas of the first canary as the one that was found has: the arithmetic of shares is about those."""
    view, wanted = world.deployments.get(canary), plan.canary_of(0)
    if view is None:
        return plan
    found = wanted.model_copy(update={"sizing": wanted.sizing.model_copy(update={"replicas": view.replicas})})
    return plan.model_copy(update={"stable": (plan.stable[0].model_copy(update={"canary": found}), *plan.stable[1:])})


def as_found(world: World, receipts: Receipts) -> World:
    """The world with the route's targets as the receipts have them, with the weights that a conversion gave, and nothing parked."""
    if world.route is None:
        return world
    targets = tuple(
        TargetView(
            0, None if "provider_id" in t.extra else 0, t.deployment, receipts.converted.get(t.deployment, t.weight), "active", t.extra
        )
        for t in receipts.targets
    )
    awake = {p.stable: _awake(view, p.replicas) for p in receipts.pairs if (view := world.deployments.get(p.stable)) is not None}
    return replace(world, route=replace(world.route, targets=targets), deployments={**world.deployments, **awake})


def _awake(view: DeploymentView, replicas: int | None) -> DeploymentView:
    if view.replicas or replicas is None:
        return view
    return replace(view, replicas=replicas, spec={**view.spec, "replicas": replicas})


def adopted(pair: Pair, target: TargetView, *, keep: bool) -> Pair:
    """The pair with the hand-made canary in place of the one we would have made. Stable's weight stays: the canary stands beside it."""
    found = TargetReceipt(deployment=target.deployment or "", weight=target.weight, extra=dict(target.extra))
    return pair.model_copy(update={"canary": found.deployment, "scaled": pair.weight, "adopted": found, "keep": keep})


def unlike(plan: Plan, world: World, index: int, canary: str, derive: Derive, diff: Diff) -> list[str]:
    """Where the canary is not stable number `index` plus exactly the plan's unit; sizing is not counted. Raises PlanError."""
    stable = world.deployments[plan.stable[index].deployment].spec
    change = {"unit": plan.change.unit.value, "to": plan.change.to}
    sizing = plan.canary_of(index).sizing.model_dump(exclude_none=True)
    wanted, found = derive(stable, change, sizing, canary), world.deployments[canary].spec
    return [_differs(field, before, after) for field, before, after in diff(wanted, found) if field not in LOOSE]


def refusals(plan: Plan, world: World, canary: str, ladder: Sequence[float], derive: Derive, diff: Diff) -> list[str]:
    """Everything that speaks against adopting `canary`, each with its remedy. `ladder`: shares 0..1. Raises PlanError."""
    alone = list(_sideless(plan, world, canary))
    if alone:
        return alone
    plan_found = findings(sized(plan, world, canary), beside(world, canary))
    return [*plan_found, *_canary(plan, world, canary), *_same(plan, world, canary, derive, diff)] or list(
        _rungs(plan, world, canary, ladder)
    )


def _sideless(plan: Plan, world: World, canary: str) -> Iterator[str]:
    """No two sides are named. A plan is checked on the route without its canary, so whatever else would be found is beside the point."""
    first, route = plan.stable[0].deployment, world.route
    if canary in (s.deployment for s in plan.stable):
        yield f"`{canary}` is in the plan's `stable`: --canary names the new side"
    elif route is not None and route.target_of(canary) is not None and route.target_of(first) is None:
        yield f"`{canary}` serves without `{first}`: put that back beside it with a positive weight, then adopt; there is no control else"


def _canary(plan: Plan, world: World, canary: str) -> Iterator[str]:
    first = plan.stable[0].deployment
    view, targets = world.deployments.get(canary), [t for t in world.route.targets if t.deployment == canary] if world.route else []
    if view is None:
        yield f"deployment `{canary}` does not exist: correct --canary"
    elif not targets:
        yield f"`{canary}` is not a target of route `{plan.route.name}`: nothing is half done, `rollout run` makes a canary of its own"
    elif len(targets) > 1:
        yield f"route `{plan.route.name}` has two targets for `{canary}`: remove one"
    elif targets[0].fallback:
        codes = ", ".join(targets[0].extra["fallback_status_codes"])
        yield f"target `{canary}` is a fallback (for {codes}) and would stay one: take its `fallback_status_codes` away, then adopt"
    elif conversion(plan, beside(world, canary)):
        yield f"route `{plan.route.name}` has no weights beside `{canary}`: give `{first}` one, so that there is a share to go on with"
    elif (stable := world.route.target_of(first) if world.route else None) and adapter_of(stable, first) != adapter_of(targets[0], canary):
        yield f"target `{canary}` does not ask for the same adapter as `{first}`: correct its `overridden_model_name`"
    elif targets[0].weight <= 0:
        yield f"target `{canary}` has weight 0: give it a positive weight, or remove it and `rollout run` the plan"
    elif not targets[0].active or not view.ready or not serving(world, canary):
        yield f"canary `{canary}` is not healthy ({view.ready_replicas} of {view.replicas} replicas ready): bring it back or remove it"


def _same(plan: Plan, world: World, canary: str, derive: Derive, diff: Diff) -> Iterator[str]:
    if canary not in world.deployments or any(s.deployment not in world.deployments for s in plan.stable):
        return
    differ = unlike(plan, world, 0, canary, derive, diff)
    if not differ:
        return
    first = plan.stable[0].deployment
    for index, item in enumerate(plan.stable[1:], 1):
        if not unlike(plan, world, index, canary, derive, diff):
            yield f"`{canary}` is the canary of `{item.deployment}`: put that first in the plan's `stable`"
            return
    yield f"`{canary}` is not `{first}` plus exactly the unit `{plan.change.unit}`: {'; '.join(differ)}"


def _rungs(plan: Plan, world: World, canary: str, ladder: Sequence[float]) -> Iterator[str]:
    """Stable's weight is not changed beside a canary that takes requests, so every rung must be writable beside it as it is."""
    stable, found = (world.route.target_of(n) if world.route else None for n in (plan.stable[0].deployment, canary))
    if stable is None or found is None:
        return
    share = pair_share(stable.weight, found.weight)
    reached = max((s for s in ladder if s <= share + max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * s)), default=0.0)
    for rung in (s for s in ladder if reached <= s < 1 and not expressible(stable.weight, s)):
        near = f"nearest: {nearest(stable.weight, rung):.2%}"
        yield f"rung {rung:.2%} cannot be written beside weight {stable.weight} of `{stable.deployment}` while `{canary}` serves; {near}"


def whereabouts(receipts: Receipts, world: World, ladder: Callable[[Pair], Sequence[Rung]], *, staged: bool) -> Going | str:
    """Where a rollout that lost its owner stands, from the route alone; a text says why that cannot be told.

    `staged`: the plan skips staging. What an earlier target went through is not proved again, but nothing of it is removed before the
    window and its drain.
    """
    route, at = world.route, {"at": world.now.isoformat(), "already": True}
    facts: dict[str, Json] = {}
    moved = next(_moved(receipts, world), None)
    if moved is not None:
        return moved
    for index, pair in enumerate(receipts.pairs):
        stable, canary = (route.target_of(n) if route else None for n in (pair.stable, pair.canary))
        if stable is None and canary is None:
            return f"neither {pair.stable} nor {pair.canary} is a target of route {receipts.route}"
        if stable is None:
            facts[f"{index}.handed"] = at
            continue
        if canary is not None:
            found = standing(ladder(pair), stable.weight, canary.weight, receipts.siblings_weight(pair))
            return Going(StepName.ATTACH, index, {**facts, **found.facts(index, world.now)}, f"{pair.canary}: {found.words}")
        fresh = index == 0 and not staged and pair.canary not in world.deployments
        step = StepName.STAGE if fresh else StepName.ATTACH
        return Going(step, index, facts, f"{pair.canary} has no target yet: goes on with {step.value}")
    last = len(receipts.pairs) - 1
    return Going(StepName.SHIFT, last, facts, "every stable target has left the route: goes on with the drain, and the window begins anew")


def _moved(receipts: Receipts, world: World) -> Iterator[str]:
    """Stable targets with a weight that no rollout gave them: rungs are reckoned beside stable's, so none would be what it is called."""
    weights = {t.deployment: t.weight for t in (world.route.targets if world.route else ())}
    for pair in receipts.pairs:
        now, found = weights.get(pair.stable), receipts.found(pair.stable)
        right = {pair.scaled} if pair.canary in weights else {pair.scaled, pair.weight, found.weight if found else pair.weight}
        if now is not None and now not in right:
            wanted = " or ".join(str(weight) for weight in sorted(right))
            yield f"{pair.stable} has weight {now}, and {wanted} is its own: somebody else changed it; set it back, or roll back"


def expected(receipts: Receipts, world: World) -> dict[str, int]:
    """Weights the route should show now: ours as they are, everybody else's as the receipts have them, or as a conversion gave them."""
    ours = {n for p in receipts.pairs for n in (p.stable, p.canary)}
    now = {named(t): t.weight for t in (world.route.targets if world.route else ())}
    given = {n: w for n, w in now.items() if n in ours or receipts.converted.get(n) == w}
    return {**{t.deployment: t.weight for t in receipts.targets if t.deployment not in ours}, **given}


def _differs(field: str, before: Json, after: Json) -> str:
    """One field of a hand-made canary that is not the plan's. Of an environment only the names are said: a value may be a secret."""
    if field == "env":
        one, two = before or {}, after or {}
        names = sorted(k for k in {*one, *two} if one.get(k) != two.get(k))
        return f"env: differs in {', '.join(names)} (values are not shown)"
    return f"{field}: the plan means {_short(before, field)}, found {_short(after, field)}"


def _short(value: Json, field: str) -> str:
    text = "(unset)" if value is None else str(keepable(value, field))
    return text if len(text) <= 60 else text[:59] + "…"
