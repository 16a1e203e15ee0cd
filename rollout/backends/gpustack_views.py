"""Rows of GPUStack's API into the views of a `World`. Pure: rows in, frozen views out; nothing unknown becomes a healthy default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rollout.backends.gpustack_spec import spec_of
from rollout.clients.gpustack_rows import Instance, Model, Route, Target, Worker
from rollout.domain.world import DeploymentView, InstanceView, RouteView, TargetView, WorkerView
from rollout.plan.hidden import keepable_text

Json = Any
OWNED = frozenset(
    {"id", "name", "route_id", "route_name", "model_id", "weight", "state", "plugins", "created_at", "updated_at", "deleted_at"}
)
"""fields of a target that a write names itself or that the server owns; every other one must be repeated or is lost"""


def extra_of(target: Target) -> dict[str, Json]:
    """The optional fields of a target that a write must repeat (`provider_id`, `overridden_model_name`, …)."""
    return {key: value for key, value in sorted(target.raw.items()) if key not in OWNED and value is not None}


def target_view(target: Target, names: Mapping[int, str]) -> TargetView:
    """`names`: deployment id -> name; a target of an unknown deployment has none."""
    name = names.get(target.model_id) if target.model_id is not None else None
    return TargetView(target.id, target.model_id, name, target.weight, target.state, extra_of(target))


def route_view(route: Route, meta: Mapping[str, Json], targets: Iterable[Target], names: Mapping[int, str]) -> RouteView:
    """`meta` with the marker, wherever that stands. Targets by id, since the server's order moves."""
    views = tuple(target_view(t, names) for t in sorted(targets, key=lambda t: t.id) if t.route_id == route.id)
    return RouteView(
        route.id,
        route.name,
        views,
        route.lb_mode,
        dict(meta),
        route.access_policy,
        route.created_model_id,
        route.ready_targets,
    )


def deployment_view(model: Model, instances: Iterable[Instance], targets: Iterable[Target], routes_of: Mapping[int, str]) -> DeploymentView:
    """With its own instances, and the names of all routes that have a target for it. `routes_of`: route id -> name."""
    own = tuple(instance_view(i) for i in sorted(instances, key=lambda i: i.id) if i.model_id == model.id)
    routes = tuple(sorted({routes_of.get(t.route_id, t.route_name) for t in targets if t.model_id == model.id}))
    return DeploymentView(model.id, model.name, model.replicas, model.ready_replicas, model.state, spec_of(model.raw), own, routes)


def instance_view(row: Instance) -> InstanceView:
    """One copy. Its message may repeat the command line it was started with."""
    return InstanceView(row.id, row.name, row.state, row.worker_name, row.restart_count or 0, keepable_text(row.state_message or ""))


def worker_view(worker: Worker, now: datetime) -> WorkerView:
    """Memory is unknown when the total is 0 or absent (GB10 drivers report 0), and when the use is not said."""
    memory = worker.status.memory if worker.status else None
    total = int(memory.total) if memory and memory.total else None
    used = memory.used if memory else None
    available = max(0, total - int(used)) if total is not None and used is not None else None
    unified = memory.is_unified_memory if memory else None
    return WorkerView(worker.id, worker.name, worker.state, _age(worker.heartbeat_time, now), total, available, unified)


def _age(moment: datetime | None, now: datetime) -> float | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (now - aware).total_seconds())


def names_of(models: Iterable[Model]) -> dict[int, str]:
    """Deployment id -> name."""
    return {model.id: model.name for model in models}
