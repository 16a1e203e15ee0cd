"""What is true now, as one tick saw it. Frozen data, no I/O.

A `World` holds only what was read in this tick. What could not be read is absent or `unknown`, never a default that looks healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rollout.domain.live import Live

Json = Any


@dataclass(frozen=True)
class TargetView:
    """One entry of a route. `extra` holds the server's optional fields that a write must repeat or lose."""

    id: int
    model_id: int | None
    deployment: str | None
    weight: int
    state: str
    extra: Mapping[str, Json] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def provider(self) -> bool:
        """It leads to a model of somebody else's service, not to a deployment."""
        return self.model_id is None

    @property
    def fallback(self) -> bool:
        """It is there for the errors of the others."""
        return bool(self.extra.get("fallback_status_codes"))

    @property
    def adapter(self) -> str | None:
        """`base:lora` when requests are for an adapter of the deployment and not for its base model."""
        return None if self.provider else self.extra.get("overridden_model_name")

    def splits(self, *, gateway: bool) -> bool:
        """Whether its weight takes part in the split: the gateway leaves fallbacks out, the server's own proxy knows no providers."""
        return not self.fallback if gateway else not self.provider


@dataclass(frozen=True)
class RouteView:
    """One route with its targets. `meta` is the client's free map on the server."""

    id: int
    name: str
    targets: tuple[TargetView, ...]
    lb_mode: str | None
    meta: Mapping[str, Json]
    access_policy: str | None
    created_model_id: int | None = None
    ready_targets: int | None = None
    policies: tuple[str, ...] = ()
    """balancing policies that are switched on (`least-load`, `session-affinity`); read in a survey only"""
    organisation: str | None = None
    """the organisation that owns it, None for the platform's own and where nobody says; read in a survey only"""
    namesakes: int = 0
    """other routes of the same name, which other organisations may have"""

    def target_of(self, deployment: str) -> TargetView | None:
        """The (first) target that sends to `deployment`."""
        return next((t for t in self.targets if t.deployment == deployment), None)


@dataclass(frozen=True)
class InstanceView:
    """One running copy of a deployment."""

    id: int
    name: str
    state: str
    worker: str | None
    restarts: int = 0
    message: str = ""
    claim: int | None = None
    """bytes of memory the server reserved for it on its worker; None = unknown"""
    loaded: float | None = None
    """seconds from its creation until it ran, for one that never started again; None = unknown"""

    @property
    def running(self) -> bool:
        return self.state == "running"


@dataclass(frozen=True)
class DeploymentView:
    """One deployment (GPUStack "model"). `spec` holds the fields a client may set; it is read, never stored or shown."""

    id: int
    name: str
    replicas: int
    ready_replicas: int
    state: str | None
    spec: Mapping[str, Json]
    instances: tuple[InstanceView, ...]
    routes: tuple[str, ...] = ()
    """names of all routes with a target that sends here"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", Live(self.spec))

    def routes_beside(self, *ours: str) -> list[str]:
        """Names of the routes that send here, without ours."""
        return sorted(set(self.routes) - set(ours))

    @property
    def ready(self) -> bool:
        """Every wanted replica is running. Ready is not warm, and not yet proven by a probe."""
        running = sum(1 for i in self.instances if i.running)
        return self.replicas > 0 and self.ready_replicas >= self.replicas and running >= self.replicas

    @property
    def restarts(self) -> int:
        return sum(i.restarts for i in self.instances)

    @property
    def hosts(self) -> set[str]:
        """Names of the workers that its instances are on."""
        return {i.worker for i in self.instances if i.worker}


@dataclass(frozen=True)
class WorkerView:
    """One node. Memory in bytes; None = unknown, never zero."""

    id: int
    name: str
    state: str
    heartbeat_age: float | None
    memory_total: int | None
    memory_available: int | None
    unified: bool | None
    disks: Mapping[str, int] = field(default_factory=dict)
    """mount point -> bytes used"""


@dataclass(frozen=True)
class FileView:
    """One model's files on one worker. `size` in bytes, None = unknown; `source` names where they come from, `paths` where they are."""

    id: int
    worker: str | None
    source: str
    paths: tuple[str, ...]
    size: int | None
    state: str
    users: tuple[str, ...] = ()
    """deployments of the same source, on whatever worker and with however many replicas"""


