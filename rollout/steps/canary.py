"""Step 4, canary: the ladder's first rung. Quality, latency, errors and memory together, against stable over the same time."""

from __future__ import annotations

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Advance, Decision, Halt, HoldOn, Record
from rollout.domain.health import serving
from rollout.domain.receipts import Pair, Receipts, receipts_of
from rollout.domain.state import StepName
from rollout.domain.world import answers_of
from rollout.rung.climb import climb
from rollout.rung.convert import convert, unconvert

ABSENCE_PROBES = 20
PROVE_WITHIN = 60.0
"""seconds the proof by traffic may take; after that the route's own word counts, and says so"""


def decide(ctx: Ctx) -> Decision:
    """A route without weights gets them; then climb the first rung, then go on to the others."""
    converted = convert(ctx)
    if converted is not None:
        return converted
    ladder = ctx.ladder(ctx.pair)
    below = [r for r in ladder if not r.full]
    held = f"first rung held: {below[0].pair_share:.2%} of the pair"
    return climb(ctx, below[0], last=len(below) == 1) or Advance(StepName.SHIFT, ctx.state.target, held)


def undo(ctx: Ctx) -> Decision | None:
    """Every canary leaves the route, once every stable target that was found is back and serves.

    A canary is removed by one call that takes effect at once; the traffic check afterwards proves that its share is 0.
    """
    receipts = receipts_of(ctx.state)
    route = ctx.world.route
    if receipts is None or route is None:
        return None
    present = [p for p in receipts.pairs if route.target_of(p.canary) is not None]
    if present:
        return _leave(ctx, receipts, present[-1])
    return _prove(ctx, receipts) or _weights(ctx, receipts) or unconvert(ctx, receipts)


def _leave(ctx: Ctx, receipts: Receipts, pair: Pair) -> Decision:
    target = ctx.world.route.target_of(pair.stable) if ctx.world.route else None
    if target is None or not target.active or not serving(ctx.world, pair.stable):
        return Halt("stable_lost", f"{pair.stable} does not serve: nothing is taken from {pair.canary}")
    unsure = ctx.unsure()
    touched = (unsure.args.get("deployment"), unsure.args.get("name")) if unsure is not None else ()
    if unsure is not None and unsure.verb in ("leave", "twin", "scale") and pair.stable in touched:
        return ctx.wait(f"{pair.stable} may still lose its target, then the route would be empty: {unsure.why}")
    return act("leave", f"{pair.canary} leaves the route", "undo.left", route=receipts.route, deployment=pair.canary)


def _prove(ctx: Ctx, receipts: Receipts) -> Decision | None:
    if ctx.state.fact("undo.left") is None or ctx.state.fact("undo.proved"):
        return None
    canaries = {p.canary for p in receipts.pairs}
    seen = ctx.state.fact("undo.verified")
    if seen is None:
        return act("probe", "own requests: is the canary's share 0?", "undo.verified", model=receipts.route, n=ABSENCE_PROBES)
    hits = sum(answers_of(seen.get("models", {}), name) for name in canaries)
    if hits == 0 and seen.get("ok", 0) > 0:
        return Record({"undo.proved": {"at": ctx.now.isoformat(), **seen}}, f"0 of {seen.get('n')} own requests reached the canary")
    tried = ctx.since(ctx.at("undo.left"))
    if tried > PROVE_WITHIN and hits == 0:
        unproved = {"undo.proved": {"at": ctx.now.isoformat(), "unverified": True}}
        return Record(unproved, f"the canary has no target; not verified by traffic, nothing answers: {seen.get('errors')}")
    if tried > PROVE_WITHIN:
        return HoldOn("weight_not_effective", f"the canary has no target, but answered {hits} requests", clears=("undo.verified",))
    if ctx.state.fact("undo.refreshed") is None:
        return act("refresh", "drop the route's cached targets", "undo.refreshed", route=receipts.route)
    if ctx.since(ctx.at("undo.verified")) < 1:
        return ctx.wait("looks again whether the canary's share is 0")
    return Record({"undo.verified": None}, f"{hits} own requests reached the canary, {seen.get('ok')} answered: look again")


def _weights(ctx: Ctx, receipts: Receipts) -> Decision | None:
    """Stable's weight as it was found, where the ladder needed a finer one (only ever done to a sole target)."""
    route = ctx.world.route
    for pair in receipts.pairs if not receipts.converted else ():
        mine = [t for t in route.targets if t.deployment == pair.stable] if route else []
        alone = route is not None and len(mine) == len(route.targets)
        if not mine or (len(mine) == 1 and mine[0].weight == pair.weight):
            continue
        if not alone:
            now = ", ".join(str(t.weight) for t in mine)
            detail = f"{pair.stable} has weight {now} and was found with {pair.weight}: somebody else changed it"
            return HoldOn("drift", f"{detail}; set it by hand, and this goes on")
        why = f"{pair.stable} gets its weight {pair.weight} back"
        return act("twin", why, None, route=receipts.route, deployment=pair.stable, weight=pair.weight)
    return None
