"""From two looks at the engines to one window of evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rollout.analysis import ArmWindow, Histogram, Window
from rollout.analysis.counters import CounterSample, InstanceCounters, window_delta
from rollout.domain.carrying import live_shares
from rollout.domain.context import Ctx
from rollout.domain.decision import Decision, Record, TakeBack
from rollout.domain.draining import PROXY_LIMIT
from rollout.domain.effective import Carrier
from rollout.domain.receipts import Pair
from rollout.domain.samples import from_json, to_json
from rollout.domain.weights import Rung, load_ratio
from rollout.domain.world import EngineSample
from rollout.rung.write import stable_share

Json = Any
BREAKER_REQUESTS, BREAKER_SHARE = 20, 0.4
SAME_INSTANT = 2.0
"""seconds by which the samples of one look may differ"""


def counters(sample: EngineSample | None) -> CounterSample | None:
    """A sample in the judge's own terms; None when it could not be read."""
    if sample is None or sample.status == "METRIC_ERROR":
        return None
    return {
        key: InstanceCounters(
            requests=int(row.requests),
            errors=int(row.errors or 0),
            ttft=_whole(row.ttft),
            e2e=_whole(row.e2e),
            tpot=_whole(row.tpot),
            started=row.started,
        )
        for key, row in sample.instances.items()
        if row.requests is not None
    }


def _whole(buckets: Mapping[float, float] | None) -> dict[float, int] | None:
    return None if buckets is None else {le: int(count) for le, count in buckets.items()}


def started(sample: EngineSample | None) -> float | None:
    """Requests that got a first token since the engines began; None when unknown."""
    if sample is None or sample.status != "OK":
        return None
    total = 0.0
    for row in sample.instances.values():
        if row.ttft is None:
            return None
        total += row.ttft.get(math.inf, 0.0)
    return total


