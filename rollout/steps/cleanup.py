"""Step 6, cleanup: wait out the rollback window with stable restorable; then, after approval, remove the old side."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from rollout.domain import window
from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, Finish, HoldOn, Record, Wait
from rollout.domain.draining import wait_empty
from rollout.domain.files import delete_files, removal_list
from rollout.domain.health import serving
from rollout.domain.parking import asked_for, park
from rollout.domain.receipts import Pair
from rollout.domain.restore import NOT, Restorable, restorable
from rollout.domain.serve import take_down
from rollout.domain.state import Phase

Json = Any
LOOK = 60.0
"""seconds between looks during the window"""


def decide(ctx: Ctx) -> Decision:
    """Window, approval, then one thing after another; nothing that anybody still uses is touched."""
    return _window(ctx) or _approval(ctx) or _remove(ctx) or _release(ctx)


def _window(ctx: Ctx) -> Decision | None:
    """Open it, tell what a rollback would take, warn before one is needed that is not possible, park, wait."""
    if ctx.state.fact("cleanup.began") is not None:
        return None
    if ctx.state.fact(window.FACT) is None:
        return Record({window.FACT: window.opening(ctx)}, "the rollback window begins; what a rollback needs is written down")
    can = {pair.stable: restorable(ctx, pair) for pair in ctx.receipts.pairs}
    told = _tell(ctx, can)
    if told is not None:
        return told
    left = window.left(ctx)
    if left is None:
        return None
    return _lost(ctx, can) or _park(ctx) or _wait(ctx, left, can)


def _tell(ctx: Ctx, can: dict[str, Restorable]) -> Decision | None:
    """Journal what became of the way back, whenever that is another thing than before."""
    before = ctx.state.fact("restorable") or {}
    new = {n: c for n, c in can.items() if (c.word, c.cause) != ((seen := before.get(n) or {}).get("word"), seen.get("cause"))}
    if not new:
        return None
    facts = {n: {"word": c.word, "cause": c.cause, "why": c.why, "seconds": c.seconds} for n, c in can.items()}
    return Record({"restorable": facts}, "; ".join(f"{n}: {c.told}" for n, c in new.items()))


def _lost(ctx: Ctx, can: dict[str, Restorable]) -> Decision | None:
    """A rollback became impossible: a person is told now. An approval of the removal says that this is accepted."""
    lost = [c.why for c in can.values() if c.word == NOT]
    if not lost or ctx.state.fact("said.approve"):
        return None
    detail = f"a rollback is impossible now: {'; '.join(lost)}; put it back, or approve the removal of the old side"
    return HoldOn("not_restorable", detail, verbs=("approve", "resume"))


def _park(ctx: Ctx) -> Decision | None:
    return next((step for pair in ctx.receipts.pairs if (step := park(ctx, pair)) is not None), None)


def _wait(ctx: Ctx, left: window.Left, can: dict[str, Restorable]) -> Wait:
    """The next look, at the latest when something is due."""
    due = ctx.state.entered + timedelta(seconds=ctx.the_plan.window.warm)
    ends = [left.until, *([due] if due > ctx.now else [])]
    more = f" at the latest ({left.missing})" if left.missing else ""
    asks = [pair.stable for pair in ctx.receipts.pairs if asked_for(ctx, pair)]
    parks = f"; `rollout approve --park` lets {', '.join(asks)} be parked" if asks else ""
    said = "; ".join(f"{name} {one.told}" for name, one in can.items())
    why = f"rollback window until {left.latest:%Y-%m-%d %H:%M:%S} UTC{more}; {said}{parks}"
    return Wait(min(ctx.now + timedelta(seconds=LOOK), *ends), why, left.latest)


def _approval(ctx: Ctx) -> Decision | None:
    if ctx.the_plan.cleanup.approval == "none" or ctx.state.fact("said.approve") or ctx.state.fact("cleanup.began"):
        return None
    goes = "; ".join(removal_list(ctx))
    return HoldOn("approval", f"the window is over; approve what goes: {goes}", verbs=("approve", "rollback"))


def _remove(ctx: Ctx) -> Decision | None:
    for pair in ctx.receipts.pairs:
        view = ctx.world.deployments.get(pair.canary)
        if view is None or not view.ready or not serving(ctx.world, pair.canary):
            return HoldOn("canary_unavailable", f"{pair.canary} does not serve in full: nothing of the old side is removed")
    if ctx.state.fact("cleanup.began") is None:
        goes = removal_list(ctx)
        why = f"cleanup begins, from here a rollback needs a new plan; what goes: {'; '.join(goes)}"
        return Record({"cleanup.began": {"at": ctx.now.isoformat(), "goes": goes}}, why)
    for pair in ctx.receipts.pairs:
        step = _retire(ctx, pair)
        if step is not None:
            return step
        if pair.canary_probe in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {pair.canary_probe}", None, name=pair.canary_probe)
    return delete_files(ctx)


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
    return Finish(Phase.COMPLETED, "; ".join(["the new side is stable", *_left_over(ctx)]), 0)


def _left_over(ctx: Ctx) -> Iterator[str]:
    """What was kept, and what was deleted from disk, in words."""
    for key, value in ctx.state.facts.items():
        if key.startswith("cleanup.kept."):
            yield value
        elif key.startswith("cleanup.freed."):
            yield value["why"]


def undo(_ctx: Ctx) -> Decision | None:
    """Nothing to put back: what the window kept is put back by `shift`."""
    return None
