"""One rung from write to verdict: settle, watch, judge, expose. The steps `canary` and `shift` ask for the next thing."""

from __future__ import annotations

from rollout.domain.context import Ctx
from rollout.domain.decision import Decision, Halt, HoldOn, Record, TakeBack
from rollout.domain.health import memory_below, memory_unknown, serving, siblings_lost
from rollout.domain.receipts import Pair, receipts_of
from rollout.domain.restore import BY_LOADING, about, restorable
from rollout.domain.weights import Rung
from rollout.rung import evidence, windows
from rollout.rung.write import settle

CANARY_GRACE = 120.0
"""seconds a canary may be away before a person is asked; its share goes to stable meanwhile"""


def climb(ctx: Ctx, rung: Rung, *, last: bool) -> Decision | None:
    """The next thing on this rung; None once it was left: then it is not looked at again.

    On the last rung below 100 % a PASS is required.
    """
    left = ctx.key("rung", rung.index, "left")
    if ctx.state.fact(left):
        return None
    step = _guard(ctx) or settle(ctx, rung) or evidence.judge(ctx, rung, last=last)
    accepted = {"said.accept_inconclusive": None}  # a person's word holds for the rung it was said on
    if step is not None:
        return step
    said = (ctx.state.fact(ctx.key("judge")) or {}).get("verdict", {}).get("sentence", "") if last else ""
    held = f"rung {rung.pair_share:.2%} held" + (f": {said}" if said else "")
    return Record({left: {"at": ctx.now.isoformat()}, **accepted}, held)


def listen(ctx: Ctx) -> Decision | None:
    """While a person holds a rung: no step forward, but guards, windows and a FAIL go on."""
    rung = next((r for r in ctx.ladder(ctx.pair) if not r.full and _judged(ctx, r)), None) if _declared(ctx) else None
    if rung is None or ctx.world.route is None or ctx.world.route.target_of(ctx.pair.canary) is None:
        return None
    return _guard(ctx) or evidence.listen(ctx, rung)


def _declared(ctx: Ctx) -> bool:
    return receipts_of(ctx.state) is not None


def _judged(ctx: Ctx, rung: Rung) -> bool:
    key = ctx.key("rung", rung.index)
    return ctx.state.fact(f"{key}.proved") is not None and ctx.state.fact(f"{key}.left") is None


def watch(ctx: Ctx) -> Decision | None:
    """Sides that were handed over, until the cleanup begins: there is no control any more, so the breaker and the floor alone decide.

    A canary that serves nobody, that fails 8 of its last 20 requests or that breaks the memory floor is taken back while stable is
    warm, or parked and able to load. When it is neither, nothing is written and a person is needed.
    """
    if not _declared(ctx) or ctx.state.fact("cleanup.began"):
        return None
    for index, pair in enumerate(ctx.receipts.pairs):
        if ctx.state.fact(f"{index}.handed") is None or ctx.world.route is None or ctx.world.route.target_of(pair.canary) is None:
            continue
        cause = _down(ctx, pair) or memory_below(ctx.world, pair.canary, ctx.the_plan.guards.memory_floor)
        if cause:
            return _lost(ctx, pair, cause)
        step = windows.breaker(ctx, pair, f"{index}.after")
        if step is not None:
            return step
    return None


def _lost(ctx: Ctx, pair: Pair, cause: str) -> Decision:
    stable, back = ctx.world.deployments.get(pair.stable), restorable(ctx, pair)
    if stable is not None and stable.ready:
        return TakeBack("canary_lost", f"{cause}; {pair.stable} is warm")
    if stable is not None and stable.replicas == 0 and back.word == BY_LOADING:
        return TakeBack("canary_lost", f"{cause}; {pair.stable} is parked: {about(back.seconds)} to load")
    return Halt("canary_lost", f"{cause}, and {pair.stable} is not ready either" + (f": {back.why}" if back.why else ""))


def _down(ctx: Ctx, pair: Pair) -> str | None:
    view = ctx.world.deployments.get(pair.canary)
    if view is None or not any(i.running for i in view.instances):
        return f"{pair.canary} has no running instance"
    return None


def _guard(ctx: Ctx) -> Decision | None:
    """What takes the canary back, or holds, before anything else on a rung is looked at."""
    pair, view = ctx.pair, ctx.world.deployments.get(ctx.pair.canary)
    if view is None:
        return TakeBack("canary_gone", f"deployment {pair.canary} was deleted by somebody else")
    below = memory_below(ctx.world, pair.canary, ctx.the_plan.guards.memory_floor)
    if below:
        return TakeBack("memory_floor", below)
    away = _away(ctx)
    if away is not None:
        return away
    lost = siblings_lost(ctx.receipts, pair, ctx.world)
    if lost:
        return HoldOn("target_unavailable", lost)
    return None


def _away(ctx: Ctx) -> Decision | None:
    """A canary in the route that does not serve: its share goes to stable; after a while a person is asked."""
    pair, key = ctx.pair, ctx.key("away")
    inside = ctx.world.route is not None and ctx.world.route.target_of(pair.canary) is not None
    if not inside or serving(ctx.world, pair.canary):
        again = f"{pair.canary} serves again"
        return Record({key: None, **ctx.interrupted()}, again) if ctx.state.fact(key) else _unknown(ctx)
    if ctx.state.fact(key) is None:
        return Record({key: {"at": ctx.now.isoformat()}, ctx.key("base"): None}, f"{pair.canary} does not serve; its share goes to stable")
    if ctx.since(ctx.at(key)) > CANARY_GRACE:
        return HoldOn("canary_unavailable", f"{pair.canary} has not served for {CANARY_GRACE:.0f} s; its share goes to stable")
    return ctx.wait(f"{pair.canary} serves again", 1.0)


def _unknown(ctx: Ctx) -> Decision | None:
    unknown = memory_unknown(ctx.world, ctx.pair.canary) if ctx.the_plan.guards.unknown_memory == "hold" else None
    return HoldOn("memory", unknown) if unknown else None
