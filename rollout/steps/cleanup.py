"""Step 6, cleanup: wait out the rollback window with stable restorable; then, after approval, remove the old side."""

from __future__ import annotations

from datetime import timedelta

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, Finish, HoldOn, Record, Wait
from rollout.domain.draining import wait_empty
from rollout.domain.health import serving
from rollout.domain.receipts import Pair
from rollout.domain.serve import take_down
from rollout.domain.state import Phase

LOOK = 60.0
"""seconds between looks during the window"""


def decide(ctx: Ctx) -> Decision:
    """Window, approval, then one thing after another; nothing that anybody still uses is touched."""
    return _window(ctx) or _approval(ctx) or _remove(ctx) or _release(ctx)


def _window(ctx: Ctx) -> Decision | None:
    ends = ctx.state.entered + timedelta(seconds=ctx.the_plan.window.duration)
    left = (ends - ctx.now).total_seconds()
    if left <= 0:
        return None
    gone = [p.stable for p in ctx.receipts.pairs if not (v := ctx.world.deployments.get(p.stable)) or not v.ready]
    note = f"; NOT restorable at once: {', '.join(gone)}" if gone else "; stable is warm"
    return Wait(ctx.now + timedelta(seconds=min(left, LOOK)), f"rollback window until {ends:%Y-%m-%d %H:%M:%S} UTC{note}", ends)


def _approval(ctx: Ctx) -> Decision | None:
    if ctx.the_plan.cleanup.approval == "none" or ctx.state.fact("said.approve"):
        return None
    names = ", ".join(p.stable for p in ctx.receipts.pairs)
    return HoldOn("approval", f"the window is over; approve the removal of {names}", verbs=("approve", "rollback"))


def _remove(ctx: Ctx) -> Decision | None:
    for pair in ctx.receipts.pairs:
        view = ctx.world.deployments.get(pair.canary)
        if view is None or not view.ready or not serving(ctx.world, pair.canary):
            return HoldOn("canary_unavailable", f"{pair.canary} does not serve in full: nothing of the old side is removed")
    if ctx.state.fact("cleanup.began") is None:
        return Record({"cleanup.began": {"at": ctx.now.isoformat()}}, "cleanup begins: from here a rollback needs a new plan")
    for pair in ctx.receipts.pairs:
        step = _retire(ctx, pair)
        if step is not None:
            return step
        if pair.canary_probe in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {pair.canary_probe}", None, name=pair.canary_probe)
    return None


def _retire(ctx: Ctx, pair: Pair) -> Decision | None:
    """Remove stable's private route, see it empty, then delete it; kept when another route uses it."""
    if pair.stable_probe in ctx.world.probe_routes:
        return act("delete_probe_route", f"remove private route {pair.stable_probe}", None, name=pair.stable_probe)
    view = ctx.world.deployments.get(pair.stable)
    if view is None:
        return None
    key = f"cleanup.kept.{pair.stable}"
    if view.routes:
        kept = f"{pair.stable} stays: {', '.join(view.routes)} still sends to it"
        return None if ctx.state.fact(key) else Record({key: kept}, kept)
    plan = ctx.the_plan.drain
    empty = wait_empty(ctx, pair.stable, f"cleanup.drain.{pair.stable}", plan.quiet, plan.deadline, "hold")
    return empty or take_down(ctx, pair.stable, pair.stable_probe)


def _release(ctx: Ctx) -> Decision:
    if ctx.state.fact("unmarked") is None:
        meta = ctx.receipts.meta
        return act("unmark_route", "give the route back: remove the marker", "unmarked", route=ctx.receipts.route, meta=meta)
    kept = [v for k, v in ctx.state.facts.items() if k.startswith("cleanup.kept.")]
    return Finish(Phase.COMPLETED, "; ".join(["the new side is stable", *kept]), 0)


def undo(_ctx: Ctx) -> Decision | None:
    """Nothing to put back: what the window kept is put back by `shift`."""
    return None
