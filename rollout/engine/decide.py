"""decide(plan, state, world): the one next thing. Pure; no `if step ==` here.

Order is the behaviour: undo before everything, then what must not go on (drift, stable lost), then a person's pause and gates,
then the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollout.domain import credentials, health
from rollout.domain.access import pause
from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, Finish, Halt, HoldOn, Record
from rollout.domain.effects import satisfied
from rollout.domain.parking import END_IT
from rollout.domain.preflight import holder
from rollout.domain.receipts import receipts_of
from rollout.domain.state import Phase, StepName
from rollout.engine import only
from rollout.errors import ExitCode
from rollout.rung.climb import listen, watch
from rollout.steps import DECIDE, UNDO, declare, stage
from rollout.steps.declare import take_over

Json = Any
RETRY_UNDO = 10.0
"""seconds after which a write that was refused during an undo is tried again"""
REFUSED_UNDO = 120.0
"""seconds of refusals on the way back until a person is asked"""
GATED: Mapping[StepName, str] = {StepName.STAGE: "stage", StepName.ATTACH: "attach", StepName.CANARY: "canary", StepName.SHIFT: "shift"}


def decide(ctx: Ctx) -> Decision:
    """The next single thing for this rollout."""
    if ctx.state.fact(only.FACT) is not None:
        return only.undo(ctx) if ctx.state.undo is not None else _refused(ctx) or _paused(ctx) or only.decide(ctx)
    if ctx.state.undo is not None:
        return _undo(ctx)
    return (
        _lost(ctx)
        or watch(ctx)
        or _canary_back(ctx)
        or _unmarked(ctx)
        or _drifted(ctx)
        or _refused(ctx)
        or _expiring(ctx)
        or _paused(ctx)
        or _gate(ctx)
        or DECIDE[ctx.state.step](ctx)
    )


def _undo(ctx: Ctx) -> Decision:
    said = ctx.state.undo
    first = _missing(ctx) or _refused(ctx) or take_over(ctx)
    if first is not None:
        return first
    unsure = ctx.unsure()
    if unsure is not None and satisfied(unsure, ctx.world):
        return Record({"unsure": None}, f"it landed after all: {unsure.why}")
    owned = ctx.state.fact("claimed") is not None or receipts_of(ctx.state) is None
    undos = (stage.undo, _tidy, declare.undo) if ctx.state.fact("given_up") else UNDO
    for undo in undos if owned else (declare.undo,):  # a route that was never won is not ours to put back
        step = undo(ctx)
        if step is not None:
            return step
    if ctx.state.fact("given_up"):
        why = "; ".join([str(ctx.state.fact("given_up")).removesuffix(END_IT), *_left(ctx)])
        return Finish(Phase.ABORTED, f"rollback incomplete: {why}", ExitCode.ROLLBACK_INCOMPLETE)
    if unsure is not None:
        return ctx.wait(f"all is as it was found, but a write was not answered and may still land: {unsure.why}")
    aborted = said is not None and said.verb == "abort"
    phase = Phase.ABORTED if aborted else Phase.ROLLED_BACK
    return Finish(phase, f"{_restored(ctx)} ({said.reason if said else ''})", ExitCode.ROLLED_BACK)


def _restored(ctx: Ctx) -> str:
    receipts = receipts_of(ctx.state)
    left = [p.canary for p in receipts.pairs if p.keep and p.canary in ctx.world.deployments] if receipts else []
    return (
        f"stable serves as before; {', '.join(left)}, made by hand, runs on without a target" if left else "everything is as it was found"
    )


def _tidy(ctx: Ctx) -> Decision | None:
    """Our private routes, when it ends as it is. The deployments stay, since one of them may be all that serves."""
    receipts = receipts_of(ctx.state)
    for name in receipts.probe_names if receipts else ():
        if name in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {name}", None, name=name)
    return None


def _left(ctx: Ctx) -> Iterator[str]:
    """What nobody manages any more after that, a deployment each."""
    receipts, route = receipts_of(ctx.state), ctx.world.route
    for pair in receipts.pairs if receipts else ():
        for name in (pair.stable, pair.canary):
            view = ctx.world.deployments.get(name)
            if view is not None and route is not None and route.target_of(name) is not None:
                yield f"{name} serves route {route.name}"
            elif view is not None:
                yield f"{name} is left over with {view.replicas} replica(s), without a target"


def _missing(ctx: Ctx) -> Decision | None:
    """Undo after the route was deleted: what is left is said, and nothing is guessed."""
    if receipts_of(ctx.state) is None or ctx.world.route is not None or ctx.state.fact("given_up"):
        return None
    detail = f"route {ctx.receipts.route} is gone: recreate it, then `rollout resume`{END_IT}"
    return HoldOn("rollback_impossible", detail, verbs=("resume", "rollback"))


def _lost(ctx: Ctx) -> Decision | None:
    """Stable lost while the canary is in the route: nothing is written until stable is active and has answered a probe."""
    receipts = receipts_of(ctx.state)
    if receipts is None or not receipts.pairs or ctx.state.step is StepName.CLEANUP:
        return None
    pair = receipts.pairs[ctx.state.target]
    lost = health.stable_lost(pair, ctx.world)
    if lost:
        return Halt("stable_lost", lost)
    if _halted(ctx) != "stable_lost":
        return None
    seen = ctx.state.fact("halt.probe")
    if seen is not None and seen.get("ok", 0) < 1 and ctx.at("halt.silent") is None:
        return Record({"halt.silent": {"at": seen["at"]}}, f"{pair.stable} is active but does not answer: {seen.get('errors')}")
    if seen is None or (seen.get("ok", 0) < 1 and pause(ctx, "halt.probe", "halt.silent") <= 0):
        return act("probe", f"{pair.stable} is active again: does it answer?", "halt.probe", model=pair.stable_probe, n=2)
    if seen.get("ok", 0) < 1:
        return Halt("stable_lost", f"{pair.stable} is active but does not answer: {seen.get('errors')}")
    return Record({"halted": None, "halt.probe": None, "halt.silent": None, **ctx.interrupted()}, f"{pair.stable} serves again")


def _canary_back(ctx: Ctx) -> Decision | None:
    """The halt of a side that was handed over ends when its canary serves: `watch` has just looked, and had nothing to say."""
    if _halted(ctx) != "canary_lost":
        return None
    return Record({"halted": None, **ctx.interrupted()}, "the side that was handed over serves again")


def _halted(ctx: Ctx) -> str | None:
    halted = ctx.state.fact("halted")
    return str(halted["reason"]) if halted else None


def _unmarked(ctx: Ctx) -> Decision | None:
    """Our marker vanished from the route and nobody else's took its place."""
    state = ctx.state
    if state.fact("claimed") is None or state.fact("unmarked") or ctx.world.route is None or health.is_ours(state, ctx.world):
        return None
    return HoldOn("drift", f"the marker on route {ctx.receipts.route} was removed: somebody rewrote its meta; `rollback` still works")


