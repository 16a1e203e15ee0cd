"""The emergency without a plan: these deployments alone serve the route. Pure: the next single thing, from the state and the world.

Stable must be active and have answered before anything is written; every other target leaves one at a time, each time with stable
seen active. What was there is kept in the journal. Nothing is put back by itself, and no deployment is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rollout.domain.context import Ctx, act, awaited
from rollout.domain.decision import Decision, Finish, Halt, HoldOn, Record
from rollout.domain.health import is_ours, marker_of, serving
from rollout.domain.receipts import Receipts, marker, recorded, short, take
from rollout.domain.route_checks import namesakes
from rollout.domain.shapes import WHOLE
from rollout.domain.state import Phase
from rollout.domain.world import RouteView, World, answers_of
from rollout.errors import ExitCode
from rollout.steps.declare import MARKER_LIFE, take_over

Json = Any
FACT = "only"
ASKED, PRIVATE, VERIFIED = 20, 3, 20
"""own requests: on the route at first, through a private route where those did not tell, on the route at the end"""
ACTIVE_WITHIN = 15.0
QUIET, DRAIN = 30.0, 1800.0
"""what a rollback from our marker would wait for; this kind drains nothing itself"""


def wish(stable: Sequence[str]) -> dict[str, Json]:
    """What the state keeps."""
    return {"stable": list(stable)}


def unfit(world: World, stable: Sequence[str]) -> str | None:
    """Why these cannot serve alone right now, from the server's word alone."""
    for name in stable:
        view, target = world.deployments.get(name), world.route.target_of(name) if world.route else None
        if view is None:
            return f"{name} does not exist"
        if not view.replicas:
            return f"{name} has 0 replicas, so nothing of it runs: set its replicas in GPUStack, then say this again"
        if target is not None and not serving(world, name):
            return f"{name} does not serve: its target is {target.state}, {view.ready_replicas} of {view.replicas} replicas ready"
        if target is None and not view.ready:
            return f"{name} is not ready ({view.ready_replicas} of {view.replicas} replicas)"
    return None


def decide(ctx: Ctx) -> Decision:
    """Look, prove that stable answers, claim, let stable join, let the others leave, verify, give the route back."""
    if ctx.world.route is None:
        return _stop(ctx, f"route {ctx.state.route} does not exist on the server", ExitCode.REFUSED)
    if ctx.state.fact("before") is None:
        return _look(ctx)
    gap = unfit(ctx.world, _stable(ctx)) if ctx.state.fact("emptied") is None else None
    if gap and any(0 <= ctx.since(at) < ACTIVE_WITHIN for n in _stable(ctx) if (at := ctx.at(f"joined.{n}")) is not None):
        return ctx.wait(f"its new target becomes active: {gap}", 0.25)
    if gap:
        return _stop(ctx, gap, ExitCode.HALTED)
    if ctx.state.fact("halted") is not None:
        afresh = {"halted": None, "asked": None, **{f"{word}.{n}": None for n in _stable(ctx) for word in ("answered", "silent")}}
        return Record(afresh, f"{', '.join(_stable(ctx))} is active again: asked whether it answers")
    return _prove(ctx) or _claim(ctx) or _join(ctx) or _leave(ctx) or _verify(ctx) or _end(ctx)


def undo(ctx: Ctx) -> Decision:
    """A person's stop: our private routes and our marker go, targets stay as they are now."""
    route = ctx.state.route
    own = _tidy(ctx)
    if own is not None:
        return own
    if ctx.state.fact("marker") is not None and is_ours(ctx.state, ctx.world):
        return act("unmark_route", "give the route back: remove the marker", "unmarked", route=route, meta={})
    said = f"stopped by a person: the targets of route {route} stay as they are now"
    return Finish(Phase.ABORTED, said, ExitCode.ROLLED_BACK, {"why": said})


def _stable(ctx: Ctx) -> tuple[str, ...]:
    return tuple(ctx.state.facts[FACT]["stable"])


def _probe(ctx: Ctx, name: str) -> str:
    return f"probe-{short(ctx.state.id)}-{_stable(ctx).index(name)}-only"


def _stop(ctx: Ctx, why: str, code: ExitCode) -> Decision:
    """Before the claim nothing was written, so it simply ends; after it a person is needed and it can be gone on with."""
    if ctx.state.fact("claim") is not None:
        return Halt("stable_lost", f"{why}: nothing more is taken from the route")
    said = f"{why}; nothing was changed on the route"
    return _tidy(ctx) or Finish(Phase.ABORTED, said, code, {"why": said})


