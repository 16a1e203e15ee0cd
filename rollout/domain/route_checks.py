"""Routes as they are found: which shapes are refused, with the way round, and what a plan must know of those that are not. Pure.

What a shape *is* stands in `domain.shapes`; the how-to page on routes is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollout.domain.carrying import carrier_of
from rollout.domain.effective import Carrier
from rollout.domain.effects import MARKER_KEY
from rollout.domain.shapes import Balance, balance_of, conversion
from rollout.domain.world import RouteView, TargetView, World, named
from rollout.plan.model import Plan

AFFINITY = "session-affinity"


def refusals(plan: Plan, world: World) -> Iterator[str]:
    """Why a rollout does not start on this route."""
    route = world.route
    if route is None:
        yield f"route `{plan.route.name}` does not exist on the server: create it, or correct `route.name`"
        return
    yield from _owner(route)
    yield from _note_of_another(route)
    yield from _balance(plan, world, route)
    yield from _targets(route)
    if world.gateway:
        yield from (f"target {_fallback(t)} {MASKS}" for t in route.targets if t.fallback)
    for item in plan.stable:
        target = route.target_of(item.deployment)
        yield from _stable(plan, item.deployment, target) if target else _no_deployment(route, item.deployment)


def _owner(route: RouteView) -> Iterator[str]:
    if route.organisation is not None:
        yield (
            f"route `{route.name}` belongs to organisation `{route.organisation}`: a canary that we create belongs to the platform, and "
            f"GPUStack takes no target of another owner; clients also call it `{route.organisation}/{route.name}`. Way round: a route of "
            "the platform that the organisation may use (`POST /v2/model-routes/ID/access`)"
        )
    yield from namesakes(route)


def _note_of_another(route: RouteView) -> Iterator[str]:
    if not isinstance(route.meta.get(MARKER_KEY), Mapping | None):
        yield (
            f"`meta.{MARKER_KEY}` of route `{route.name}` holds something that is no marker: a rollout keeps its marker there and does not "
            "write over it; move it to another key"
        )


def namesakes(route: RouteView) -> Iterator[str]:
    """Another organisation's route has the same name."""
    if route.namesakes:
        yield (
            f"{route.namesakes + 1} routes are called `{route.name}`, in different organisations: which one is meant cannot be said; "
            "rename one"
        )


def _balance(plan: Plan, world: World, route: RouteView) -> Iterator[str]:
    if not route.targets:
        return  # nothing balances; that stable is no target of it is said elsewhere
    kind = balance_of(route)
    if kind is Balance.OTHER:
        yield f"route `{route.name}` balances by `{route.lb_mode}`, which this release does not know: make it a weighted route first"
    elif kind is Balance.MIXED:
        bare = ", ".join(f"`{named(t)}`" for t in route.targets if t.weight == 0 and not t.fallback)
        yield f"route `{route.name}` has weights on some targets only: give {bare} one, or remove the target"
    elif kind is not Balance.WEIGHTED and _percents(world):
        yield (
            f"no target of route `{route.name}` has a weight: behind the gateway of GPUStack 2.2 such a route serves nobody, and a "
            "rollback would bring that back; give stable a weight first"
        )
    elif kind is not Balance.WEIGHTED and not plan.route.convert_to_weighted:
        yield (
            f"route `{route.name}` has no weights ({_how(route)}), so no share can be set: `route.convert_to_weighted: true` gives every "
            "target one for the rollout, and takes it back on rollback"
        )
    elif kind is not Balance.WEIGHTED and not world.gateway and not plan.route.accept_loss:
        yield (
            f"`route.convert_to_weighted` changes every target of `{route.name}` in one write; with the gateway off requests may get a "
            "503 for up to three seconds, on the way there and on a rollback: `route.accept_loss: true` accepts that, or give the route "
            "weights in a quiet hour"
        )


def _how(route: RouteView) -> str:
    if route.policies:
        return f"it balances by {' and '.join(route.policies)}"
    return "it balances by score" if balance_of(route) is Balance.SCORED else "a uniform split"


def _targets(route: RouteView) -> Iterator[str]:
    names = [named(t) for t in route.targets]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"route `{route.name}` has two targets for `{name}`: remove one"
    for target in route.targets:
        if not target.active:
            yield f"target `{named(target)}` of route `{route.name}` is {target.state}: bring it back or remove it first"