@dataclass(frozen=True)
class InstanceSample:
    """Cumulative counters of one engine process, and its gauges, at one instant.

    Histograms are cumulative: upper bound in seconds (math.inf for +Inf) -> count.
    """

    running: float | None
    waiting: float | None
    requests: float | None
    """finished requests of any kind"""
    errors: float | None
    """finished with an error; `abort` is not one (users press stop)"""
    tokens: float | None
    ttft: Mapping[float, float] | None
    e2e: Mapping[float, float] | None
    started: float | None = None
    tpot: Mapping[float, float] | None = None
    """mean seconds per output token of each finished request, one count a request"""


@dataclass(frozen=True)
class EngineSample:
    """What the engines of one deployment say. `status`: OK | NO_METRIC (none exposed) | METRIC_ERROR (could not be read)."""

    at: datetime
    status: str
    instances: Mapping[str, InstanceSample] = field(default_factory=dict)
    why: str = ""

    @property
    def in_flight(self) -> float | None:
        """Running + waiting over all instances; None when any instance does not say."""
        values = [v for i in self.instances.values() for v in (i.running, i.waiting)]
        if self.status != "OK" or not values or any(v is None for v in values):
            return None
        return sum(v for v in values if v is not None)


@dataclass(frozen=True)
class KeyView:
    """One of our API keys as its server lists it, never the key. `models`: the only ones it may ask, () = all."""

    name: str
    scopes: tuple[str, ...]
    expires: datetime | None
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keys:
    """Our two keys; None = not told apart in the server's list. `same`: one key is used for both."""

    management: KeyView | None = None
    inference: KeyView | None = None
    same: bool = False


@dataclass(frozen=True)
class Scope:
    """What a tick needs to see."""

    route: str
    deployments: tuple[str, ...]
    probe_routes: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()
    """deployments whose engine counters are read"""
    files: bool = False
    """whether model files are looked at"""
    survey: bool = False
    """also what only matters before the start: who owns the route, and which policies it has"""
    front: bool = False
    """whether to look if a gateway stands at the inference URL"""


@dataclass(frozen=True)
class World:
    """Everything one tick saw."""

    now: datetime
    server_version: str
    route: RouteView | None
    deployments: Mapping[str, DeploymentView] = field(default_factory=dict)
    probe_routes: Mapping[str, RouteView] = field(default_factory=dict)
    workers: Mapping[str, WorkerView] = field(default_factory=dict)
    samples: Mapping[str, EngineSample] = field(default_factory=dict)
    keys: Keys = Keys()
    files: tuple[FileView, ...] | None = None
    """None = not looked at"""
    gateway: bool | None = False
    """a gateway splits the traffic; None = cannot be seen. Only read where the scope asks for it"""
    rates: Mapping[str, float] = field(default_factory=dict)
    """deployment -> requests an hour since yesterday 00:00 UTC, as the server counts them; read in a survey only"""
    server_time: datetime | None = None
    """what the server's own clock said in its answers; None when they carry no date"""


def answers_of(models: Mapping[str, int], deployment: str) -> int:
    """How many of these answers (by the answer's `model`) the deployment gave; its adapters answer as `deployment:adapter`."""
    return sum(n for model, n in models.items() if model == deployment or model.startswith(f"{deployment}:"))


def named(target: TargetView) -> str:
    """How a target is called in receipts and messages: its deployment, or its id where it leads elsewhere (a provider)."""
    return target.deployment or f"target {target.id}"