def _refused(ctx: Ctx) -> Decision | None:
    """A server said no to our last write. Going forward waits for a person; going back tries again."""
    seen = ctx.state.fact("refused")
    if seen is None or _claimed_by_another(ctx):
        return None
    if ctx.state.undo is not None:
        return _refused_undo(ctx, seen)
    return HoldOn(_reason(seen), f"{seen['verb']}: {seen['error']}", clears=("refused",))


def _reason(seen: Mapping[str, Json]) -> str:
    """`credentials` when it was the key that was refused; facts of an older release do not tell."""
    return str(seen.get("reason", "refused"))


def _refused_undo(ctx: Ctx, seen: Mapping[str, Json]) -> Decision:
    """Tried again for a while, for a server may only be busy; then a person is asked."""
    tried = ctx.at("refused.first")
    if tried is None:
        return Record({"refused.first": {"at": ctx.now.isoformat()}}, f"{seen['verb']} was refused on the way back")
    if ctx.since(tried) > REFUSED_UNDO:
        detail = f"{seen['verb']} is refused on the way back: {seen['error']}"
        return HoldOn(_reason(seen), detail, clears=("refused", "refused.first"), verbs=("resume",))
    left = RETRY_UNDO - ctx.since(ctx.at("refused"))
    if left <= 0:
        return Record({"refused": None}, "the refused write is tried again")
    return ctx.wait(f"{seen['verb']} was refused, tried again soon: {seen['error']}", left)


def _claimed_by_another(ctx: Ctx) -> bool:
    """Our claim was refused because another one came first: no cause for a hold, `declare` ends it as taken."""
    claiming = ctx.state.fact("claimed") is None and ctx.state.fact("takeover") is None
    return claiming and health.marker_of(ctx.world.route) is not None and not health.is_ours(ctx.state, ctx.world)


def fenced(ctx: Ctx) -> str | None:
    """Who took the route over, in words; None while it is ours or nobody's."""
    if ctx.state.fact("claimed") is None or ctx.state.fact("unmarked"):
        return None
    if health.marker_of(ctx.world.route) is None or health.is_ours(ctx.state, ctx.world):
        return None
    return holder(ctx.world)


def _drifted(ctx: Ctx) -> Decision | None:
    if ctx.state.fact("claimed") is None:
        return None
    difference = health.drift(ctx.state, ctx.world)
    if difference is None:
        return None
    if ctx.state.fact(ctx.key("base")) is not None:
        return Record({ctx.key("base"): None}, "the running window is dropped: somebody else changed the route")
    return HoldOn("drift", f"changed by somebody else: {difference}")


def _expiring(ctx: Ctx) -> Decision | None:
    """A key is about to end: nothing goes forward, because without it nothing could go back."""
    if ctx.plan is None or ctx.state.fact("claimed") is None:
        return None
    soon = credentials.ending(ctx.plan, ctx.world)
    return HoldOn("credentials", soon, verbs=("run", "rollback", "abort")) if soon else None


def _paused(ctx: Ctx) -> Decision | None:
    said = ctx.state.paused
    if said is None:
        return None
    return listen(ctx) or HoldOn("operator", f"paused by {said.actor}: {said.reason}")


def _gate(ctx: Ctx) -> Decision | None:
    """A step that waits for `approve` before it begins."""
    gate = GATED.get(ctx.state.step)
    key = ctx.key("gate", gate)
    if gate is None or ctx.plan is None or gate not in ctx.plan.gates.approve_before or ctx.state.fact(key):
        return None
    said = ctx.state.fact("said.approve")
    if said:
        return Record({key: said, "said.approve": None}, f"gate before {gate} approved by {said['actor']}: {said['reason']}")
    return HoldOn("approval", f"gate before {gate}: `rollout approve` lets it begin", verbs=("approve", "rollback", "abort"))
