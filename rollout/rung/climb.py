"""One rung from write to verdict: settle, watch, judge, expose. The steps `canary` and `shift` ask for the next thing."""

from __future__ import annotations

from rollout.domain.context import Ctx
from rollout.domain.decision import Decision, HoldOn, Record, TakeBack
from rollout.domain.health import memory_below, siblings_lost
from rollout.domain.weights import Rung
from rollout.rung import evidence
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
    return step or Record({left: {"at": ctx.now.isoformat()}}, f"rung {rung.pair_share:.2%} held")


def _guard(ctx: Ctx) -> Decision | None:
    """What takes the canary back, or holds, before anything else on a rung is looked at."""
    pair, view = ctx.pair, ctx.world.deployments.get(ctx.pair.canary)
    if view is None:
        return TakeBack("canary_gone", f"deployment {pair.canary} was deleted by somebody else")
    below = memory_below(ctx.world, pair.canary, ctx.the_plan.guards.memory_floor)
    if below:
        return TakeBack("memory_floor", below)
    lost = siblings_lost(ctx.receipts, pair, ctx.world)
    if lost:
        return HoldOn("target_unavailable", lost)
    return None