def _look(ctx: Ctx) -> Decision:
    """Refuse what cannot be done, else keep what is there: targets, and the marker of whoever holds the route."""
    route, names = ctx.world.route, _stable(ctx)
    if route is None:
        return _stop(ctx, "the route is gone", ExitCode.REFUSED)
    missing = [n for n in names if n not in ctx.world.deployments]
    if missing:
        return _stop(ctx, f"no deployment is named {', '.join(missing)}", ExitCode.REFUSED)
    beyond = next(_beyond(route, names), None)
    if beyond:
        return _stop(ctx, beyond, ExitCode.REFUSED)
    gap = unfit(ctx.world, names)
    if gap:
        return _stop(ctx, gap, ExitCode.HALTED)
    former = marker_of(route)
    receipts = recorded(former) if former else None
    lost = former is not None and receipts is None  # nobody could go on with that marker, so it must not hold the route for ever
    if {t.deployment for t in route.targets} == set(names) and not lost:
        return Finish(Phase.COMPLETED, f"only {', '.join(names)} served route {route.name} already: nothing was changed", ExitCode.DONE)
    before = [
        {"id": t.id, "model_id": t.model_id, "deployment": t.deployment, "weight": t.weight, "extra": dict(t.extra)} for t in route.targets
    ]
    ours = receipts or take(ctx.state.id, route, (), {}, QUIET, DRAIN)
    known = (*names, *(receipts.names if receipts else ()))
    private = (*(_probe(ctx, n) for n in names), *(receipts.probe_names if receipts else ()))
    facts = {
        "before": {"route": route.id, "targets": before, "former": former.get("id") if former else None},
        "marker": {**marker(ours, str(ctx.state.fact("store")), str(ctx.state.fact("nonce")), ctx.now + MARKER_LIFE), "id": ctx.state.id},
        "takeover": True,
        "names": list(dict.fromkeys(known)),
        "probe_names": list(private),
    }
    return Record(facts, f"found on route {route.name}: {words(before)}")


def _beyond(route: RouteView, names: Sequence[str]) -> Iterator[str]:
    """What this command cannot do on such a route, and a person can."""
    yield from namesakes(route)
    if route.organisation is not None:
        yield (
            f"route {route.name} belongs to organisation {route.organisation}: no key of the platform may ask it, and it takes no target "
            "of the platform; remove its other targets in GPUStack"
        )
    foreign = [f"target {t.id}" for t in route.targets if t.deployment is None]
    if foreign:
        yield f"{', '.join(foreign)} leads to no deployment (a provider): remove it in GPUStack, then say this again"
    spare = [n for n in names if (t := route.target_of(n)) is not None and t.fallback]
    if spare:
        yield f"{', '.join(spare)} is a fallback target and takes no share: take its `fallback_status_codes` away, then say this again"


def words(before: Sequence[dict[str, Json]]) -> str:
    """Targets as one line."""
    return ", ".join(f"{t['deployment']} with weight {t['weight']}" for t in before)


def _prove(ctx: Ctx) -> Decision | None:
    """Every stable deployment has answered: on the route, else through a private route of ours."""
    route, names = ctx.world.route, [n for n in _stable(ctx) if not ctx.state.fact(f"answered.{n}")]
    if not names or route is None:
        return None
    asked = ctx.state.fact("asked")
    if asked is None and any(route.target_of(n) for n in names):
        return act("probe", "own requests: who answers on the route?", "asked", model=route.name, n=ASKED)
    clean = asked is not None and asked.get("ok") == asked.get("n")
    seen = {n: answers_of((asked or {}).get("models", {}), n) for n in names}
    told = [n for n in names if clean and seen[n]]
    if told:
        facts = {f"answered.{n}": {"at": ctx.now.isoformat(), "ok": seen[n]} for n in told}
        return Record(facts, f"{', '.join(told)} answers on the route")
    return _ask(ctx, names[0])


def _ask(ctx: Ctx, name: str) -> Decision:
    private, key = _probe(ctx, name), f"answered.{name}"
    found = ctx.world.probe_routes.get(private)
    failed = ctx.state.fact(f"silent.{name}")
    if failed is not None:
        return _stop(ctx, f"{name} does not answer: {failed.get('errors')}", ExitCode.HALTED)
    if found is None or found.target_of(name) is None:
        return act("create_probe_route", f"private route {private} to {name}, to ask it", None, name=private, deployment=name)
    ready, why = all(t.active for t in found.targets), f"private route {private} becomes active"
    waits = awaited(ctx, ready, f"{private}.active", ACTIVE_WITHIN, why, "not_ready", 0.25)
    if waits is not None:
        return waits
    seen = ctx.state.fact(f"probed.{name}")
    if seen is None:
        return act("probe", f"does {name} answer?", f"probed.{name}", model=private, n=PRIVATE)
    answered = {key: seen} if seen.get("ok", 0) >= 1 else {f"silent.{name}": seen}
    return Record({f"probed.{name}": None, **answered}, f"{name} answered {seen.get('ok', 0)} of {seen.get('n')} requests")


