"""What must be true before the route is touched. Pure: plan and world in, findings out, all at once, each with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rollout.domain import credentials, route_checks
from rollout.domain.carrying import refused_rungs, untold, version_of
from rollout.domain.health import marker_of, serving
from rollout.domain.ladder import shares_of
from rollout.domain.receipts import WORDS
from rollout.domain.shapes import Balance, balance_of, conversion, weighted
from rollout.domain.weights import expressible, nearest, scale_for, weight_during
from rollout.domain.world import World
from rollout.plan.model import Plan, Unit

OLDEST = (2, 2, 2)
HOST_UNITS = frozenset({Unit.OS, Unit.DRIVER, Unit.WORKER})
Check = Callable[[Plan, World], Iterator[str]]


def _server(_plan: Plan, world: World) -> Iterator[str]:
    version = version_of(world.server_version)
    if version and (0, 0, 0) < version < OLDEST:
        yield f"GPUStack {world.server_version} has known privilege faults and other route semantics: upgrade to 2.2.2 or later"


def _gateway(plan: Plan, world: World) -> Iterator[str]:
    if untold(world) or (world.gateway is None and conversion(plan, world)):
        at = plan.gpustack.inference or plan.gpustack.server
        yield f"whether a gateway stands at {at} cannot be seen, and shares depend on it: say `gpustack.gateway: enabled` or `disabled`"


def _unit(plan: Plan, _world: World) -> Iterator[str]:
    if plan.change.unit in HOST_UNITS:
        yield f"change unit `{plan.change.unit}` changes a host: this release does not carry that out; upgrade it by hand under maintenance"


def _stable(plan: Plan, world: World) -> Iterator[str]:
    for item in plan.stable:
        target = world.route.target_of(item.deployment) if world.route else None
        view = world.deployments.get(item.deployment)
        if view is None:
            yield f"stable deployment `{item.deployment}` does not exist: correct `stable`"
        elif world.route is not None and target is None:
            yield f"stable deployment `{item.deployment}` is not a target of route `{plan.route.name}`: correct `stable` or `route`"
        elif not view.ready or not serving(world, item.deployment):
            yield f"stable deployment `{item.deployment}` is not healthy ({view.ready_replicas} of {view.replicas} replicas ready)"


def _ladder(plan: Plan, world: World) -> Iterator[str]:
    seen = weighted(plan, world)
    if seen.route is None or plan.stable[0].deployment not in seen.deployments:
        return
    shares = shares_of(plan, seen) if plan.ladder == "auto" else tuple(percent / 100 for percent in plan.ladder)
    siblings = len(seen.route.targets) > 1
    for index, item in enumerate(plan.stable):
        target = seen.route.target_of(item.deployment)
        if target is None:
            continue
        if target.weight > 0:
            written = list(_rungs(shares, item.deployment, target.weight, siblings=siblings))
            scaled = weight_during(target.weight, shares, siblings=siblings)
            yield from written or refused_rungs(plan, seen, index, scaled, shares)
        elif balance_of(seen.route) is Balance.WEIGHTED and not target.fallback:
            yield f"stable target `{item.deployment}` has weight 0 beside others: it serves nobody; name a target that does"


def _rungs(shares: Sequence[float], name: str, weight: int, *, siblings: bool) -> Iterator[str]:
    for share in (s for s in shares if s < 1):
        if siblings and share > 0.5:
            yield f"rung {share:.0%}: with other targets on the route no rung lies between 50 and 100; remove it"
        if siblings and not expressible(weight, share):
            yield f"rung {share:.2%} cannot be written beside weight {weight} of `{name}`; nearest: {nearest(weight, share):.2%}"
    if not siblings and scale_for(weight, shares) is None:
        asked = ", ".join(f"{100 * share:g} %" for share in shares)
        yield f"ladder {asked} cannot be written beside weight {weight} of `{name}`"


def _workers(plan: Plan, world: World) -> Iterator[str]:
    sizings = [plan.canary_of(i).sizing for i in range(len(plan.stable))]
    wanted = {*(s.worker for s in sizings), plan.stage.worker}
    for name in sorted(n for n in wanted if n):
        worker = world.workers.get(name)
        if worker is None:
            near = ", ".join(sorted(world.workers)) or "none"
            yield f"worker `{name}` is not known to the server; it knows: {near}"
        elif worker.state != "ready":
            yield f"worker `{name}` is {worker.state}, not ready"
        elif worker.heartbeat_age is not None and worker.heartbeat_age > plan.guards.heartbeat_age:
            yield f"worker `{name}` was last heard {worker.heartbeat_age:.0f} s ago"
        elif worker.memory_available is not None and worker.memory_available < plan.guards.memory_floor:
            yield f"worker `{name}` has {worker.memory_available / 2**30:.1f} GiB available, below the floor"
        elif worker.memory_available is None and plan.guards.unknown_memory == "hold":
            yield f"memory of worker `{name}` is unknown; `guards.unknown_memory: accept` starts beside it anyway"


CHECKS: tuple[Check, ...] = (_server, credentials.refusals, _gateway, _unit, route_checks.refusals, _stable, _ladder, _workers)


def findings(plan: Plan, world: World) -> list[str]:
    """Everything that speaks against starting, in reading order."""
    return [finding for check in CHECKS for finding in check(plan, world)]


def holder(world: World) -> str | None:
    """Who holds the route on the server, in words."""
    marker = marker_of(world.route)
    if marker is None:
        return None
    began, by = str(marker.get("id", "?"))[:WORDS], str(marker.get("by") or "")[:WORDS]
    who = f"rollout {by} (which took over from {began}; store" if by else f"rollout {began} (store"
    return f"{who} {str(marker.get('store', '?'))[:8]}, until {str(marker.get('expires', '?'))[:WORDS]})"
