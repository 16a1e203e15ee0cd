"""One reading of everything a tick needs, at the same time and checked against itself. Reads only; remembers nothing.

There is no snapshot in the API: lists are read side by side, and read again when they contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollout.backends.gpustack_files import file_views
from rollout.backends.gpustack_marker import held
from rollout.backends.gpustack_survey import rates, surveyed
from rollout.backends.gpustack_views import deployment_view, names_of, route_view, worker_view
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Instance, Model, Route, Target, Worker
from rollout.clock import Clock
from rollout.domain.world import DeploymentView, EngineSample, RouteView, Scope, World

Json = Any
READINGS = 3
"""times the lists are read when they contradict each other; then the last reading stands"""


class SampleSource(Protocol):
    """Where engine counters come from.

    `deployments`: by name, those to sample. `workers_raw`: the rows of `/v2/workers` as the server sent them, each with one key
    more: `instances`, the rows of `/v2/model-instances` of these deployments on that worker (they lead to engines that only
    show their own metrics). Returns a sample by deployment name; what cannot be read is a sample with a status, not an error.
    """

    async def read(
        self, deployments: Mapping[str, DeploymentView], workers_raw: Sequence[Mapping[str, Json]]
    ) -> Mapping[str, EngineSample]: ...


@dataclass(frozen=True)
class Lists:
    """What one reading saw, whole."""

    version: str
    routes: list[Route]
    targets: list[Target]
    models: list[Model]
    instances: list[Instance]
    workers: list[Worker]

    def route(self, name: str) -> Route | None:
        """The route of that name; of several (other organisations may have one too) the oldest, as everywhere."""
        return next((r for r in self.routes if r.name == name), None)

    def model(self, name: str) -> Model | None:
        """The deployment of that name."""
        return next((m for m in self.models if m.name == name), None)

    def coherent(self, names: Iterable[str]) -> bool:
        """Whether the targets of these routes are as many as the routes say, and their deployments were seen."""
        known = names_of(self.models)
        for route in (r for r in map(self.route, names) if r is not None):
            own = [t for t in self.targets if t.route_id == route.id]
            if route.targets not in (None, len(own)) or any(t.model_id is not None and t.model_id not in known for t in own):
                return False
        return True


async def read_lists(client: GPUStack) -> Lists:
    """All lists, side by side; the first error ends them all."""
    async with Together() as together:
        version = together.start(client.version())
        routes, targets = together.start(client.routes()), together.start(client.targets())
        models, instances = together.start(client.models()), together.start(client.instances())
        workers = together.start(client.workers())
    return Lists(version.result(), routes.result(), targets.result(), models.result(), instances.result(), workers.result())


async def observe(client: GPUStack, clock: Clock, scope: Scope, samples: SampleSource | None) -> World:
    """The world in `scope`: its route, its deployments and those the routes send to, all workers, the samples asked for."""
    names = (scope.route, *scope.probe_routes)
    lists = await read_lists(client)
    for _ in range(READINGS - 1):
        if lists.coherent(names):
            break
        lists = await read_lists(client)
    known, files = names_of(lists.models), await client.files() if scope.files else None
    wanted = [r for n in dict.fromkeys(names) if (r := lists.route(n)) is not None]
    views = {r.name: route_view(r, held(lists.routes, r.name).meta, lists.targets, known) for r in wanted}
    if scope.survey and scope.route in views:
        views[scope.route] = await surveyed(client, lists.routes, views[scope.route])
    deployments = _deployments(lists, scope, views.values())
    counted = [m for m in lists.models if scope.survey and m.name in scope.sample]
    served = await rates(client, counted, clock.now())
    now = clock.now()
    return World(
        now=now,
        server_version=lists.version,
        route=views.get(scope.route),
        deployments=deployments,
        probe_routes={n: views[n] for n in scope.probe_routes if n in views},
        workers={w.name: worker_view(w, now) for w in lists.workers},
        rates=served,
        server_time=client.server_time,
        samples=await _sampled(lists, {n: deployments[n] for n in scope.sample if n in deployments}, samples),
        files=None if files is None else file_views(files, lists.models, lists.workers),
    )


def _deployments(lists: Lists, scope: Scope, views: Iterable[RouteView]) -> dict[str, DeploymentView]:
    wanted = {*scope.deployments, *scope.sample, *(t.deployment for r in views for t in r.targets)}
    routes_of = {r.id: r.name for r in lists.routes}
    return {m.name: deployment_view(m, lists.instances, lists.targets, routes_of) for m in lists.models if m.name in wanted}


async def _sampled(lists: Lists, wanted: Mapping[str, DeploymentView], samples: SampleSource | None) -> Mapping[str, EngineSample]:
    if samples is None or not wanted:
        return {}
    ids = {view.id for view in wanted.values()}
    own = [i for i in lists.instances if i.model_id in ids]
    workers = [{**w.raw, "instances": [i.raw for i in own if i.worker_name == w.name]} for w in lists.workers]
    return await samples.read(wanted, workers)
