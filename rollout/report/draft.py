"""A first plan for a live route, with comments: everything that can be read or guessed, and what a person must fill in. Pure.

It copies nothing that may be secret: keys are references, environment values are left out, parameters are shown without secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from rollout.domain.adoption import LOOSE
from rollout.domain.ladder import rate_of
from rollout.domain.preflight import findings
from rollout.domain.shapes import Balance, balance_of
from rollout.domain.weights import choose_mode, expressible, ladder_shares
from rollout.domain.world import DeploymentView, RouteView, TargetView, WorkerView, World, named
from rollout.plan.fields import HOST_UNITS, OWN, Unit
from rollout.plan.hidden import keepable
from rollout.plan.model import GPUStack, Plan, SecretRef

Json = Any
STAND_IN: dict[Unit, dict[str, Json]] = {
    **{unit: {"version": "1"} for unit in (Unit.OS, Unit.DRIVER, Unit.WORKER)},
    **{unit: {"image_name": "example/image:1"} for unit in (Unit.BACKEND_IMAGE, Unit.SERVICE_IMAGE)},
    Unit.MODEL_REVISION: {"local_path": "/models/v1"},
    Unit.PARAMETERS: {"run_command": "serve"},
}
"""something valid in the place that a person fills in, so that the rest can be checked"""
LIKE: dict[Unit, str] = {
    Unit.OS: '{version: "24.04.3"}',
    Unit.DRIVER: '{version: "580.95.05"}',
    Unit.WORKER: '{version: "v2.3.0"}',
    Unit.BACKEND_IMAGE: '{image_name: "registry.example/vllm:0.19.1"}',
    Unit.SERVICE_IMAGE: '{image_name: "registry.example/service:1.4.0"}',
    Unit.MODEL_REVISION: '{local_path: "/models/chat-2026-11"}',
    Unit.PARAMETERS: '{backend_parameters: ["--max-num-seqs=64"]}',
}
MISSING = "FILL-IN"
STAGING = re.compile(r"stag|test|canary", re.IGNORECASE)
_SECRET_FLAG = re.compile(r"(--?[\w-]*(?:key|token|secret|passw(?:or)?d|credential)[\w-]*(?:[= ]+))\S+", re.IGNORECASE)


@dataclass(frozen=True)
class Draft:
    """The file's text, why the route cannot be rolled as it is, and what was guessed."""

    text: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Guess:
    """What the world suggests. `rate`: requests an hour, None = unknown; shares in percent."""

    stable: tuple[str, ...]
    mode: str
    rate: float | None
    ladder: tuple[float, ...]
    staging: str | None
    canary: str | None


def draft(world: World, at: GPUStack, route: RouteView, unit: Unit, now: datetime) -> Draft:
    """The plan for one change of `unit` on `route`, whose deployments and samples are in `world`."""
    guess = _guess(world, route)
    problems, notes = tuple(_problems(world, at, route, unit, guess)), tuple(_notes(world, route, guess))
    name = f"{route.name}-{unit.value.replace('_', '-')}"
    file = f"{route.name}.yaml"
    lines = [
        f"# A plan for the route {route.name}, read from {at.server} ({world.server_version}) at {now:%Y-%m-%d %H:%M} UTC.",
        f"# Fill in `change.to`, then: rollout validate {file} && rollout plan {file}",
        *(["#", "# THIS ROUTE CANNOT BE ROLLED AS IT IS:"] if problems else []),
        *(f"#   - {one}" for one in problems),
        *(f"# note: {one}" for one in notes),
        "apiVersion: rollout/v1",
        "kind: RolloutPlan",
        f"metadata: {{name: {_text(name)}}}",
        *_server(at),
        f"route: {{name: {_text(route.name)}}}",
        *_change(world, unit, guess),
        *_stable(world, route, guess),
        *_canary(world, guess),
        *_ladder(guess),
        *_stage(guess),
        "# Not written, so as the reference says: evidence, drain, window (24h; parks stable where memory is needed, once approved),",
        "# cleanup (after `approve`), guards.",
    ]
    return Draft("\n".join(lines) + "\n", problems, notes)


