"""From two looks at the engines to one window of evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rollout.analysis import ArmWindow, Histogram, Window
from rollout.analysis.counters import CounterSample, InstanceCounters, window_delta
from rollout.domain.context import Ctx
from rollout.domain.samples import from_json, to_json
from rollout.domain.weights import Rung, load_ratio
from rollout.domain.world import EngineSample
from rollout.rung.write import stable_share

Json = Any


def counters(sample: EngineSample | None) -> CounterSample:
    """A sample in the judge's own terms. `requests` counts first tokens where the engine says so: the nearest to arrivals it has."""
    if sample is None:
        return CounterSample({}, "METRIC_ERROR")
    rows = {
        key: InstanceCounters(requests=row.requests, errors=row.errors, ttft=row.ttft, e2e=row.e2e, started=row.started)
        for key, row in sample.instances.items()
        if row.requests is not None
    }
    if sample.status == "OK" and not rows:
        return CounterSample({}, "NO_METRIC")
    return CounterSample(rows, sample.status)


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


def base(ctx: Ctx, rung: Rung) -> dict[str, Json]:
    """What the next window is measured from."""
    samples = {name: to_json(s) for name in in_route(ctx) if (s := ctx.world.samples.get(name)) is not None}
    return {"at": ctx.now.isoformat(), "rung": rung.index, "samples": samples}


def in_route(ctx: Ctx) -> tuple[str, ...]:
    """Deployments that serve the route now."""
    route = ctx.world.route
    return tuple(t.deployment for t in route.targets if t.deployment) if route else ()


def window(ctx: Ctx, rung: Rung, since: Mapping[str, Json], number: int) -> Window:
    """The window from `since` to now."""
    before = {name: from_json(raw) for name, raw in since["samples"].items()}
    pair, seconds = ctx.pair, ctx.since(ctx_time(since))
    arms = [window_delta(counters(before.get(n)), counters(ctx.world.samples.get(n))) for n in (pair.stable, pair.canary)]
    views = [ctx.world.deployments.get(n) for n in (pair.stable, pair.canary)]
    ready = [v.ready_replicas if v else 0 for v in views]
    return Window(
        id=number,
        rung=rung.index,
        seconds=seconds,
        stable=arms[0],
        canary=arms[1],
        load_ratio=load_ratio(rung.route_share, stable_share(ctx, rung), ready[1], ready[0]),
        expected_share=rung.route_share,
        share_counts=_share(ctx, before),
        memory_available=_memory(ctx),
    )


def ctx_time(since: Mapping[str, Json]) -> Any:
    """The instant a base was taken."""
    from datetime import datetime

    return datetime.fromisoformat(since["at"])


def _share(ctx: Ctx, before: Mapping[str, EngineSample]) -> tuple[int, int] | None:
    """(canary, all) first tokens in the window; None when any side of the route cannot be counted."""
    counts = {}
    for name in in_route(ctx):
        now, then = started(ctx.world.samples.get(name)), started(before.get(name))
        if now is None or then is None or now < then:
            return None
        counts[name] = int(now - then)
    return counts.get(ctx.pair.canary, 0), sum(counts.values())


def _memory(ctx: Ctx) -> int | None:
    view = ctx.world.deployments.get(ctx.pair.canary)
    names = {i.worker for i in view.instances if i.worker} if view else set()
    known = [w.memory_available for n in names if (w := ctx.world.workers.get(n)) and w.memory_available is not None]
    return min(known) if known else None


def reference(sample: EngineSample | None, metric: str) -> Histogram | None:
    """Stable's histogram since its engines began: the yardstick that is fixed before the rollout."""
    if sample is None or sample.status != "OK":
        return None
    empty = CounterSample({key: _zero(row) for key, row in counters(sample).instances.items()}, "OK")
    arm: ArmWindow = window_delta(empty, counters(sample))
    return arm.ttft if metric == "ttft" else arm.e2e


def _zero(row: InstanceCounters) -> InstanceCounters:
    def none(buckets: Mapping[float, float] | None) -> dict[float, float] | None:
        return None if buckets is None else dict.fromkeys(buckets, 0.0)

    return InstanceCounters(requests=0.0, errors=0.0, ttft=none(row.ttft), e2e=none(row.e2e), started=row.started)
