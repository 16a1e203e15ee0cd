"""What this world's carrier makes of a plan's rungs: the capability by version and by what was seen, then the shares. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rollout.domain.effective import WHOLE, Carrier, Seat, carried, within
from rollout.domain.weights import canary_weight
from rollout.domain.world import TargetView, World
from rollout.plan.model import Plan

EXACT_SINCE = (2, 3, 0)
STEPS = tuple(n / 200 for n in range(1, 200))
"""shares among which the nearest that can be carried is looked for: every half percent"""


def version_of(text: str) -> tuple[int, ...]:
    """`v2.3.0rc1` -> (2, 3, 0); () when it cannot be read."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(g) for g in match.groups()) if match else ()


def balances(world: World) -> bool:
    """The server has the load balancing of 2.3. Its version says so, or the route shows a mode, as no older server does."""
    return version_of(world.server_version) >= EXACT_SINCE or (world.route is not None and world.route.lb_mode is not None)


def carrier_of(world: World) -> Carrier:
    """Who splits this route's traffic. A gateway that cannot be seen counts as one: its rules are the stricter ones."""
    if world.gateway is False:
        return Carrier.PROXY
    return Carrier.RULE if balances(world) else Carrier.PERCENT


def untold(world: World) -> bool:
    """It cannot be seen whether a gateway stands in front, and it matters."""
    only_one_way = world.route is not None and any(t.fallback or t.provider for t in world.route.targets)
    return world.gateway is None and (not balances(world) or only_one_way)


def _takes(target: TargetView, carrier: Carrier) -> bool:
    """Whether it takes requests that nobody has failed at: 2.3's gateway leaves fallbacks out, the server's own proxy providers."""
    return carrier is Carrier.PERCENT or target.splits(gateway=carrier is Carrier.RULE)


def others_weight(world: World, deployment: str | None, carrier: Carrier) -> int:
    """Summed weight of the targets beside one, as far as they take requests that nobody has failed at."""
    targets = world.route.targets if world.route else ()
    return sum(t.weight for t in targets if t.deployment != deployment and _takes(t, carrier))


def live_shares(world: World, deployment: str, carrier: Carrier) -> frozenset[float]:
    """What a deployment of the route may get now, from the weights and the instances that run; empty when it is not in the route."""
    targets = [t for t in (world.route.targets if world.route else ()) if t.active and _takes(t, carrier)]
    mine = next((n for n, t in enumerate(targets) if t.deployment == deployment), None)
    return frozenset() if mine is None else carried([_seat(t, world, running=True) for t in targets], mine, carrier)


def rung_shares(plan: Plan, world: World, index: int, scaled: int | None, weight: int) -> frozenset[float]:
    """What the canary of stable number `index` may get with `weight` beside stable's `scaled`; None: stable has left."""
    names = [item.deployment for item in plan.stable]
    seats: list[Seat] = []
    for target in (t for t in (world.route.targets if world.route else ()) if _takes(t, carrier_of(world))):
        seat, place = _seat(target, world), names.index(target.deployment) if target.deployment in names else len(names)
        if place < index:
            seat = replace(seat, instances=_planned(plan, world, place))
        if place != index:
            seats.append(seat)
        elif scaled is not None:
            seats.append(replace(seat, weight=scaled))
    canary = Seat(weight, _planned(plan, world, index))
    return carried([*seats, canary], len(seats), carrier_of(world))


def refused_rungs(plan: Plan, world: World, index: int, scaled: int, shares: Sequence[float]) -> Iterator[str]:
    """Rungs of one pair that the carrier cannot express within the tolerance, each with the nearest that it can."""
    if carrier_of(world) is not Carrier.PERCENT:
        return  # exact: what can be written is what is carried
    name = plan.stable[index].deployment
    for share in (s for s in shares if s < 1):
        fits, given = _tried(plan, world, index, scaled, share)
        if fits:
            continue
        seen = " or ".join(f"{WHOLE * one:g} %" for one in sorted(given))
        near = sorted(STEPS, key=lambda s: abs(s - share))
        best = next((s for s in near if _tried(plan, world, index, scaled, s)[0]), None)
        offer = f"nearest that can be: {WHOLE * best:g} %" if best is not None else "no other can be either"
        carrier = carrier_of(world).words
        yield f"rung {WHOLE * share:g} % beside `{name}` is carried by {carrier}: the canary would get {seen} of the route; {offer}"


def carriable(plan: Plan, world: World, index: int, scaled: int, share: float) -> bool:
    """Whether a rung of one pair comes out within the tolerance, whichever way ties fall."""
    return _tried(plan, world, index, scaled, share)[0]


def _tried(plan: Plan, world: World, index: int, scaled: int, share: float) -> tuple[bool, frozenset[float]]:
    others = others_weight(world, plan.stable[index].deployment, carrier_of(world))
    given = rung_shares(plan, world, index, scaled, canary_weight(scaled, share))
    ideal = scaled * share / (1 - share)
    return within(ideal / (scaled + ideal + others), given), given


def _planned(plan: Plan, world: World, index: int) -> int:
    view = world.deployments.get(plan.stable[index].deployment)
    return plan.canary_of(index).sizing.replicas or (view.replicas if view else 1)


def _seat(target: TargetView, world: World, *, running: bool = False) -> Seat:
    view = world.deployments.get(target.deployment or "")
    count = 1 if view is None else sum(i.running for i in view.instances) if running else view.replicas
    return Seat(target.weight, count, target.fallback)