def _guess(world: World, route: RouteView) -> Guess:
    serving = [t for t in route.targets if t.deployment is not None and not t.extra.get("fallback_status_codes") and not _idle(route, t)]
    stable = tuple(dict.fromkeys(t.deployment for t in serving if t.deployment is not None))
    first = world.deployments.get(stable[0]) if stable else None
    rate = rate_of(world, stable[0])[0] if stable else None
    mode, replicas = choose_mode(rate), max(1, first.replicas if first else 1)
    siblings = len(route.targets) > 1
    shares = ladder_shares(None, mode, replicas, replicas, siblings=siblings)
    weights = [t.weight for t in serving if t.weight > 0]  # a route without weights gets fine ones when it is converted
    shares = tuple(s for s in shares if s >= 1 or not siblings or all(expressible(w, s) for w in weights))
    staging = _staging(world, stable)
    return Guess(stable, mode, rate, tuple(round(100 * s, 4) for s in shares), staging, _other(world, stable, staging))


def _idle(route: RouteView, target: TargetView) -> bool:
    """Weight 0 beside others that have one (2.2 takes it): it gets no request, so there is nothing to replace."""
    return not target.weight and not target.fallback and balance_of(route) is Balance.WEIGHTED


def _hosts(world: World, names: Sequence[str]) -> set[str]:
    return {host for n in names if n in world.deployments for host in world.deployments[n].hosts}


def _staging(world: World, stable: Sequence[str]) -> str | None:
    """A ready worker that hosts none of the route: one that is called so, else the one with the most memory available."""
    busy = _hosts(world, stable)
    free = [w for w in world.workers.values() if w.state == "ready" and w.name not in busy]
    return max(free, key=_rank).name if free else None


def _rank(worker: WorkerView) -> tuple[bool, int, str]:
    return bool(STAGING.search(worker.name)), worker.memory_available or 0, worker.name


def _other(world: World, stable: Sequence[str], staging: str | None) -> str | None:
    """A worker for the canary of a single stable target: not stable's, since one GPU rarely holds two."""
    if len(stable) != 1:
        return None
    busy = {*_hosts(world, stable), staging}
    free = [w for w in world.workers.values() if w.state == "ready" and w.name not in busy]
    return max(free, key=lambda w: (w.memory_available or 0, w.name)).name if free else None


def _problems(world: World, at: GPUStack, route: RouteView, unit: Unit, guess: Guess) -> Iterator[str]:
    if not guess.stable:
        yield f"route `{route.name}` has no target that leads to a deployment: there is nothing to replace"
        return
    raw = {
        "apiVersion": "rollout/v1",
        "kind": "RolloutPlan",
        "metadata": {"name": route.name},
        "gpustack": at.model_dump(exclude_none=True),
        "route": {"name": route.name},
        "change": {"unit": unit.value, "to": STAND_IN[unit]},
        "stable": [{"deployment": n} for n in guess.stable],
        "ladder": list(guess.ladder),
        "canary": {"sizing": {"worker": guess.canary}} if guess.canary else {},
        "stage": {"worker": guess.staging} if guess.staging else {"skip": "no staging worker was found"},
    }
    yield from findings(Plan.model_validate(raw), world)


def _notes(world: World, route: RouteView, guess: Guess) -> Iterator[str]:
    others = [f"target {t.id}" for t in route.targets if t.deployment is None]
    if others:
        yield f"{', '.join(others)} leads to no deployment (a provider): it keeps its weight and is not replaced"
    fallback = [str(t.deployment) for t in route.targets if t.extra.get("fallback_status_codes")]
    if fallback:
        yield f"{', '.join(fallback)} is a fallback target: it is not replaced, and it may hide errors of the canary"
    idle = [named(t) for t in route.targets if _idle(route, t)]
    if idle:
        yield f"{', '.join(idle)} has weight 0 beside others: it gets no request, stays as it is and is not replaced"
    views = [world.deployments[n] for n in guess.stable if n in world.deployments]
    differ = sorted({f for a, b in pairwise(views) for f in _differing(a, b)})
    if differ:
        yield f"the targets differ in {', '.join(differ)}: is one a canary by hand? take it out of `stable` and `rollout adopt` it"
    if world.route is not None and "rollout" in world.route.meta:
        yield "a rollout holds this route now: a plan can begin when it has ended"


