"""Which evidence mode and which shares a plan means in this world; the same for the check before and for the declaration. Pure."""

from __future__ import annotations

from rollout.domain.samples import requests_per_hour
from rollout.domain.weights import choose_mode, ladder_shares
from rollout.domain.world import World
from rollout.plan.model import EvidenceMode, Plan


def mode_of(plan: Plan, world: World) -> tuple[str, float | None]:
    """The evidence mode, and the first stable deployment's requests an hour (None = unknown)."""
    rate = requests_per_hour(world.samples.get(plan.stable[0].deployment), world.now)
    return (choose_mode(rate) if plan.evidence.mode is EvidenceMode.AUTO else plan.evidence.mode.value), rate


def shares_of(plan: Plan, world: World) -> tuple[float, ...]:
    """The ladder in shares 0..1: the plan's own, or the mode's. The first stable deployment must exist."""
    stable = world.deployments[plan.stable[0].deployment]
    replicas = plan.canary_of(0).sizing.replicas or stable.replicas
    asked = None if plan.ladder == "auto" else plan.ladder
    siblings = world.route is not None and len(world.route.targets) > 1
    return ladder_shares(asked, mode_of(plan, world)[0], replicas, stable.replicas, siblings=siblings)
