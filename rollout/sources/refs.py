"""Where an engine's page is: from what the server says of deployments, instances and workers to addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout.domain.world import DeploymentView

Json = Any
_HOST = re.compile(r"[0-9A-Za-z_.:-]{1,253}")
LIVE = frozenset({"running", "unreachable"})
"""states in which an engine may hold requests; an unreachable one that is left out would hide them"""


@dataclass(frozen=True)
class InstanceRef:
    """One instance. `metrics_port`: its worker's; `port`: its own. None where the server does not say."""

    id: int
    name: str
    worker_ip: str | None
    metrics_port: int | None
    port: int | None


@dataclass(frozen=True)
class DeploymentRef:
    """One deployment with the instances that may serve. `backend`: `vLLM`, `SGLang`, `Custom`, ..."""

    backend: str
    model_id: int
    instances: tuple[InstanceRef, ...]


def refs_of(deployments: Mapping[str, DeploymentView], workers_raw: Sequence[Mapping[str, Json]]) -> dict[str, DeploymentRef]:
    """The addresses behind the deployments.

    `workers_raw`: rows of `GET /v2/workers`, each with `instances`, the rows of `GET /v2/model-instances` on that worker. An instance that
    stands on no worker's row keeps no address: it will be reported as not read, not as silent.
    """
    rows = {row.get("id"): (worker, row) for worker in workers_raw for row in worker.get("instances") or ()}
    refs = {}
    for name, view in deployments.items():
        live = [instance for instance in view.instances if instance.state in LIVE]
        instances = tuple(_ref(i.id, i.name, *rows.get(i.id, ({}, {}))) for i in live)
        refs[name] = DeploymentRef(str(view.spec.get("backend") or ""), view.id, instances)
    return refs


def _ref(ident: int, name: str, worker: Mapping[str, Json], row: Mapping[str, Json]) -> InstanceRef:
    ports = row.get("ports")
    own = row.get("port") or (ports[0] if isinstance(ports, list) and ports else None)
    host = row.get("worker_ip") or worker.get("ip") or worker.get("advertise_address")
    return InstanceRef(ident, name, _host(host), _port(worker.get("metrics_port")), _port(own))


def _host(value: Json) -> str | None:
    return value if isinstance(value, str) and _HOST.fullmatch(value) else None


def _port(value: Json) -> int | None:
    return value if isinstance(value, int) and 0 < value < 65536 else None
