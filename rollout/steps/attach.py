"""Step 3, attach: the canary runs, is ready and warm, and is dark: no user request reaches it, and that is proved."""

from __future__ import annotations

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Advance, Decision, HoldOn, TakeBack
from rollout.domain.draining import undo_key, wait_empty
from rollout.domain.health import siblings_lost
from rollout.domain.receipts import Pair, receipts_of
from rollout.domain.serve import bring_up, private_route, route_active, take_down, warm_up
from rollout.domain.state import StepName
from rollout.domain.world import answers_of

DARK_PROBES = 20


def decide(ctx: Ctx) -> Decision:
    """Bring up, give stable a private route too, warm, prove dark."""
    pair = ctx.pair
    if pair.adopted is not None and pair.canary not in ctx.world.deployments:
        return TakeBack("canary_gone", f"{pair.canary}, which was adopted, was deleted by somebody else")
    up = bring_up(ctx, pair.canary, pair.canary_probe, ctx.key("attach"), ctx.the_plan.ready_within)
    return up or _stable_probe(ctx, pair) or _warm(ctx, pair) or _dark(ctx, pair)


def _stable_probe(ctx: Ctx, pair: Pair) -> Decision | None:
    route = ctx.world.probe_routes.get(pair.stable_probe)
    if route is None or route.target_of(pair.stable) is None:
        why = f"private route {pair.stable_probe} to {pair.stable}, for paired probes"
        return private_route(ctx, pair.stable_probe, pair.stable, why)
    return route_active(ctx, pair.stable_probe)


def _warm(ctx: Ctx, pair: Pair) -> Decision | None:
    warm = ctx.state.fact(ctx.key("warm"))
    if warm and 2 * warm.get("ok", 0) < warm.get("n", 1):
        return HoldOn(
            "not_ready", f"{pair.canary} answered {warm.get('ok')} of {warm.get('n')} warm-up requests", clears=(ctx.key("warm"),)
        )
    if warm:
        return None
    return warm_up(ctx, pair.canary_probe, f"warm {pair.canary} (not evidence)", ctx.key("warm"))


def _dark(ctx: Ctx, pair: Pair) -> Decision:
    """Dark is proved twice: no route but our private one names the canary, and the production route answers from others.

    A canary that was found in the route, by hand or by the rollout before us, is not dark, and nothing is proved about it.
    """
    found = ctx.state.fact(ctx.key("found"))
    if found is not None:
        lit = f"{pair.canary} runs and is warm; it was found in the route with weight {found['weight']}, so it is not dark"
        return Advance(StepName.CANARY, ctx.state.target, lit)
    foreign = _foreign(ctx, pair)
    if foreign:
        return HoldOn("drift", f"{pair.canary} should be dark, but {', '.join(foreign)} sends to it")
    lost = siblings_lost(ctx.receipts, pair, ctx.world)
    if lost:
        return HoldOn("target_unavailable", lost)
    seen = ctx.state.fact(ctx.key("dark"))
    if seen is None:
        return act("probe", "prove dark: who answers on the production route?", ctx.key("dark"), model=ctx.receipts.route, n=DARK_PROBES)
    if answers_of(seen.get("models", {}), pair.canary):
        return HoldOn("drift", f"{pair.canary} answered on the production route while it should be dark", clears=(ctx.key("dark"),))
    if seen.get("ok", 0) < seen.get("n", 1):
        detail = f"production route answered {seen.get('ok')} of {seen.get('n')} probes: {seen.get('errors')}"
        return HoldOn("probe_failed", detail, clears=(ctx.key("dark"),))
    return Advance(StepName.CANARY, ctx.state.target, f"{pair.canary} runs, is warm and dark")


def _foreign(ctx: Ctx, pair: Pair) -> list[str]:
    """Routes that send to the canary and are not ours."""
    view = ctx.world.deployments.get(pair.canary)
    return view.routes_beside(pair.canary_probe) if view else []


def undo(ctx: Ctx) -> Decision | None:
    """Every canary that is out of the route is drained, then removed with its private routes. One that a person made stays."""
    receipts = receipts_of(ctx.state)
    if receipts is None:
        return None
    for pair in reversed(receipts.pairs):
        if pair.keep and pair.canary_probe in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {pair.canary_probe}", None, name=pair.canary_probe)
        foreign = [] if pair.keep else _foreign(ctx, pair)
        if foreign:
            detail = f"{pair.canary} stays for now: {', '.join(foreign)} sends to it; take it out of there, and this goes on"
            return HoldOn("in_use", detail, verbs=("run",))
        if pair.canary in ctx.world.deployments and not pair.keep:
            empty = wait_empty(ctx, pair.canary, undo_key(pair.canary), receipts.quiet, receipts.drain_deadline, "hold")
            if empty is not None:
                return empty
        down = None if pair.keep else take_down(ctx, pair.canary, pair.canary_probe)
        if down is not None:
            return down
        if pair.stable_probe in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {pair.stable_probe}", None, name=pair.stable_probe)
    return None