def base(ctx: Ctx, rung: Rung, before: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """What the next window is measured from. A side that could not be read keeps its last good sample, so nothing is lost."""
    kept: dict[str, Json] = dict(before["samples"]) if before else {}
    read = {name: s for name in in_route(ctx) if (s := ctx.world.samples.get(name)) is not None and s.status == "OK"}
    samples = {name: raw for name, raw in kept.items() if name in in_route(ctx)} | {name: to_json(s) for name, s in read.items()}
    return {"at": ctx.now.isoformat(), "rung": rung.index, "samples": samples}


def in_route(ctx: Ctx) -> tuple[str, ...]:
    """Deployments that serve the route now."""
    route = ctx.world.route
    return tuple(t.deployment for t in route.targets if t.deployment) if route else ()


def window(ctx: Ctx, rung: Rung, since: Mapping[str, Json], number: int, *, even: bool = True) -> Window:
    """The window from `since` to now. Not `even`: no load ratio is known, so the judge compares nothing."""
    before = {name: from_json(raw) for name, raw in since["samples"].items()}
    pair, seconds = ctx.pair, ctx.since(datetime.fromisoformat(since["at"]))
    arms = [window_delta(counters(before.get(n)) or {}, counters(ctx.world.samples.get(n))) for n in (pair.stable, pair.canary)]
    views = [ctx.world.deployments.get(n) for n in (pair.stable, pair.canary)]
    ready = [v.ready_replicas if v else 0 for v in views]
    counted, used = _share(ctx, before), _memory_used(ctx)
    return Window(
        id=number,
        rung=rung.index,
        seconds=seconds,
        stable=replace(arms[0], memory_used=used[0]),
        canary=replace(arms[1], memory_used=used[1]),
        load_ratio=load_ratio(rung.route_share, stable_share(ctx, rung), ready[1], ready[0]) if even else None,
        expected_share=_expected(ctx, rung, counted),
        share_counts=counted,
        memory_available=_memory(ctx),
    )


def _expected(ctx: Ctx, rung: Rung, counted: tuple[int, int] | None) -> float:
    """The canary's share of the route; in whole percents over instances, of those that ties allow the one nearest to what was counted."""
    if ctx.carrier is not Carrier.PERCENT:
        return rung.route_share
    seen = counted[0] / counted[1] if counted and counted[1] else rung.route_share
    given = live_shares(ctx.world, ctx.pair.canary, ctx.carrier)
    return min(given, key=lambda share: abs(share - seen), default=rung.route_share)


def _share(ctx: Ctx, before: Mapping[str, EngineSample]) -> tuple[int, int] | None:
    """(canary, all) first tokens in the window; None when any side of the route cannot be counted over the same time."""
    if ctx.receipts.uncounted:
        return None
    counts = {}
    ats = [before[name].at for name in in_route(ctx) if name in before]
    if ats and (max(ats) - min(ats)).total_seconds() > SAME_INSTANT:
        return None
    for name in in_route(ctx):
        view = ctx.world.deployments.get(name)
        if view is None or view.routes_beside(ctx.receipts.route, *ctx.receipts.probe_names):
            return None  # it also serves another route: its requests do not say who was asked here
        now, then = started(ctx.world.samples.get(name)), started(before.get(name))
        if now is None or then is None or now < then:
            return None
        counts[name] = int(now - then)
    return counts.get(ctx.pair.canary, 0), sum(counts.values())


def users_since(ctx: Ctx, since: Mapping[str, Json] | None, own: int) -> int:
    """Requests the canary ended since a base, our own probes taken off; 0 when that cannot be said."""
    raw = since["samples"].get(ctx.pair.canary) if since else None
    arm = window_delta(counters(from_json(raw)) or {}, counters(ctx.world.samples.get(ctx.pair.canary))) if raw else None
    return max(0, arm.requests - own) if arm is not None else 0


def breaker(ctx: Ctx, pair: Pair, key: str) -> Decision | None:
    """Errors of a canary without a control: at least 8 of 20, and at least 40 % of the window, take it back."""
    fact, sample = ctx.state.fact(key), ctx.world.samples.get(pair.canary)
    if sample is None or sample.status != "OK":
        return None
    base = {key: {"at": ctx.now.isoformat(), "sample": to_json(sample)}}
    if fact is None:
        return Record(base, f"{pair.canary} carries the share alone: the breaker watches it")
    arm = window_delta(counters(from_json(fact["sample"])) or {}, counters(sample))
    if arm.requests >= BREAKER_REQUESTS and arm.errors >= BREAKER_SHARE * arm.requests:
        return TakeBack("breaker", f"{pair.canary} failed {arm.errors} of its last {arm.requests} requests")
    enough = arm.requests >= BREAKER_REQUESTS and ctx.since(datetime.fromisoformat(fact["at"])) >= ctx.the_plan.evidence.window
    return Record(base, f"{pair.canary}: {arm.errors} of {arm.requests} requests failed") if enough or arm.restarts else None


def _memory(ctx: Ctx) -> int | None:
    view = ctx.world.deployments.get(ctx.pair.canary)
    names = view.hosts if view else set()
    known = [w.memory_available for n in names if (w := ctx.world.workers.get(n)) and w.memory_available is not None]
    return min(known) if known else None


def _memory_used(ctx: Ctx) -> tuple[int | None, int | None]:
    """(stable, canary): bytes in use on the worker of each side that has most in use. Unknown where they share a worker: then the
    difference is 0 whoever leaks.
    """
    views = [ctx.world.deployments.get(name) for name in (ctx.pair.stable, ctx.pair.canary)]
    stable, canary = (view.hosts if view else set() for view in views)
    return (None, None) if stable & canary else (_most_used(ctx, stable), _most_used(ctx, canary))


def _most_used(ctx: Ctx, names: set[str]) -> int | None:
    workers = [ctx.world.workers.get(name) for name in names]
    used = [w.memory_total - w.memory_available for w in workers if w and w.memory_total is not None and w.memory_available is not None]
    return max(used, default=None) if len(used) == len(names) else None


def reference(sample: EngineSample | None, metric: str) -> Histogram | None:
    """Stable's histogram since its engines began: the yardstick that is fixed before the rollout."""
    now = counters(sample) if sample is not None and sample.status == "OK" else None
    if not now:
        return None
    arm: ArmWindow = window_delta({key: _zero(row) for key, row in now.items()}, now)
    return arm.histogram(metric)


def longest(whole: Histogram | None) -> float:
    """Seconds within which 99 % of stable's requests ended; a PASS waits that long, since a slow canary's worst requests end last."""
    if whole is None or not whole.total:
        return 0.0
    seen = 0
    for edge, count in zip(whole.edges, whole.counts, strict=False):
        seen += count
        if seen >= 0.99 * whole.total:
            return min(edge, PROXY_LIMIT)
    return PROXY_LIMIT


def _zero(row: InstanceCounters) -> InstanceCounters:
    def none(buckets: Mapping[float, int] | None) -> dict[float, int] | None:
        return None if buckets is None else dict.fromkeys(buckets, 0)

    return InstanceCounters(requests=0, errors=0, ttft=none(row.ttft), e2e=none(row.e2e), tpot=none(row.tpot), started=row.started)
