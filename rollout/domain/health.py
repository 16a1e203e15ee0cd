"""Is it safe to go on? Stable lost, siblings lost, drift, memory. Pure: the world and the receipts in, a sentence out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.domain.effects import MARKER_KEY, Effect
from rollout.domain.receipts import Pair, Receipts
from rollout.domain.state import RolloutState
from rollout.domain.world import RouteView, World, named

Json = Any


def marker_of(route: RouteView | None) -> dict[str, Json] | None:
    """The marker on the route, ours or another's."""
    raw = route.meta.get(MARKER_KEY) if route else None
    return dict(raw) if isinstance(raw, Mapping) else None


def is_ours(state: RolloutState, world: World) -> bool:
    """Whether the route still carries the very marker that this rollout wrote."""
    ours, found = state.fact("marker"), marker_of(world.route)
    return bool(ours and found and found.get("nonce") == ours.get("nonce"))


def expected_after(effect: Effect, expected: Mapping[str, int]) -> dict[str, int]:
    """Weights the route should show once `effect` was carried out."""
    after = dict(expected)
    match effect.verb:
        case "join" | "set_weight" | "twin":
            after[effect.args["deployment"]] = effect.args["weight"]
        case "reweigh":
            after |= effect.args["weights"]
        case "leave":
            after.pop(effect.args["deployment"], None)
    return after


def drift(state: RolloutState, world: World) -> str | None:
    """What somebody else changed on the route since our last write, in words."""
    expected = state.fact("expected")
    if expected is None:
        return None
    if world.route is None:
        return "the route is gone"
    found: dict[str, int] = {}
    twice = []
    for target in world.route.targets:
        name = named(target)
        if name in found:
            twice.append(name)
        found[name] = target.weight
    differences = [f"{n}: expected weight {w}, found {found.get(n, 'no target')}" for n, w in expected.items() if found.get(n) != w]
    differences += [f"{n}: not ours, weight {w}" for n, w in found.items() if n not in expected]
    unsure = state.fact("twin_cut")  # a twin that was cut in the middle is ours: it is repeated, or taken back
    differences = [d for d in differences if unsure is None or not d.startswith(f"{unsure}: ")]
    differences += [f"{n}: two targets" for n in twice if n != unsure]
    return "; ".join(differences) or None


def serving(world: World, deployment: str) -> bool:
    """The deployment has a running instance and, where it is in the route, an active target."""
    view = world.deployments.get(deployment)
    if view is None or not any(i.running for i in view.instances):
        return False
    target = world.route.target_of(deployment) if world.route else None
    return target is None or target.active


def stable_lost(pair: Pair, world: World) -> str | None:
    """The canary is in the route and its stable, which should be too, does not serve: the canary may get all the traffic."""
    route = world.route
    if route is None or route.target_of(pair.canary) is None or route.target_of(pair.stable) is None:
        return None
    if serving(world, pair.stable):
        return None
    view = world.deployments.get(pair.stable)
    state = ", ".join(f"{i.name} {i.state}" for i in view.instances) if view and view.instances else "no instance"
    return f"{pair.stable} does not serve ({state}) while {pair.canary} is in the route"


def siblings_lost(receipts: Receipts, pair: Pair, world: World) -> str | None:
    """Another target of the route does not serve, so shares are not what the weights say."""
    ours = {pair.stable, pair.canary}
    lost = [t.deployment or str(t.id) for t in (world.route.targets if world.route else ()) if not t.active and t.deployment not in ours]
    return f"{', '.join(lost)} not active: the shares of this route are not what its weights say" if lost else None


def memory_below(world: World, deployment: str, floor: int) -> str | None:
    """A worker that hosts the deployment has less memory available than the floor."""
    view = world.deployments.get(deployment)
    for name in view.hosts if view else ():
        worker = world.workers.get(name)
        if worker and worker.memory_available is not None and worker.memory_available < floor:
            return f"{name} has {worker.memory_available / 2**30:.1f} GiB available, floor {floor / 2**30:.1f} GiB"
    return None


def memory_unknown(world: World, deployment: str) -> str | None:
    """A worker that hosts the deployment does not say how much memory is available."""
    view = world.deployments.get(deployment)
    names = view.hosts if view else set()
    unknown = [n for n in names if world.workers.get(n) is None or world.workers[n].memory_available is None]
    return f"memory of {', '.join(sorted(unknown))} is unknown" if unknown else None
