"""A serving platform in memory: the ports of the engine without a socket, on an injected clock. For properties and simulations.

It keeps the contract's rules that an engine can break: no zero weight beside a positive one, no empty route, unavailable
targets renormalise, names are unique, a deployment takes its targets with it. Traffic is a rate; counters follow from weights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rollout.clock import Clock
from rollout.domain.world import (
    DeploymentView,
    EngineSample,
    FileView,
    InstanceSample,
    InstanceView,
    Keys,
    RouteView,
    Scope,
    TargetView,
    WorkerView,
    World,
)
from rollout.errors import Refused

Json = Any
MIX = "either every target of a route carries a positive weight or none may"
EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


@dataclass
class Deployment:
    """One deployment with one process per replica. `slow` multiplies its latency, `failing` is its error rate, `away`: replicas lost.

    `wrong`: share of its answers that are wrong.
    """

    id: int
    spec: dict[str, Json]
    ready_at: float
    healthy: bool = True
    slow: float = 1.0
    failing: float = 0.0
    wrong: float = 0.0
    away: int = 0
    requests: float = 0.0
    errors: float = 0.0
    ttft: dict[float, float] = field(default_factory=lambda: dict.fromkeys([*EDGES, math.inf], 0.0))
    in_flight: float = 0.0
    worker: str = "spark-01"


@dataclass
class File:
    """Model files on one worker. `on_disk` outlives the row when a worker fails to delete them."""

    id: int
    worker: str
    path: str
    size: int = 5 << 30
    row: bool = True
    on_disk: bool = True


@dataclass
class Target:
    """One entry of a route."""

    id: int
    deployment: str
    weight: int
    extra: dict[str, Json] = field(default_factory=dict)


@dataclass
class Route:
    """One route."""

    id: int
    name: str
    targets: list[Target]
    meta: dict[str, Json] = field(default_factory=dict)
    policy: str = "authed"
    policies: tuple[str, ...] = ()
    """balancing policies, which choose while no target has a weight"""

    @property
    def mode(self) -> str | None:
        if any(t.weight for t in self.targets):
            return "weighted" if all(t.weight for t in self.targets) else "invalid"
        return "scoring" if self.policies else None


@dataclass
class MemoryPlatform:
    """Backend and measurer in one. `writes` lists every change that was carried out, in order."""

    clock: Clock
    rate: float = 20.0
    """user requests a second on every production route"""
    seed: int = 1
    start_delay: float = 3.0
    slow_images: Mapping[str, float] = field(default_factory=dict)
    failing_images: Mapping[str, float] = field(default_factory=dict)
    wrong_images: Mapping[str, float] = field(default_factory=dict)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)
    writes: list[tuple[str, dict[str, Json]]] = field(default_factory=list)
    replayed: list[str] = field(default_factory=list)
    """ids of the prompts that were asked, in order"""
    memory_available: int | None = 64 << 30
    own_time: Callable[[], float] | None = None
    """the platform's own time (unix seconds); the clock's unless another is given, as where the engine's wall clock is made to jump"""
    keys: Keys = field(default_factory=Keys)
    """what the server's list says of our keys"""
    files: list[File] = field(default_factory=list)
    deletes: bool = True
    """whether workers really delete what they are told to"""
    deaf: int = 0
    """how many of the next writes and refreshes a gateway drops: the API shows them, the traffic follows only a later one"""
    key_says: dict[str, Json] = field(default_factory=dict)
    """what differs in the answer about the inference key"""
    server_time: Callable[[], datetime] | None = None
    """the server's own clock"""
    request_seconds: float | None = None
    """how long a request runs; None: the engines expose no histogram of it"""

    def __post_init__(self) -> None:
        self._ids = 0
        self._dropped: dict[str, dict[str, float]] = {}
        self._random = random.Random(self.seed)
        self._last = self.seconds()

    def seconds(self) -> float:
        """What time it is on the platform."""
        return self.clock.now().timestamp() if self.own_time is None else self.own_time()

    # --- set-up

    def deploy(self, name: str, image: str = "sim/vllm:1", replicas: int = 1, *, ready: bool = True) -> None:
        """A deployment as if it had been there for an hour."""
        now = self.seconds()
        spec = {"name": name, "image_name": image, "replicas": replicas}
        self.deployments[name] = Deployment(self._id(), spec, now - 3600 if ready else now + self.start_delay)
        self._apply_image(self.deployments[name])
        self._file(self.deployments[name])
        _count(self.deployments[name], 3600 * self.rate, self._random)

    def route(self, name: str, weights: Mapping[str, int], meta: Mapping[str, Json] | None = None) -> None:
        """A production route."""
        self.routes[name] = Route(self._id(), name, [Target(self._id(), d, w) for d, w in weights.items()], dict(meta or {}))

    def _file(self, deployment: Deployment) -> None:
        """One row per worker and source, as soon as something of that source starts there."""
        path = _path(deployment)
        if not any(f.row and (f.worker, f.path) == (deployment.worker, path) for f in self.files):
            self.files.append(File(self._id(), deployment.worker, path))

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def _apply_image(self, deployment: Deployment) -> None:
        image = deployment.spec.get("image_name", "")
        deployment.slow = self.slow_images.get(image, 1.0)
        deployment.failing = self.failing_images.get(image, 0.0)
        deployment.wrong = self.wrong_images.get(image, 0.0)

    # --- the world

    def serves(self, name: str) -> bool:
        """Every replica of the deployment runs."""
        found = self.deployments.get(name)
        return found is not None and found.healthy and found.spec["replicas"] > 0 and found.ready_at <= self.seconds()

    def shares(self, route: Route) -> dict[str, float]:
        """Share of each deployment, unavailable targets renormalised away; those of before a dropped write, while it is dropped."""
        if route.name in self._dropped:
            return self._dropped[route.name]
        live = [t for t in route.targets if self.serves(t.deployment)]
        total = sum(t.weight for t in live)
        return {t.deployment: (t.weight / total if total else 1 / len(live)) for t in live}

    def advance(self) -> None:
        """Let the traffic since the last look pass."""
        now = self.seconds()
        elapsed, self._last = now - self._last, now
        for route in self.routes.values():
            if route.policy == "authed":
                for name, share in self.shares(route).items():
                    _count(self.deployments[name], elapsed * self.rate * share, self._random)

    async def observe(self, scope: Scope) -> World:
        """The world as it is now."""
        self.advance()
        names = [n for n in scope.deployments if n in self.deployments]
        route = self.routes.get(scope.route)
        return World(
            now=self.clock.now(),
            server_time=self.server_time() if self.server_time else None,
            server_version="v2.3.0",
            route=self._route_view(route) if route else None,
            deployments={n: self._view(n) for n in names},
            probe_routes={n: self._route_view(self.routes[n]) for n in scope.probe_routes if n in self.routes},
            workers={w: self._worker(w) for w in ("spark-01", "spark-02", "staging")},
            samples={n: self._sample(n) for n in scope.sample if n in self.deployments},
            keys=self.keys,
            files=tuple(self._file_view(f) for f in self.files if f.row) if scope.files else None,
        )

    def _worker(self, name: str) -> WorkerView:
        used = (100 << 30) + sum(f.size for f in self.files if f.on_disk and f.worker == name)
        return WorkerView(self._id(), name, "ready", 5.0, 128 << 30, self.memory_available, True, {"/": used})

    def _file_view(self, file: File) -> FileView:
        users = tuple(sorted(n for n, d in self.deployments.items() if _path(d) == file.path))
        return FileView(file.id, file.worker, f"local_path {file.path}", (file.path,), file.size, "ready", users)

    def _route_view(self, route: Route) -> RouteView:
        targets = tuple(
            TargetView(t.id, self._model_id(t), t.deployment, t.weight, "active" if self.serves(t.deployment) else "unavailable", t.extra)
            for t in route.targets
        )
        return RouteView(route.id, route.name, targets, route.mode, dict(route.meta), route.policy, policies=route.policies)

    def _model_id(self, target: Target) -> int | None:
        found = self.deployments.get(target.deployment)
        return found.id if found else None

    def _view(self, name: str) -> DeploymentView:
        found = self.deployments[name]
        count = found.spec["replicas"]
        state = "running" if self.serves(name) else ("starting" if found.healthy else "error")
        rows = range(count)
        instances = tuple(InstanceView(found.id * 100 + n, f"{name}-{n}", state, found.worker, claim=8 << 30) for n in rows)
        ready = count - found.away if self.serves(name) else 0
        routes = tuple(r.name for r in self.routes.values() if any(t.deployment == name for t in r.targets))
        return DeploymentView(found.id, name, count, ready, state, dict(found.spec), instances, routes)

    def _sample(self, name: str) -> EngineSample:
        found = self.deployments[name]
        if not self.serves(name):
            return EngineSample(self.clock.now(), "METRIC_ERROR", {}, "no instance is running")
        counts, tokens = dict(found.ttft), found.requests * 8
        took = self.request_seconds
        e2e = None if took is None else {edge: (counts[math.inf] if edge >= took else 0.0) for edge in counts}
        row = InstanceSample(found.in_flight, 0.0, found.requests, found.errors, tokens, counts, e2e, found.ready_at)
        return EngineSample(self.clock.now(), "OK", {f"{name}-0": row})

    # --- effects

    def knows(self, verb: str) -> bool:
        """All verbs: this platform measures too."""
        return bool(verb)

    def derive(self, stable: Mapping[str, Json], change: Mapping[str, Json], sizing: Mapping[str, Json], name: str) -> dict[str, Json]:
        """Stable's spec with the unit's fields and the sizing."""
        sized = {k: v for k, v in sizing.items() if k in ("replicas", "worker")}
        return {**stable, **change.get("to", {}), **sized, "name": name}

    def diff(self, stable: Mapping[str, Json], canary: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
        """Fields that differ, the name aside."""
        keys = sorted({*stable, *canary} - {"name"})
        return [(k, stable.get(k), canary.get(k)) for k in keys if stable.get(k) != canary.get(k)]

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """Carry out one effect, or answer one measurement."""
        self.advance()
        handler = getattr(self, f"_do_{verb}")
        if verb in ("join", "set_weight", "twin", "leave", "reweigh", "refresh"):
            self._render(self.routes[args["route"]])
        result: dict[str, Json] = handler(args)
        if not verb.startswith(("probe", "replay", "warm", "verify", "stage_")):
            self.writes.append((verb, dict(args)))
        return result

    def _render(self, route: Route) -> None:
        if self.deaf > 0:
            self.deaf -= 1
            self._dropped.setdefault(route.name, self.shares(route))
        else:
            self._dropped.pop(route.name, None)

    def _do_mark_route(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        found = route.meta.get("rollout")
        if found and found.get("nonce") != args["marker"]["nonce"] and not args.get("takeover"):
            msg = "the route carries another marker"
            raise Refused(msg)
        route.meta = {**route.meta, "rollout": args["marker"]}
        return {"seconds": 0.01}

    def _do_unmark_route(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        route.meta = {k: v for k, v in route.meta.items() if k != "rollout"}
        return {}

    def _do_create_deployment(self, args: Mapping[str, Json]) -> dict[str, Json]:
        if args["name"] not in self.deployments:
            spec = self.derive(self.deployments[args["base"]].spec, args["change"], args["sizing"], args["name"])
            made = Deployment(self._id(), spec, self.seconds() + self.start_delay)
            made.worker = str(spec.pop("worker", made.worker))
            self._apply_image(made)
            self._file(made)
            self.deployments[args["name"]] = made
        return {}

    def _do_delete_deployment(self, args: Mapping[str, Json]) -> dict[str, Json]:
        self.deployments.pop(args["name"], None)
        for route in self.routes.values():
            route.targets = [t for t in route.targets if t.deployment != args["name"]]
        return {}

    def _do_scale(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """To 0: the engines die at once, with whatever runs in them. Up again: they load."""
        found = self.deployments[args["name"]]
        used = [r.name for r in self.routes.values() if r.policy == "authed" and any(t.deployment == args["name"] for t in r.targets)]
        if args["replicas"] == 0 and used:
            msg = f"{', '.join(used)} still sends to it"
            raise Refused(msg)
        if found.spec["replicas"] == 0 < args["replicas"]:
            found.ready_at = self.seconds() + self.start_delay
            self._file(found)
        found.spec = {**found.spec, "replicas": args["replicas"]}
        return {"replicas": args["replicas"]}

    def _do_delete_file(self, args: Mapping[str, Json]) -> dict[str, Json]:
        for file in (f for f in self.files if f.row and f.id == args["id"]):
            if any(_path(d) == file.path and d.spec["replicas"] for d in self.deployments.values()):
                msg = "It's being used by model instances"
                raise Refused(msg)
            file.row, file.on_disk = False, not self.deletes
        return {}

    def _do_create_probe_route(self, args: Mapping[str, Json]) -> dict[str, Json]:
        target = Target(self._id(), args["deployment"], 100)
        self.routes[args["name"]] = Route(self._id(), args["name"], [target], {}, "allowed_principals")
        return {}

    def _do_delete_probe_route(self, args: Mapping[str, Json]) -> dict[str, Json]:
        self.routes.pop(args["name"], None)
        return {}

    def _do_join(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        if args["weight"] == 0 and not any(t.weight for t in route.targets):
            route.targets.append(Target(self._id(), args["deployment"], 0, dict(args.get("extra") or {})))
            return {"seconds": 0.05}
        return self._do_set_weight(args)

    def _do_set_weight(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        if args["weight"] <= 0 or not all(t.weight for t in route.targets):
            raise Refused(MIX)
        found = next((t for t in route.targets if t.deployment == args["deployment"]), None)
        if found is None:
            route.targets.append(Target(self._id(), args["deployment"], args["weight"], dict(args.get("extra") or {})))
        else:
            found.weight = args["weight"]
        return {"seconds": 0.05}

    def _do_twin(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        route.targets = [t for t in route.targets if t.deployment != args["deployment"]]
        return self._do_set_weight(args)

    def _do_reweigh(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        after = {t.deployment: args["weights"].get(t.deployment, t.weight) for t in route.targets}
        if set(args["weights"]) - set(after) or (any(after.values()) and not all(after.values())):
            raise Refused(MIX)
        for target in route.targets:
            target.weight = after[target.deployment]
        return {"seconds": 0.05, "active": True}

    def _do_leave(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["route"]]
        rest = [t for t in route.targets if t.deployment != args["deployment"]]
        if not any(self.serves(t.deployment) for t in rest):
            msg = "would empty the route"
            raise Refused(msg)
        route.targets = rest
        return {"deployment": args["deployment"]}

    def _do_refresh(self, _args: Mapping[str, Json]) -> dict[str, Json]:
        return {}

    # --- measurements

    def _do_probe(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes[args["model"]]
        models: dict[str, int] = {}
        shares = self.shares(route)
        for _ in range(args["n"] if shares else 0):
            name = self._random.choices(list(shares), list(shares.values()))[0]
            models[name] = models.get(name, 0) + 1
        return {"n": args["n"], "ok": sum(models.values()), "models": models, "errors": []}

    def _do_probe_key(self, args: Mapping[str, Json]) -> dict[str, Json]:
        route = self.routes.get(args["model"])
        listed = route is not None and any(self.serves(t.deployment) for t in route.targets)
        return {"status": 200, "listed": listed, "error": "", **self.key_says}

    def _do_warm_up(self, args: Mapping[str, Json]) -> dict[str, Json]:
        return {"n": args["n"], "ok": args["n"], "seconds": 0.1}

    def _do_verify_share(self, args: Mapping[str, Json]) -> dict[str, Json]:
        share = self.shares(self.routes[args["model"]]).get(args["deployment"], 0.0)
        moved = abs(share - args["new"]) < abs(share - args["old"])
        return {"moved": moved, "n": 100, "hits": round(100 * share), "failed": 0, "llr": 7.0 if moved else -7.0}

    def _do_probe_pairs(self, args: Mapping[str, Json]) -> dict[str, Json]:
        sides = [self.deployments[self.routes[args[s]].targets[0].deployment] for s in ("stable", "canary")]
        pairs = []
        for _ in range(args["n"]):
            times = [0.2 * d.slow * math.exp(self._random.gauss(0, 0.1)) for d in sides]
            oks = [self._random.random() >= d.failing for d in sides]
            pairs.append([*(t if ok else None for t, ok in zip(times, oks, strict=True)), *oks])
        return {"pairs": pairs, "invalid": None}

    def _do_replay_pairs(self, args: Mapping[str, Json]) -> dict[str, Json]:
        sides = [self.deployments[self.routes[args[s]].targets[0].deployment] for s in ("stable", "canary")]
        self.replayed += [prompt["id"] for prompt in args["prompts"]]
        pairs, lost = [], []
        for prompt in args["prompts"]:
            oks = [self._random.random() >= d.failing for d in sides]
            right = [float(self._random.random() >= d.wrong) for d in sides]
            scores = [score if ok else None for score, ok in zip(right, oks, strict=True)]
            pairs.append([*scores, *oks])
            if (scores[0] or 0.0) > (scores[1] or 0.0):
                lost.append({"id": prompt["id"], "stable": scores[0], "canary": scores[1], "said": [None, None]})
        return {"pairs": pairs, "lost": lost, "errors": [], "invalid": None, "seq": args["seq"], "seconds": 0.1}

    def _do_stage_cell(self, args: Mapping[str, Json]) -> dict[str, Json]:
        cell = {"n": args["requests"], "ok": args["requests"], "errors": 0, "ttft_p50": 0.2, "ttft_p95": 0.3, "tokens_per_second": 80.0}
        memory = dict.fromkeys(("memory_before", "memory_peak", "memory_after"), self.memory_available)
        return {"prompt_tokens": args["prompt_tokens"], "concurrency": args["concurrency"], "client_bound": None, **cell, **memory}


def _path(deployment: Deployment) -> str:
    """Where its model lies: a field of the spec, else a place that all share."""
    return str(deployment.spec.get("local_path", "/models/chat"))


def _count(deployment: Deployment, requests: float, rng: random.Random) -> None:
    """Add finished requests to the counters, their latencies spread over the buckets."""
    whole = int(requests) + (1 if rng.random() < requests % 1 else 0)
    deployment.requests += whole
    deployment.errors += sum(1 for _ in range(min(whole, 2000)) if rng.random() < deployment.failing)
    for _ in range(min(whole, 2000)):
        took = 0.2 * deployment.slow * math.exp(rng.gauss(0, 0.3))
        for edge in deployment.ttft:
            if took <= edge:
                deployment.ttft[edge] += 1
