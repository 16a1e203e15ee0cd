"""Stable out of memory and back: parked with replicas 0 in the window, loaded again before anything leaves for it. Pure.

Only what is empty, restorable and used by nobody else is parked; whoever goes back waits with a deadline, and sees the time.
"""

from __future__ import annotations

from datetime import timedelta

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, Halt, HoldOn, Record
from rollout.domain.draining import wait_empty
from rollout.domain.health import serving
from rollout.domain.receipts import Pair
from rollout.domain.restore import NOT, about, crowded, kept_of, load_time, restorable, unloadable

DRAIN_HOLDS = 60.0
"""seconds for which an empty side is believed empty; then it is looked at again"""
TRIES_AGAIN = 900.0
"""seconds until a side that was not empty within the drain's deadline is looked at again"""
PASSING = frozenset({"worker", "memory"})
"""causes that may go away by themselves"""
END_IT = "; say rollback again to end it as it is"
READY_WITHIN = 1800.0
"""seconds a stable side may load when no plan says otherwise"""


def park(ctx: Ctx, pair: Pair) -> Decision | None:
    """The next thing towards replicas 0; None where it stays as it is."""
    window, view, key = ctx.the_plan.window, ctx.world.deployments.get(pair.stable), f"park.{pair.stable}"
    if window.keep == "warm" or view is None or not view.ready or ctx.since(ctx.state.entered) < window.warm:
        return None
    if ctx.state.fact(key) is None:
        need = "the plan says so" if window.keep == "parked" else crowded(ctx, pair)
        return Record({key: {"at": ctx.now.isoformat(), "why": need}}, f"{pair.stable} is to be parked: {need}") if need else None
    obstacle = _obstacle(ctx, pair)
    if ctx.state.fact(f"{key}.not") != obstacle:
        return Record({f"{key}.not": obstacle}, f"{pair.stable} is not parked: {obstacle}" if obstacle else f"{pair.stable} can be parked")
    if obstacle or not allowed(ctx):
        return None
    drained, busy = f"{key}.drain", ctx.at(f"{key}.busy")
    if busy is not None and ctx.since(busy) < TRIES_AGAIN:
        return None
    if ctx.since(ctx.at(drained)) > DRAIN_HOLDS:
        return Record({drained: None}, f"{pair.stable} was found empty a while ago: looks again")
    plan = ctx.the_plan.drain
    empty = wait_empty(ctx, pair.stable, drained, plan.quiet, plan.deadline, "hold")
    if isinstance(empty, HoldOn):  # nothing is lost while it goes on running: no person is asked
        return Record({drained: None, f"{key}.busy": {"at": ctx.now.isoformat()}}, f"not parked, tries again later: {empty.detail}")
    if empty is not None:
        return empty
    why = f"park {pair.stable}: replicas {view.replicas} -> 0; a rollback loads it again, {about(load_time(ctx, pair))}"
    return act("scale", why, f"parked.{pair.stable}", name=pair.stable, replicas=0)


def allowed(ctx: Ctx) -> bool:
    """Whether a person, or the plan, lets stable be parked."""
    return ctx.the_plan.window.approval == "none" or ctx.state.fact("said.approve_park") is not None


def asked_for(ctx: Ctx, pair: Pair) -> bool:
    """Whether it would be parked if somebody said so."""
    key, view = f"park.{pair.stable}", ctx.world.deployments.get(pair.stable)
    running = view is not None and view.replicas > 0
    return running and ctx.state.fact(key) is not None and ctx.state.fact(f"{key}.not") is None and not allowed(ctx)


def _obstacle(ctx: Ctx, pair: Pair) -> str | None:
    """Why it must go on running."""
    view, record = ctx.world.deployments[pair.stable], kept_of(ctx, pair)
    used = sorted(set(view.routes) - set(ctx.receipts.probe_names))
    if used:
        return f"{', '.join(used)} sends to it"
    if pair.replicas != view.replicas:
        return f"it has {view.replicas} replicas, and {pair.replicas or 'unknown'} were found"
    bare = sorted(set(record.get("workers") or {"its worker": None}) - {f["worker"] for f in record.get("files") or ()})
    if bare:
        return f"no model file was seen on {', '.join(bare)}, so it cannot be verified that it would load"
    blocked = unloadable(ctx, pair, view)
    if blocked is not None:
        return blocked.why
    successor = ctx.world.deployments.get(pair.canary)
    if successor is None or not successor.ready or not serving(ctx.world, pair.canary):
        return f"{pair.canary} does not serve in full"
    return None


def impossible(ctx: Ctx, pair: Pair) -> HoldOn | Halt | None:
    """Said before anything is written: what a way back to a stable side that does not run needs is gone, or not there now."""
    can, view = restorable(ctx, pair), ctx.world.deployments.get(pair.stable)
    if can.word != NOT or (view is not None and view.replicas > 0):
        return None
    if can.cause in PASSING:
        return Halt("stable_lost", f"{pair.stable} is parked and cannot be loaded now: {can.why}")
    detail = f"{can.why} (its spec is in the journal){END_IT}"
    return HoldOn("rollback_impossible", detail, verbs=("resume", "rollback"))


def come_back(ctx: Ctx, pair: Pair) -> Decision | None:
    """The next thing until a stable side that was parked is ready; None when it is, or when it was not parked."""
    view, base = ctx.world.deployments[pair.stable], f"undo.{pair.stable}"
    scaled = ctx.at(f"{base}.scaled")
    late = ctx.unsure()
    if late is not None and late.verb == "scale" and late.args["name"] == pair.stable and late.args["replicas"] == 0:
        return ctx.wait(f"the order to park {pair.stable} was not answered and may still land")
    if view.replicas == 0:
        why = f"load {pair.stable} again: replicas 0 -> {pair.replicas}, {about(load_time(ctx, pair))}"
        return act("scale", why, f"{base}.scaled", name=pair.stable, replicas=pair.replicas)
    if scaled is None:
        return None
    took = ctx.since(scaled)
    if view.ready:
        done = {f"{base}.loaded": {"at": ctx.now.isoformat(), "seconds": round(took, 1)}}
        return None if ctx.state.fact(f"{base}.loaded") else Record(done, f"{pair.stable} is loaded: it took {took:.0f} s")
    return _loads(ctx, pair, took)


def _loads(ctx: Ctx, pair: Pair, took: float) -> Decision:
    within = ctx.plan.ready_within if ctx.plan is not None else READY_WITHIN
    rows = ctx.world.deployments[pair.stable].instances
    states = "; ".join(f"{i.state} {i.message}".strip() for i in rows) or "not scheduled yet"
    if took > within:
        return HoldOn("rollback_slow", f"{pair.stable} is not ready {took:.0f} s after it was started: {states}")
    expected = load_time(ctx, pair)
    left = f"about {expected - took:.0f} s left" if expected is not None and expected > took else about(expected)
    return ctx.wait(f"{pair.stable} loads ({states}), {left}", deadline=ctx.now + timedelta(seconds=within - took))
