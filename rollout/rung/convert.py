"""Give a route without weights its weights before the first rung, and take them back when all else is undone. Pure.

One write of all targets, since the server takes all weights or none; with the gateway off requests may be lost meanwhile, so the
plan had to accept that. What is ours is told by the world alone: a target that shows the very weight which we gave it.
"""

from __future__ import annotations

from typing import Any

from rollout.domain.context import Ctx, act, awaited
from rollout.domain.decision import Decision, HoldOn, Record
from rollout.domain.receipts import Receipts
from rollout.domain.world import RouteView, World, named

Json = Any

DONE, SETTLED = "converted", "converted.active"


def convert(ctx: Ctx) -> Decision | None:
    """The next thing until the route has its weights and serves; None when it does, or had weights of its own."""
    receipts, route = ctx.receipts, ctx.world.route
    if not receipts.converted or ctx.state.fact(SETTLED):
        return None
    if route is None:
        return HoldOn("drift", f"route {receipts.route} is gone")
    away = [named(t) for t in route.targets if not t.active and named(t) in receipts.converted]
    if ctx.state.fact(DONE) is None:
        if away:
            return HoldOn("target_unavailable", f"{', '.join(away)} not active: the route gets no weights now")
        told = ", ".join(f"{name} {weight}" for name, weight in receipts.converted.items())
        why = f"give route {route.name} weights, all in one write: {told}"
        return act("reweigh", why, DONE, route=route.name, weights=dict(receipts.converted))
    why = "every target serves again after the write of the weights"
    waits = awaited(ctx, not away, f"{DONE}.away", ctx.the_plan.ready_within, why, "target_unavailable", 0.25)
    return waits or Record({SETTLED: {"at": ctx.now.isoformat()}}, "the route has weights, and every target serves")


def unconvert(ctx: Ctx, receipts: Receipts) -> Decision | None:
    """Every target gets the weight it was found with, once canaries are out and stable is back."""
    route = ctx.world.route
    back = _ours(receipts, route) if route is not None else {}
    if route is None or not back:
        return None
    known = {t.deployment: (t.weight, receipts.converted.get(t.deployment, t.weight)) for t in receipts.targets}
    other = [f"{named(t)} {t.weight}" for t in route.targets if t.weight not in known.get(named(t), ())]
    if other:
        told = ", ".join(f"{name} {weight}" for name, weight in back.items())
        detail = f"somebody else set {', '.join(other)} on route {route.name}, and weights are all or none: remove that target,"
        return HoldOn("drift", f"{detail} or write the whole route without weights by hand (found: {told}); then `rollout resume`")
    why = f"route {route.name} balances again as it was found: its weights are taken back in one write"
    return act("reweigh", why, "undo.converted", route=route.name, weights=back)


def already(receipts: Receipts, world: World) -> dict[str, Json]:
    """What the state must hold when a rollout is gone on with whose route shows the weights that it was given."""
    if world.route is None or not _ours(receipts, world.route):
        return {}
    at = {"at": world.now.isoformat(), "already": True}
    return {DONE: at, SETTLED: at}


def _ours(receipts: Receipts, route: RouteView) -> dict[str, int]:
    """The found weights of targets that still show what the conversion gave them."""
    found = {t.deployment: t.weight for t in receipts.targets}
    mine = [named(t) for t in route.targets if receipts.converted.get(named(t)) == t.weight != found.get(named(t))]
    return {name: found[name] for name in mine if name in found}
