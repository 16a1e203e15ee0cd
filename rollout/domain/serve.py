"""Make one deployment run and answer: create -> ready -> private route -> probe. Shared by stage and attach. Pure."""

from __future__ import annotations

from datetime import timedelta

from rollout.domain.access import pause
from rollout.domain.context import Ctx, act, awaited
from rollout.domain.decision import Decision, HoldOn, Record, TakeBack
from rollout.domain.health import memory_below, memory_unknown

READY_PROBES = 3
ROUTE_ACTIVE_WITHIN = 60.0
"""seconds; the server retries its gateway for 10"""


def bring_up(ctx: Ctx, name: str, probe_route: str, key: str, within: float) -> Decision | None:
    """The next thing until `name` runs, is reachable through `probe_route` alone, and answered. None when all that holds.

    Ready = the server's state, our own one-token requests, and no restart since; the API alone has been wrong in both directions.
    """
    floor = ctx.the_plan.guards.memory_floor
    below = memory_below(ctx.world, name, floor)
    if below:
        return TakeBack("memory_floor", below)
    view = ctx.world.deployments.get(name)
    if view is None:
        return act("create_deployment", f"create {name}", f"{key}.created", name=name, **ctx.state.fact("specs")[name])
    waited = ctx.since(ctx.at(f"{key}.created") or ctx.state.entered)
    if not view.ready:
        return _not_ready(ctx, name, waited, within)
    unknown = memory_unknown(ctx.world, name)
    if unknown and ctx.the_plan.guards.unknown_memory == "hold":
        return HoldOn("memory", unknown)
    route = ctx.world.probe_routes.get(probe_route)
    if route is None or route.target_of(name) is None:
        return private_route(ctx, probe_route, name, f"private route {probe_route} to {name}", f"{key}.routed")
    return route_active(ctx, probe_route) or _answers(ctx, probe_route, view.name, key, waited, within)


def _not_ready(ctx: Ctx, name: str, waited: float, within: float) -> Decision:
    view = ctx.world.deployments[name]
    if view.restarts >= 2:
        return TakeBack("restarts", f"{name} restarted {view.restarts} times while starting: {_messages(ctx, name)}")
    if waited > within:
        return HoldOn("not_ready", f"{name} is not ready after {within:.0f} s: {_messages(ctx, name)}")
    states = ", ".join(f"{i.name} {i.state}" for i in view.instances) or "not scheduled yet (the server rescans every 180 s)"
    return ctx.wait(f"{name} becomes ready: {states}", deadline=ctx.now + timedelta(seconds=within - waited))


def _messages(ctx: Ctx, name: str) -> str:
    return "; ".join(f"{i.state} {i.message}".strip() for i in ctx.world.deployments[name].instances) or "no instance was scheduled"


def _answers(ctx: Ctx, probe_route: str, name: str, key: str, waited: float, within: float) -> Decision | None:
    seen = ctx.state.fact(f"{key}.answered")
    if seen and seen.get("ok", 0) == seen.get("n", -1):
        return None
    silent = _silent(ctx, name, key, waited, within) if seen is not None else None
    why = f"does {name} answer through its private route?"
    return silent or act("probe", why, f"{key}.answered", model=probe_route, n=READY_PROBES)


def _silent(ctx: Ctx, name: str, key: str, waited: float, within: float) -> Decision | None:
    """It runs and its own requests fail; None when they are due again."""
    asked, silent = f"{key}.answered", f"{key}.silent"
    errors = "; ".join(dict.fromkeys(ctx.state.fact(asked).get("errors") or ())) or "no answer"
    if waited > within:
        return HoldOn("not_ready", f"{name} runs but does not answer: {errors}", clears=(asked, silent))
    if ctx.at(silent) is None:
        return Record({silent: {"at": ctx.state.fact(asked)["at"]}}, f"{name} runs but does not answer yet: {errors}")
    left = pause(ctx, asked, silent)
    deadline = ctx.now + timedelta(seconds=within - waited)
    return ctx.wait(f"{name} runs but does not answer yet: {errors}", left, deadline=deadline) if left > 0 else None


def private_route(ctx: Ctx, probe_route: str, name: str, why: str, fact: str | None = None) -> Decision:
    """A private route to the deployment `name`; it asks for the same adapter as stable's target in the production route."""
    asked = ctx.receipts.asked_of(ctx.pair, name)
    return act("create_probe_route", why, fact, name=probe_route, deployment=name, **({"extra": asked} if asked else {}))


def route_active(ctx: Ctx, probe_route: str) -> Decision | None:
    """A private route was written; wait until the server has marked its target active."""
    done = all(t.active for t in ctx.world.probe_routes[probe_route].targets)
    why = f"private route {probe_route} becomes active"
    return awaited(ctx, done, f"{probe_route}.active", ROUTE_ACTIVE_WITHIN, why, "not_ready", 0.25)


def warm_up(ctx: Ctx, probe_route: str, why: str, fact: str) -> Decision:
    """The plan's warm-up requests through a private route; they are no evidence."""
    probes = ctx.the_plan.evidence.probes
    return act("warm_up", why, fact, model=probe_route, prompts=list(probes.prompts), n=probes.warm_up, max_tokens=probes.max_tokens)


def take_down(ctx: Ctx, name: str, probe_route: str) -> Decision | None:
    """Remove a private route and its deployment; None when both are gone. The caller has drained it."""
    if probe_route in ctx.world.probe_routes:
        return act("delete_probe_route", f"remove private route {probe_route}", None, name=probe_route)
    if name in ctx.world.deployments:
        return act("delete_deployment", f"delete {name}", None, name=name)
    return None
