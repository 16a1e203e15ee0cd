"""Step 5, shift: the further rungs, then 100 % by removing stable's target, then the drain of stable."""

from __future__ import annotations

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Advance, Decision, Halt, HoldOn, Record
from rollout.domain.draining import wait_empty
from rollout.domain.parking import come_back, impossible
from rollout.domain.receipts import Pair, Receipts, receipts_of
from rollout.domain.serve import route_active
from rollout.domain.state import StepName
from rollout.domain.world import answers_of
from rollout.rung.climb import climb
from rollout.rung.write import ACTIVE_WITHIN, capacity_gate, look_again

ABSENCE_PROBES = PRESENCE_PROBES = 20
WARM_PROBES = 8
"""own requests to a stable side that was just loaded, before it gets traffic: the first ones after a start are slow"""
SEEN_WITHIN = 60.0
"""seconds in which a stable side that was loaded should answer on the route; after that the route's own word counts"""
RETRY = 5.0
"""seconds until a stable side that did not answer is asked again"""


def decide(ctx: Ctx) -> Decision:
    """Climb, hand over, drain; then the next target or the window."""
    if ctx.state.fact(ctx.key("handed")) is None:
        below = [r for r in ctx.ladder(ctx.pair) if not r.full]
        for rung in below[1:]:
            step = climb(ctx, rung, last=rung is below[-1])
            if step is not None:
                return step
    return _hand_over(ctx) or _drain(ctx) or _next(ctx)


def _hand_over(ctx: Ctx) -> Decision | None:
    """Stable's target leaves, verified by traffic and looked at again after the settle time."""
    pair, route = ctx.pair, ctx.world.route
    if route is None:
        return HoldOn("drift", f"route {ctx.receipts.route} is gone")
    if route.target_of(pair.stable) is not None:
        gate = capacity_gate(ctx, ctx.key("full.capacity"), "capacity gate before 100 %")
        if gate is not None:
            return gate
        why = f"{pair.stable} leaves the route: {pair.canary} carries its share"
        return act("leave", why, ctx.key("handed"), route=route.name, deployment=pair.stable)
    if ctx.state.fact(ctx.key("handed")) is None:
        return Record({ctx.key("handed"): {"at": ctx.now.isoformat(), "already": True}}, "stable's target was found gone")
    left = ctx.the_plan.evidence.settle - ctx.since(ctx.at(ctx.key("handed")))
    if left > 0:
        return ctx.wait("settles before it is verified", left)
    return _absent(ctx, pair)


def _absent(ctx: Ctx, pair: Pair) -> Decision | None:
    """None once own requests are answered, and not by stable. What does not follow is asked again, refreshed once, then held.

    A route in the middle of a change may answer 404 or 503 for a moment: that is no deleted route either.
    """
    key, again = ctx.key("absent"), ctx.at(ctx.key("again"))
    seen = ctx.state.fact(key)
    if seen is None:
        return act("probe", f"own requests: does {pair.stable} still answer?", key, model=ctx.receipts.route, n=ABSENCE_PROBES)
    hits = answers_of(seen.get("models", {}), pair.stable)
    if hits == 0 and 2 * seen.get("ok", 0) >= seen.get("n", 1):
        return None
    wrote = again or ctx.at(ctx.key("handed"))
    if ctx.since(wrote) < ACTIVE_WITHIN:
        return look_again(ctx, key, wrote, f"{pair.stable} left, and the traffic has not followed yet")
    if again is None:
        return act("refresh", "drop the route's cached targets once more", ctx.key("again"), route=ctx.receipts.route)
    if hits:
        return HoldOn("weight_not_effective", f"{pair.stable} left the route but answered {hits} requests", clears=(key, ctx.key("again")))
    return HoldOn("probe_failed", f"production route does not answer: {seen.get('errors')}", clears=(key, ctx.key("again")))


def _drain(ctx: Ctx) -> Decision | None:
    plan, view = ctx.the_plan.drain, ctx.world.deployments.get(ctx.pair.stable)
    others = view.routes_beside(*ctx.receipts.probe_names) if view else []
    if others:  # it serves on and is not removed, so nothing has to be waited for
        return None
    return wait_empty(ctx, ctx.pair.stable, ctx.key("drain"), plan.quiet, plan.deadline, plan.on_timeout)


def _next(ctx: Ctx) -> Decision:
    following = ctx.state.target + 1
    if following < len(ctx.receipts.pairs):
        return Advance(StepName.ATTACH, following, f"{ctx.pair.stable} replaced and drained; next target")
    return Advance(StepName.CLEANUP, ctx.state.target, "all targets replaced and drained: the rollback window begins")


