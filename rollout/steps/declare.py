"""Step 1, declare: one change unit, checked against what runs; then the route is ours.

No compare-and-set exists on the server: write a marker with a nonce, wait longer than any write takes, read it again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rollout.domain import access, adoption
from rollout.domain.carrying import carrier_of
from rollout.domain.context import Ctx, act
from rollout.domain.decision import Advance, Decision, Finish, HoldOn, Record
from rollout.domain.effective import Carrier
from rollout.domain.health import is_ours, marker_of
from rollout.domain.ladder import mode_of, rate_of, shares_of
from rollout.domain.preflight import findings, holder
from rollout.domain.receipts import Pair, Receipts, marker, receipts_of, spec_digest, take
from rollout.domain.shapes import conversion, weighted
from rollout.domain.state import Phase, StepName
from rollout.domain.weights import Rung, rungs, weight_during
from rollout.domain.world import RouteView, World
from rollout.errors import ExitCode, PlanError
from rollout.plan.hidden import keepable, keepable_pair
from rollout.rung.convert import already

Json = Any
MARKER_LIFE = timedelta(hours=96)
CLAIM_WAIT = 2.0


def check(ctx: Ctx) -> list[str]:
    """What is wrong before anything is touched: the plan on this world, and the inference key as it was last seen.

    Raises PlanError where the change unit cannot be applied.
    """
    plan, world, refused = ctx.the_plan, ctx.world, access.objection(ctx)
    wish = ctx.state.fact("adopt")
    if wish is None:
        found = findings(plan, world)
    else:
        known = world.route is not None and plan.stable[0].deployment in world.deployments
        shares = shares_of(adoption.sized(plan, world, wish["canary"]), adoption.beside(world, wish["canary"])) if known else ()
        found = adoption.refusals(plan, world, wish["canary"], shares, ctx.derive, ctx.diff)
    return [*found, *([refused] if refused else [])]


def decide(ctx: Ctx) -> Decision:
    """Receipts, then the claim, then on. After a takeover: the claim first, since the former owner may still write until then."""
    if ctx.state.fact("takeover") is not None:
        return take_over(ctx) or _go_on(ctx)
    if receipts_of(ctx.state) is None:
        return _declare(ctx)
    if ctx.state.fact("marker") is None:
        return _announce(ctx)
    return _claim(ctx)


def _declare(ctx: Ctx) -> Decision:
    held = holder(ctx.world)
    if held:
        return Finish(Phase.ABORTED, f"route {ctx.the_plan.route.name} is taken by {held}", ExitCode.ROUTE_TAKEN)
    asks = access.ask(ctx)
    if asks is not None:
        return asks
    try:
        found = check(ctx)
        if found:
            return _refuse(found)
        return Record(declaration(ctx), "declared: one change unit, receipts for the way back taken")
    except PlanError as error:
        return _refuse([f"{error.message} {error.why}".strip()])


def _refuse(found: list[str]) -> Finish:
    return Finish(Phase.ABORTED, f"refused: nothing was changed; {'; '.join(found)}", ExitCode.REFUSED, {"findings": found})


def declaration(ctx: Ctx) -> dict[str, Json]:
    """The facts that are fixed before the first write: receipts, specs, diff, evidence mode, ladder."""
    plan, world, wish = ctx.the_plan, ctx.world, ctx.state.fact("adopt")
    if world.route is None:
        msg = f"route {plan.route.name} is gone"
        raise PlanError(msg)
    if wish is not None:
        return _adopted(ctx, wish)
    seen = weighted(plan, world)
    shares, siblings = shares_of(plan, seen), len(world.route.targets) > 1
    names = {item.deployment for item in plan.stable}
    weights = {t.deployment: t.weight for t in (seen.route or world.route).targets if t.deployment in names}
    scaled = {n: weight_during(w, shares, siblings=siblings) for n, w in weights.items() if n is not None}
    return _fixed(ctx, world, _taken(ctx, world, world.route, scaled))


def _taken(ctx: Ctx, world: World, route: RouteView, scaled: dict[str, int]) -> Receipts:
    plan, drain = ctx.the_plan, ctx.the_plan.drain
    names = tuple(item.deployment for item in plan.stable)
    return take(
        ctx.state.id,
        route,
        names,
        scaled,
        drain.quiet,
        drain.deadline,
        replicas={name: world.deployments[name].replicas for name in names},
        gateway=carrier_of(world) is not Carrier.PROXY,
        converted=conversion(plan, world),
    )


def _adopted(ctx: Ctx, wish: dict[str, Json]) -> dict[str, Json]:
    """The same around a canary that a person made: the receipts go back to the route without it, and say what it was."""
    plan, name = ctx.the_plan, str(wish["canary"])
    world, target = adoption.beside(ctx.world, name), ctx.world.route.target_of(name) if ctx.world.route else None
    if world.route is None or target is None:
        msg = f"{name} is no longer a target of route {plan.route.name}"
        raise PlanError(msg)
    receipts = _taken(ctx, world, world.route, {})
    first = adoption.adopted(receipts.pairs[0], target, keep=not wish.get("delete"))
    receipts = receipts.model_copy(update={"pairs": (first, *receipts.pairs[1:])})
    facts = _fixed(ctx, world, receipts)
    others = receipts.siblings_weight(first)
    found = adoption.standing(rungs(facts["ladder"], first.scaled, others), first.scaled, target.weight, others)
    going = adoption.Going(StepName.ATTACH, 0, found.facts(0, ctx.now), f"{name} is adopted: {found.words}")
    return {**facts, **going.facts, "standing": going.fact(), "expected": {**facts["expected"], name: target.weight}}


def _fixed(ctx: Ctx, world: World, receipts: Receipts) -> dict[str, Json]:
    plan, first = ctx.the_plan, receipts.pairs[0]
    plan = adoption.sized(plan, world, first.canary) if first.adopted is not None else plan
    (mode, rate), shares = mode_of(plan, world), shares_of(plan, weighted(plan, world))
    specs, diff = _specs(ctx, world, receipts)
    return {
        "receipts": receipts.model_dump(mode="json"),
        "specs": specs,
        "found": {p.stable: keepable(dict(world.deployments[p.stable].spec)) for p in receipts.pairs},
        "diff": diff,
        "mode": mode,
        "rate": rate,
        "rate_source": rate_of(world, first.stable)[1],
        "ladder": list(shares),
        "carrier": carrier_of(world).value,
        "expected": {t.deployment: t.weight for t in receipts.targets},
    }


def _specs(ctx: Ctx, world: World, receipts: Receipts) -> tuple[dict[str, Json], dict[str, Json]]:
    """How each new deployment is derived, never the spec itself: an environment may hold secrets, and those are never stored."""
    plan = ctx.the_plan
    change = {"unit": plan.change.unit.value, "to": plan.change.to}
    specs: dict[str, Json] = {}
    diff: dict[str, Json] = {}
    for index, pair in enumerate(receipts.pairs):
        found = world.deployments[pair.stable].spec
        sizing = plan.canary_of(index).sizing.model_dump(exclude_none=True)
        derived = ctx.derive(found, change, sizing, pair.canary)
        if pair.adopted is not None:  # it runs already: what differs is read, and it is never made
            there = world.deployments[pair.canary].spec
            diff[pair.canary] = [[f, *keepable_pair(f, a, b, plan.change.to.get("env"))] for f, a, b in ctx.diff(found, there)]
            continue
        specs[pair.canary] = _recipe(pair.stable, change, sizing, derived)
        diff[pair.canary] = [[f, *keepable_pair(f, a, b, plan.change.to.get("env"))] for f, a, b in ctx.diff(found, derived)]
    first = receipts.pairs[0].stable
    sizing = {"worker": plan.stage.worker, "replicas": 1, **plan.stage.sizing.model_dump(exclude_none=True)}
    sizing = {k: v for k, v in sizing.items() if v is not None}
    derived = ctx.derive(world.deployments[first].spec, change, sizing, receipts.staging)
    specs[receipts.staging] = _recipe(first, change, sizing, derived)
    return specs, diff


def _recipe(base: str, change: Json, sizing: Json, derived: Json) -> dict[str, Json]:
    return {"base": base, "change": change, "sizing": sizing, "digest": spec_digest(derived)}


def _announce(ctx: Ctx) -> Decision:
    ours = marker(ctx.receipts, str(ctx.state.fact("store")), str(ctx.state.fact("nonce")), ctx.now + MARKER_LIFE)
    return Record({"marker": ours}, "marker for the route made")


def _claim(ctx: Ctx) -> Decision:
    wrote = ctx.at("claim")
    if not is_ours(ctx.state, ctx.world):
        if marker_of(ctx.world.route) is not None:
            return Finish(Phase.ABORTED, f"route {ctx.receipts.route} is taken by {holder(ctx.world)}", ExitCode.ROUTE_TAKEN)
        if wrote is not None:
            return Finish(Phase.ABORTED, f"the marker on route {ctx.receipts.route} was removed by somebody else", ExitCode.ROUTE_TAKEN)
        return act("mark_route", "claim the route: write the marker", "claim", route=ctx.receipts.route, marker=ctx.state.fact("marker"))
    if wrote is None:
        return Record({"claim": {"at": ctx.now.isoformat(), "already": True}}, "marker found as written")
    left = _still_open(ctx)
    if left > 0:
        return ctx.wait("reads the marker again: another claim may have been under way", left)
    if ctx.state.fact("claimed") is None:
        return Record({"claimed": {"at": ctx.now.isoformat()}}, "the route is ours")
    going = ctx.state.fact("standing")
    return _onwards(going) if going else Advance(StepName.STAGE, 0, "declared")


def _onwards(going: dict[str, Json]) -> Decision:
    return Advance(StepName(going["step"]), going["target"], going["why"])


def _go_on(ctx: Ctx) -> Decision:
    """After a takeover: with a plan from what the server shows, without one a person says what now."""
    going = ctx.state.fact("standing")
    if going is not None:
        return _onwards(going)
    if ctx.plan is None:
        hint = "`rollout rollback` goes back; `rollout takeover --plan` goes on"
        return HoldOn("taken_over", f"route {ctx.receipts.route} is ours, and there is no plan to go on with: {hint}", verbs=("rollback",))
    try:
        return _continuation(ctx)
    except PlanError as error:
        return HoldOn("drift", f"{error.message} {error.why}".strip(), verbs=("rollback", "resume"))


def _continuation(ctx: Ctx) -> Decision:
    receipts, world = ctx.receipts, adoption.as_found(ctx.world, ctx.receipts)
    gone = [p.stable for p in receipts.pairs if p.stable not in world.deployments]
    if gone:
        msg = f"{', '.join(gone)} is gone: the old side was being removed, and there is nothing to go on with"
        raise PlanError(msg)
    facts = _fixed(ctx, world, receipts)

    def ladder(pair: Pair) -> tuple[Rung, ...]:
        return rungs(facts["ladder"], pair.scaled, receipts.siblings_weight(pair))

    going = adoption.whereabouts(receipts, ctx.world, ladder, staged=ctx.the_plan.stage.skip is not None)
    if isinstance(going, str):
        raise PlanError(going)
    more = {"standing": going.fact(), "expected": adoption.expected(receipts, ctx.world), **already(receipts, ctx.world)}
    return Record({**facts, **going.facts, **more}, f"goes on from what the server shows: {going.why}")


def take_over(ctx: Ctx) -> Decision | None:
    """Claim a route that another rollout holds: the same protocol, over its marker. None when it is ours."""
    if ctx.state.fact("takeover") is None or ctx.state.fact("claimed"):
        return None
    wrote = ctx.at("claim")
    if wrote is None:
        why = "take the route over: write our marker over the other one"
        return act("mark_route", why, "claim", route=ctx.state.route, marker=ctx.state.fact("marker"), takeover=True)
    left = _still_open(ctx)
    if left > 0:
        return ctx.wait("reads the marker again: the former owner may still write", left)
    if not is_ours(ctx.state, ctx.world):
        return Finish(Phase.ABORTED, f"route {ctx.state.route} is taken by {holder(ctx.world)}", ExitCode.ROUTE_TAKEN)
    return Record({"claimed": {"at": ctx.now.isoformat()}}, "the route is ours")


def _still_open(ctx: Ctx) -> float:
    """Seconds in which another claim that was under way may still land: longer than any write takes."""
    seconds = float((ctx.state.fact("claim") or {}).get("seconds") or 0.0)
    return max(CLAIM_WAIT, 2 * seconds) - ctx.since(ctx.at("claim"))


def undo(ctx: Ctx) -> Decision | None:
    """The marker leaves the route last of all."""
    receipts = receipts_of(ctx.state)
    if receipts is None or ctx.state.fact("marker") is None or not is_ours(ctx.state, ctx.world):
        return None
    return act("unmark_route", "give the route back: remove the marker", "unmarked", route=receipts.route, meta=receipts.meta)