MASKS = (
    "answers the errors of the others (4xx too, whatever its codes say), so a canary's errors would look like success: take it out for "
    'the rollout (`POST /v2/model-route-targets/ID/set-fallback` with {"fallback_status_codes": null}, or remove the target)'
)


def _fallback(target: TargetView) -> str:
    return f"`{named(target)}` (fallback for {', '.join(target.extra['fallback_status_codes'])})"


def _stable(plan: Plan, name: str, target: TargetView) -> Iterator[str]:
    if target.fallback:
        yield f"stable target {_fallback(target)} takes no share: name a target that does"
    if target.adapter is None:
        return
    base, _, adapter = target.adapter.partition(":")
    if base != name:
        yield f"target of `{name}` asks for `{target.adapter}`, which is no adapter of `{name}`: nothing serves it; correct the target"
    elif "lora_list" in plan.change.to:
        kept = {str(entry.get("lora_name", "")).removeprefix(f"{name}:") for entry in plan.change.to["lora_list"] or ()}
        if adapter not in kept:
            yield f"target of `{name}` asks for adapter `{adapter}`, which `change.to.lora_list` takes away: keep it in the list"


def _no_deployment(route: RouteView, name: str) -> Iterator[str]:
    """A provider's model that was named as stable; a name that stands for nothing is said elsewhere."""
    for target in route.targets:
        if target.provider and name in (named(target), target.extra.get("overridden_model_name")):
            yield f"stable `{name}` is a model of a provider: there is no deployment to derive a canary from; name a deployment"


def notes(plan: Plan, world: World) -> list[str]:
    """What is worth knowing about a route that is taken as it is; shown by `plan`."""
    route = world.route
    return [] if route is None else [*_conversion(plan, world, route), *_beside(plan, world, route), *_older_gateway(world)]


def _percents(world: World) -> bool:
    return world.gateway is True and carrier_of(world) is Carrier.PERCENT


def _older_gateway(world: World) -> Iterator[str]:
    if _percents(world):
        yield (
            "the gateway of GPUStack 2.2 is told of a changed target in two writes: in between its instances may be asked under the "
            "route's name, and an engine that does not know that name answers 404 (about one request in a rollout of our lab); 2.3 is clean"
        )


def _conversion(plan: Plan, world: World, route: RouteView) -> Iterator[str]:
    weights, gateway = conversion(plan, world), world.gateway
    if balance_of(route) is Balance.WEIGHTED and plan.route.convert_to_weighted:
        yield f"route {route.name} has weights already: `convert_to_weighted` changes nothing"
    if not weights:
        return
    told = ", ".join(f"{name} {weight}" for name, weight in weights.items())
    yield f"route {route.name} has no weights ({_how(route)}): before the first rung one write gives {told}"
    yield "a rollback takes them back in one write; a promoted route keeps weights, its policies stay stored and rest"
    if AFFINITY in route.policies and gateway:
        yield "session affinity is lost while weights decide: a conversation may change sides and lose its cache"
    elif AFFINITY in route.policies:
        yield "session affinity is set, but works in the gateway alone: with the gateway off nothing is lost"
    else:
        yield "session affinity: none is set, none is lost"
    if gateway:
        yield "through the gateway this write loses nothing"
    else:
        yield f"with the gateway off this write and its undo may lose requests{': accepted' if plan.route.accept_loss else ''}"


def _beside(plan: Plan, world: World, route: RouteView) -> Iterator[str]:
    gateway = world.gateway
    for target in route.targets:
        if target.fallback and not gateway:
            yield f"target {_fallback(target)} stays as it is: it answers errors in the gateway alone, and that is off"
        if target.provider:
            share = (
                f"keeps weight {target.weight}, and gets its share of our own probes"
                if gateway
                else "gets no request while the gateway is off"
            )
            yield f"{named(target)} leads to a provider's model ({target.extra.get('overridden_model_name')}): it {share}"
    for item in plan.stable:
        found = route.target_of(item.deployment)
        if found is not None and found.adapter:
            yield f"{item.deployment} serves its adapter {found.adapter.partition(':')[2]} here: canary and probes ask for the same one"
        limit = found.extra.get("max_running_requests") if found is not None else None
        if limit is not None:
            yield f"{item.deployment} may run {limit} requests an instance here: the canary gets the same limit"
    if route.created_model_id is not None:
        yield "a deployment brought this route along and writes over its meta: the claim stands on a route beside it"
