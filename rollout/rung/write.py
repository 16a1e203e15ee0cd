"""Write one rung and see that it stuck: capacity -> weight -> active -> cache drop -> settle -> traffic check.

The order is measured on the real server: a target write alone is stale in the proxy for up to 600 s, and a write that REST
shows may still not move traffic: a gateway's API that fails five times is not asked again. So each try has the time in which the
server itself repeats, the second begins with a refresh, and then it is a hold, never a guess.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rollout.domain.context import Ctx, act, awaited
from rollout.domain.decision import Decision, HoldOn, Record
from rollout.domain.weights import Rung

Json = Any
ACTIVE_WITHIN = 12.0
"""seconds; the server retries its gateway for 10"""
PROBE_LIMIT = 200
"""own requests a traffic check may send"""
TRIES = 2
LOOK_AGAIN = 3.0
"""seconds until traffic that has not followed a write is asked again"""


def _facts(ctx: Ctx, rung: Rung) -> str:
    return ctx.key("rung", rung.index)


def capacity_gap(ctx: Ctx) -> str | None:
    """Why the canary cannot carry more: a replica is missing. Checked before every raise of its weight."""
    view = ctx.world.deployments.get(ctx.pair.canary)
    if view is None:
        return f"{ctx.pair.canary} does not exist"
    if not view.ready:
        return f"{view.name}: {view.ready_replicas} of {view.replicas} replicas ready"
    return None


def capacity_gate(ctx: Ctx, key: str, why: str) -> Decision | None:
    """Wait until the canary has all its replicas; after the plan's `ready_within` a hold."""
    gap = capacity_gap(ctx)
    return awaited(ctx, gap is None, key, ctx.the_plan.ready_within, f"{why}: {gap}" if gap else why, "capacity")


def settle(ctx: Ctx, rung: Rung) -> Decision | None:
    """The next thing until this rung's share is proved by traffic; None when it is."""
    key = _facts(ctx, rung)
    if ctx.state.fact(f"{key}.proved"):
        return None
    return _write(ctx, rung) or _activate(ctx, rung) or _prove(ctx, rung)


def _write(ctx: Ctx, rung: Rung) -> Decision | None:
    route, pair, key = ctx.world.route, ctx.pair, _facts(ctx, rung)
    if route is None or rung.weight is None:
        return HoldOn("drift", f"route {ctx.receipts.route} is gone")
    stable, canary = route.target_of(pair.stable), route.target_of(pair.canary)
    if canary is not None and canary.weight == rung.weight:
        return None
    gate = capacity_gate(ctx, f"{key}.capacity", "capacity gate")
    if gate is not None:
        return gate
    doubled = sum(1 for t in route.targets if t.deployment == pair.stable) > 1
    if stable is not None and (stable.weight != pair.scaled or doubled) and canary is None:
        why = f"re-weight {pair.stable} {stable.weight} -> {pair.scaled}: its weight is too coarse for the ladder"
        return act("twin", why, ctx.key("twinned"), route=route.name, deployment=pair.stable, weight=pair.scaled)
    share = f"{rung.pair_share:.2%} of the pair, {rung.route_share:.2%} of the route"
    args = {"route": route.name, "deployment": pair.canary, "weight": rung.weight}
    if canary is not None:
        return act("set_weight", f"{pair.canary} to weight {rung.weight} ({share})", f"{key}.written", **args)
    limit = {k: v for k, v in (stable.extra if stable else {}).items() if k == "max_running_requests" and v is not None}
    extra = limit | ctx.receipts.asked_of(pair, pair.canary)
    return act("join", f"{pair.canary} joins weight {rung.weight} ({share})", f"{key}.written", **args, extra=extra)


def _activate(ctx: Ctx, rung: Rung) -> Decision | None:
    route, key = ctx.world.route, _facts(ctx, rung)
    written = ctx.at(f"{key}.written")
    if written is None:
        return Record({f"{key}.written": {"already": True, "at": ctx.now.isoformat()}}, "the weight was found as wanted")
    target = route.target_of(ctx.pair.canary) if route else None
    if target is None or not target.active:
        if ctx.since(written) > ACTIVE_WITHIN:
            detail = f"target of {ctx.pair.canary} is not active more than {ACTIVE_WITHIN:.0f} s after its write"
            return HoldOn("weight_not_effective", detail)
        return ctx.wait("target becomes active", 0.25)
    refreshed = ctx.state.fact(f"{key}.refreshed")
    if refreshed is None:
        return act("refresh", "drop the route's cached targets", f"{key}.refreshed", route=ctx.receipts.route)
    left = ctx.the_plan.evidence.settle - ctx.since(ctx.at(f"{key}.refreshed"))
    if left > 0:
        return ctx.wait("settles before the share is verified", left)
    return None


def _prove(ctx: Ctx, rung: Rung) -> Decision | None:
    key, pair = _facts(ctx, rung), ctx.pair
    tries = int(ctx.state.fact(f"{key}.tries") or 0)
    seen = ctx.state.fact(f"{key}.verified")
    if seen is None:
        before = _share_before(ctx, rung)
        return act(
            "verify_share",
            f"own requests: is the canary's share {rung.route_share:.2%} and no longer {before:.2%}?",
            f"{key}.verified",
            model=ctx.receipts.route,
            deployment=pair.canary,
            old=before,
            new=rung.route_share,
            limit=PROBE_LIMIT,
        )
    if seen.get("moved") is True or (seen.get("moved") is None and seen.get("n", 0) > 0 and float(seen.get("llr") or 0) > 0):
        facts: dict[str, Json] = {f"{key}.proved": {"at": ctx.now.isoformat(), **seen}, f"{key}.tries": None}
        return Record(facts, f"share proved by {seen.get('n')} own requests, {seen.get('hits')} answered by the canary")
    began = ctx.at(f"{key}.refreshed") if tries else ctx.at(f"{key}.written")
    if ctx.since(began) < ACTIVE_WITHIN:
        return look_again(ctx, f"{key}.verified", began, "the share has not moved yet")
    if tries + 1 < TRIES:
        facts = {f"{key}.tries": tries + 1, f"{key}.verified": None, f"{key}.refreshed": None}
        return Record(facts, "the share has not moved: drop the cache once more and verify again")
    detail = f"asked {rung.route_share:.2%}, but {seen.get('hits')} of {seen.get('n')} own requests reached the canary after two tries"
    return HoldOn("weight_not_effective", detail, clears=(f"{key}.tries", f"{key}.verified", f"{key}.refreshed"))


def look_again(ctx: Ctx, fact: str, wrote: datetime | None, why: str) -> Decision:
    """Ask the traffic once more, a little after the last answer (under `fact`) and the last write."""
    last = max((at for at in (ctx.at(fact), wrote) if at is not None), default=None)
    left = LOOK_AGAIN - ctx.since(last) if last else 0.0
    return ctx.wait(f"{why}: asks again", left) if left > 0 else Record({fact: None}, f"{why}: asks again")


def _share_before(ctx: Ctx, rung: Rung) -> float:
    """The canary's route share before this rung was written; an adopted canary was found with one of its own."""
    found = ctx.state.fact(ctx.key("found")) or {}
    if found.get("rung") == rung.index and found["weight"] != rung.weight:
        return float(found["route_share"])
    if rung.index == 0:
        return 0.0
    previous = ctx.ladder(ctx.pair)[rung.index - 1]
    return previous.route_share


def stable_share(ctx: Ctx, rung: Rung) -> float:
    """Stable's share of the route at this rung."""
    if rung.weight is None:
        return 0.0
    return rung.route_share * (1 - rung.pair_share) / rung.pair_share