def undo(ctx: Ctx) -> Decision | None:
    """Every stable target that left is put back: it must be ready and answer before it gets a request, and active before we go on.

    What cannot come back is said before the first write; what is parked is loaded, all at the same time.
    """
    receipts = receipts_of(ctx.state)
    if receipts is None or ctx.world.route is None:
        return None
    away = [pair for pair in reversed(receipts.pairs) if ctx.world.route.target_of(pair.stable) is None]
    for pair in away:
        gone = impossible(ctx, pair)
        if gone is not None:
            return gone
    for pair in (p for p in away if ctx.world.deployments[p.stable].replicas == 0):
        loading = come_back(ctx, pair)
        if loading is not None:
            return loading
    for pair in reversed(receipts.pairs):
        step = _restore(ctx, receipts, pair)
        if step is not None:
            return step
    return None


def _restore(ctx: Ctx, receipts: Receipts, pair: Pair) -> Decision | None:
    route, view = ctx.world.route, ctx.world.deployments.get(pair.stable)
    target = route.target_of(pair.stable) if route else None
    if target is not None:
        touched = ctx.state.fact(f"undo.{pair.stable}.back") or (route and route.target_of(pair.canary))
        return _unavailable(ctx, pair) if touched and not target.active else _seen(ctx, receipts, pair)
    loading = come_back(ctx, pair)
    if loading is not None:
        return loading
    if view is None or not view.ready:
        ready = f"{view.ready_replicas} of {view.replicas}" if view else "gone"
        return Halt("stable_lost", f"{pair.stable} is not ready ({ready}): no traffic is sent to it")
    unproved = _answers(ctx, pair)
    if unproved is not None:
        return unproved
    found = receipts.found(pair.stable)
    extra = found.extra if found else {}
    why = f"{pair.stable} comes back with weight {pair.weight}"
    return act("join", why, f"undo.{pair.stable}.back", route=receipts.route, deployment=pair.stable, weight=pair.weight, extra=extra)


def _seen(ctx: Ctx, receipts: Receipts, pair: Pair) -> Decision | None:
    """A stable side that was loaded for this must answer on the route before the canary leaves it."""
    back, key = ctx.at(f"undo.{pair.stable}.back"), f"undo.{pair.stable}.seen"
    beside = ctx.world.route is not None and ctx.world.route.target_of(pair.canary) is not None
    if back is None or not beside or ctx.state.fact(f"undo.{pair.stable}.loaded") is None:
        return None
    seen = ctx.state.fact(key)
    if seen is not None and (seen.get("models", {}).get(pair.stable) or ctx.since(back) > SEEN_WITHIN):
        return None
    if seen is not None and ctx.since(ctx.at(key)) < 1:
        return ctx.wait(f"looks again whether {pair.stable} answers on the route")
    return act("probe", f"own requests: does {pair.stable} answer on the route?", key, model=receipts.route, n=PRESENCE_PROBES)


def _answers(ctx: Ctx, pair: Pair) -> Decision | None:
    """Stable has answered through its private route, which is made again where it is gone."""
    private, key = ctx.world.probe_routes.get(pair.stable_probe), f"undo.{pair.stable}.answered"
    if private is None or private.target_of(pair.stable) is None:
        why = f"private route {pair.stable_probe} to {pair.stable}: does it answer?"
        return act("create_probe_route", why, None, name=pair.stable_probe, deployment=pair.stable)
    waits = route_active(ctx, pair.stable_probe)
    if waits is not None:
        return waits
    probes = WARM_PROBES if ctx.state.fact(f"undo.{pair.stable}.loaded") else 1
    seen = ctx.state.fact(key)
    if seen is None or (seen.get("ok", 0) < 1 and ctx.since(ctx.at(key)) > RETRY):
        return act("probe", f"does {pair.stable} answer before it gets traffic?", key, model=pair.stable_probe, n=probes)
    if seen.get("ok", 0) < 1:
        return Halt("stable_lost", f"{pair.stable} is ready but does not answer: {seen.get('errors')}")
    return None


def _unavailable(ctx: Ctx, pair: Pair) -> Decision:
    """A target that was just put back takes a moment to become active; one that was there all the time is lost."""
    back = ctx.at(f"undo.{pair.stable}.back")
    if back is not None and ctx.since(back) < ACTIVE_WITHIN:
        return ctx.wait(f"target of {pair.stable} becomes active", 0.25)
    return Halt("stable_lost", f"target of {pair.stable} is not active: nothing is taken from the canary")