def _differing(one: DeploymentView, two: DeploymentView) -> list[str]:
    keys = {*one.spec, *two.spec} - LOOSE - {"env"}
    return [k for k in keys if (one.spec.get(k) or None) != (two.spec.get(k) or None)]


def _server(at: GPUStack) -> Iterator[str]:
    yield "gpustack:"
    yield f"  server: {_text(at.server)}"
    if at.inference:
        yield f"  inference: {_text(at.inference)}"
    yield f"  management_key: {_ref(at.management_key)} # references: a key never enters a plan"
    yield f"  inference_key: {_ref(at.inference_key)}"


def _change(world: World, unit: Unit, guess: Guess) -> Iterator[str]:
    yield "change:"
    yield f"  unit: {unit.value}"
    if unit not in HOST_UNITS:
        seen = [f"  # today {n}: {today}" for n in guess.stable if n in world.deployments and (today := _today(world.deployments[n], unit))]
        yield from seen or ["  # today none of its fields is set"]
    yield f"  to: {{}} # FILL IN the new value, such as {LIKE[unit]}"


def _today(view: DeploymentView, unit: Unit) -> str:
    """The unit's fields as they are, on one line, without secrets."""
    found = {f: _shown(f, view.spec[f]) for f in OWN[unit] if view.spec.get(f) not in (None, {}, [], "")}
    return json.dumps(found, ensure_ascii=False) if found else ""


def _shown(field: str, value: Json) -> Json:
    if field == "env" and isinstance(value, dict):
        return dict.fromkeys(sorted(value), "***")
    if isinstance(value, str):
        return _SECRET_FLAG.sub(r"\1***", str(keepable(value, field)))
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return _parameters(value)
    return keepable(value, field)


def _parameters(values: Sequence[str]) -> list[str]:
    """A list of flags; what follows a flag that wants a secret is one."""
    shown, secret = [], False
    for value in values:
        shown.append("***" if secret else _SECRET_FLAG.sub(r"\1***", str(keepable(value))))
        secret = bool(_SECRET_FLAG.match(f"{value} x")) and "=" not in value
    return shown


def _stable(world: World, route: RouteView, guess: Guess) -> Iterator[str]:
    yield "stable: # replaced one after another, in this order"
    for name in guess.stable or (MISSING,):
        view, target = world.deployments.get(name), route.target_of(name)
        where = ", ".join(sorted(_hosts(world, [name]))) or "no worker"
        said = f"weight {target.weight}, {view.replicas} replica(s) on {where}" if view and target else "no deployment was found"
        yield f"  - {{deployment: {_text(name)}}} # {said}"


def _canary(world: World, guess: Guess) -> Iterator[str]:
    if guess.canary:
        yield f"canary: {{sizing: {{worker: {_text(guess.canary)}}}}} # a guess: ready, and hosts nothing of this route"
        return
    known = ", ".join(sorted(world.workers)) or "none"
    yield f'# canary: {{sizing: {{worker: "…"}}}} # where the canary runs; else the server chooses. Workers: {known}'


def _ladder(guess: Guess) -> Iterator[str]:
    rate = "an unknown rate of requests" if guess.rate is None else f"{guess.rate:,.0f} requests/h"
    steps = ", ".join(f"{p:g}" for p in guess.ladder)
    yield f"ladder: [{steps}] # percent of the pair; for {rate} ({guess.mode}); `auto` would choose again at the start"


def _stage(guess: Guess) -> Iterator[str]:
    if guess.staging:
        yield f"stage: {{worker: {_text(guess.staging)}}} # a guess: ready, and hosts nothing of this route. The load test runs there"
    else:
        yield f'stage: {{worker: {_text(MISSING)}}} # no ready worker is free of this route: name one, or `skip: "the reason"`'


def _ref(ref: SecretRef) -> str:
    return f"{{env: {_text(ref.env)}}}" if ref.env is not None else f"{{file: {_text(ref.file or '')}}}"


def _text(value: str) -> str:
    """Quoted, so that no name is read as a number or a yes."""
    return json.dumps(value, ensure_ascii=False)
