"""What kind of route was found: how it balances, which targets take a share, what giving it weights means. Pure facts, no words.

Nothing here refuses anything; `domain.route_checks` does.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from rollout.domain.ladder import shares_of
from rollout.domain.weights import scale_for
from rollout.domain.world import RouteView, World, named
from rollout.plan.model import Plan

WHOLE = 100
"""weight that a target gets where it has none, unless the ladder needs a finer one"""


class Balance(StrEnum):
    """How a route divides its requests."""

    WEIGHTED = "weighted"
    UNIFORM = "uniform"
    """no weights and no policy: targets (without the gateway) or instances (with it) in turn"""
    SCORED = "scored"
    """no weights, and policies that choose the instance"""
    MIXED = "mixed"
    """weights on some targets only: the gateway refuses to render it"""
    OTHER = "other"
    """a way that this release does not know"""


def balance_of(route: RouteView) -> Balance:
    """From the weights, which are always told; the server's own word is absent on older releases and on untouched routes."""
    if route.lb_mode not in ("weighted", "scoring", "invalid", None):
        return Balance.OTHER
    weights = [t.weight for t in route.targets if not t.fallback]
    if any(weights):
        return Balance.MIXED if route.lb_mode == "invalid" else Balance.WEIGHTED
    return Balance.SCORED if route.lb_mode == "scoring" else Balance.UNIFORM


def conversion(plan: Plan, world: World) -> dict[str, int]:
    """Weights by target that keep the split of a route without weights: equal, with the gateway by replicas. Empty where not asked.

    Every target but a fallback gets one, since the server takes all or none.
    """
    route = world.route
    if not plan.route.convert_to_weighted or route is None or balance_of(route) not in (Balance.UNIFORM, Balance.SCORED):
        return {}
    shares = shares_of(plan, world) if plan.stable[0].deployment in world.deployments else ()
    whole = scale_for(WHOLE, shares) or WHOLE
    return {named(t): whole * (_replicas(world, t.deployment) if world.gateway else 1) for t in route.targets if not t.fallback}


def weighted(plan: Plan, world: World) -> World:
    """The world as the conversion will have made it; as it is where none is asked for."""
    weights = conversion(plan, world)
    if world.route is None or not weights:
        return world
    targets = tuple(replace(t, weight=weights.get(named(t), t.weight)) for t in world.route.targets)
    return replace(world, route=replace(world.route, targets=targets))


def _replicas(world: World, deployment: str | None) -> int:
    view = world.deployments.get(deployment) if deployment else None
    return max(1, view.replicas) if view else 1
