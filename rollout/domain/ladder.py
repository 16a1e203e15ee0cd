"""Which evidence mode and which shares a plan means in this world; the same for the check before and for the declaration. Pure."""

from __future__ import annotations

from rollout.domain.carrying import carriable, carrier_of
from rollout.domain.effective import Carrier
from rollout.domain.samples import requests_per_hour
from rollout.domain.weights import choose_mode, ladder_shares, weight_during
from rollout.domain.world import World
from rollout.plan.model import EvidenceMode, Plan


def mode_of(plan: Plan, world: World) -> tuple[str, float | None]:
    """The evidence mode, and the first stable deployment's requests an hour (None = unknown)."""
    rate, _ = rate_of(world, plan.stable[0].deployment)
    return (choose_mode(rate) if plan.evidence.mode is EvidenceMode.AUTO else plan.evidence.mode.value), rate


def rate_of(world: World, deployment: str) -> tuple[float | None, str]:
    """A deployment's requests an hour, and in words where that comes from: (None, why) when nobody knows.

    The server counts whole days, so that the night counts too; the engines count since they began. A server that saw nothing where
    the engines did (requests that go past it) is not believed.
    """
    since = requests_per_hour(world.samples.get(deployment), world.now)
    served = world.rates.get(deployment)
    if served is not None and (served > 0 or not since):
        return served, "GPUStack's daily usage, yesterday and today"
    if since is not None:
        return since, "the engines' counters since they began"
    return None, "neither GPUStack's usage nor the engines' counters say"


def shares_of(plan: Plan, world: World) -> tuple[float, ...]:
    """The ladder in shares 0..1: the plan's own, or the mode's without what the route's carrier cannot express.

    The first stable deployment must exist.
    """
    stable = world.deployments[plan.stable[0].deployment]
    replicas = plan.canary_of(0).sizing.replicas or stable.replicas
    asked = None if plan.ladder == "auto" else plan.ladder
    siblings = world.route is not None and len(world.route.targets) > 1
    shares = ladder_shares(asked, mode_of(plan, world)[0], replicas, stable.replicas, siblings=siblings)
    if asked is not None or carrier_of(world) is not Carrier.PERCENT:
        return shares
    kept = tuple(s for s in shares if s >= 1 or _carried(plan, world, shares, s))
    return kept if len(kept) > 1 else shares


def _carried(plan: Plan, world: World, shares: tuple[float, ...], share: float) -> bool:
    """Every pair's canary would get this share, as near as a rung must be."""
    targets = world.route.targets if world.route else ()
    weights = {t.deployment: t.weight for t in targets if t.weight > 0}
    during = {name: weight_during(weight, shares, siblings=len(targets) > 1) for name, weight in weights.items()}
    places = [(index, during[item.deployment]) for index, item in enumerate(plan.stable) if item.deployment in during]
    return all(carriable(plan, world, index, scaled, share) for index, scaled in places)