def _claim(ctx: Ctx) -> Decision | None:
    step = take_over(ctx)
    if step is None and ctx.state.fact("unmarked") is None and not is_ours(ctx.state, ctx.world):
        return HoldOn("drift", "our marker was removed from the route by somebody else")
    return step


def _join(ctx: Ctx) -> Decision | None:
    """A stable deployment that had left comes back, and is active, before anything leaves."""
    route = ctx.world.route
    for name in _stable(ctx) if route is not None else ():
        if route is not None and route.target_of(name) is None:
            former = Receipts.model_validate(ctx.state.facts["marker"]["receipts"])
            found, weight = former.found(name), _weight(former, route, name)
            args = {"route": ctx.state.route, "deployment": name, "weight": weight, "extra": dict(found.extra) if found else {}}
            return act("join", f"{name} comes back with weight {weight}", f"joined.{name}", **args)
    return None


def _weight(former: Receipts, route: RouteView, name: str) -> int:
    """What it had, or had been given, or as much as the largest one there. None where the others have none: it is all or none."""
    now = [t.weight for t in route.targets if not t.fallback]
    if now and not any(now):
        return 0
    found = former.found(name)
    return former.converted.get(name) or (found.weight if found else 0) or max(now, default=WHOLE)


def _leave(ctx: Ctx) -> Decision | None:
    route = ctx.world.route
    for target in (t for t in (route.targets if route else ()) if t.deployment not in _stable(ctx)):
        key = f"left.{target.deployment}"
        if ctx.state.fact(key) is not None:
            return HoldOn("drift", f"{target.deployment} is a target again after it was removed: somebody puts it back", clears=(key,))
        why = f"{target.deployment} leaves the route (weight {target.weight})"
        return act("leave", why, key, route=ctx.state.route, deployment=target.deployment)
    return None


def _verify(ctx: Ctx) -> Decision | None:
    """The cache is dropped once more, and own requests see nobody else."""
    if ctx.state.fact("emptied") is None:
        return act("refresh", "drop the route's cached targets", "emptied", route=ctx.state.route)
    seen = ctx.state.fact("verified")
    if seen is None:
        return act("probe", "own requests: who answers now?", "verified", model=ctx.state.route, n=VERIFIED)
    others = {m: hits for m, hits in seen.get("models", {}).items() if hits and not any(answers_of({m: hits}, n) for n in _stable(ctx))}
    if others and ctx.state.fact("again") is None:
        return Record(
            {"again": {"at": ctx.now.isoformat()}, "emptied": None, "verified": None},
            f"without a target, but answered: {others}; once more",
        )
    if others:
        return HoldOn("weight_not_effective", f"without a target, but answered: {others}", clears=("verified", "emptied"))
    if not seen.get("ok"):
        return HoldOn("probe_failed", f"the route does not answer: {seen.get('errors')}", clears=("verified",))
    return None


def _tidy(ctx: Ctx) -> Decision | None:
    for name in _stable(ctx):
        private = _probe(ctx, name)
        if private in ctx.world.probe_routes:
            return act("delete_probe_route", f"remove private route {private}", None, name=private)
    return None


def _end(ctx: Ctx) -> Decision:
    own = _tidy(ctx)
    if own is not None:
        return own
    if ctx.state.fact("unmarked") is None:
        return act("unmark_route", "give the route back: remove the marker", "unmarked", route=ctx.state.route, meta={})
    rest = list(_rest(ctx))
    note = f"; left over from rollout {ctx.state.facts['before']['former']}: {', '.join(rest)}" if rest else ""
    why = f"only {', '.join(_stable(ctx))} serves route {ctx.state.route}{note}"
    return Finish(Phase.COMPLETED, why, ExitCode.DONE, {"rest": rest})


def _rest(ctx: Ctx) -> Iterator[str]:
    """What the rollout that held the route made, and what nobody manages now."""
    former = Receipts.model_validate(ctx.state.facts["marker"]["receipts"])
    if not former.pairs:
        return
    made = (*(p.canary for p in former.pairs if p.adopted is None), former.staging)
    yield from (n for n in made if n in ctx.world.deployments and n not in _stable(ctx))
    yield from (n for n in former.probe_names if n in ctx.world.probe_routes)
