"""A sandbox with two deployments on one route, and the backend beside it in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rollout.backends.gpustack import GPUStackBackend
from rollout.backends.gpustack_observe import SampleSource
from rollout.backends.gpustack_spec import derive_spec
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http, Limits
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.domain.receipts import spec_digest
from rollout.domain.world import Scope, World
from rollout.testing.gpustack import Fault
from rollout.testing.sandbox import Sandbox

SHORT = Limits(connect=1.0, read=0.4, total=2.0)
ROUTE, STABLE, CANARY = "chat", "m-a", "m-b"


@dataclass
class Place:
    """`box` is the server side, `backend` ours."""

    box: Sandbox
    backend: GPUStackBackend

    def fault(self, kind: str, method: str, path: str, **options: Any) -> Fault:
        """Arm a fault of the sandbox."""
        return self.box.gpustack.faults.add(Fault(kind, method, path, **options))

    async def perform(self, verb: str, **args: Any) -> dict[str, Any]:
        return await self.backend.perform(verb, args)

    async def observe(self, *deployments: str, sample: tuple[str, ...] = ()) -> World:
        return await self.backend.observe(Scope(ROUTE, deployments, (), sample))

    async def recipe(self, name: str) -> dict[str, Any]:
        """Arguments of `create_deployment`: stable with one more environment variable."""
        change: dict[str, Any] = {"unit": "parameters", "to": {"env": {"NEW": "1"}}}
        found = (await self.observe(STABLE)).deployments[STABLE].spec
        derived = derive_spec(found, change["unit"], change["to"], {}, name)
        return {"name": name, "base": STABLE, "change": change, "sizing": {}, "digest": spec_digest(derived)}

    def count(self, kind: str, name: str) -> int:
        """Rows of that name on the server."""
        return len(self.box.gpustack.world.where(kind, name=name))

    def writes(self) -> list[str]:
        """Management writes that arrived, as `METHOD path`."""
        return [f"{w.method} {w.path}" for w in self.box.gpustack.faults.writes]


@asynccontextmanager
async def place(weights: dict[str, int], limits: Limits = SHORT, samples: SampleSource | None = None) -> AsyncIterator[Place]:
    """A running place; `weights` by deployment on the route."""
    async with Sandbox(scale=0.1) as box:
        await asyncio.gather(box.deploy(STABLE), box.deploy(CANARY, worker="spark-02"))
        await box.route(ROUTE, weights)
        http = Http(box.url, Secret(box.management_key), retry=Retry(SystemClock(), attempts=3, base=0.05), limits=limits)
        async with GPUStackBackend(GPUStack(http), SystemClock(), samples=samples, inference_key=Secret(box.inference_key)) as backend:
            yield Place(box, backend)


def at(weights: dict[str, int], work: Callable[[Place], Awaitable[None]], **options: Any) -> None:
    """Run `work` at a place."""

    async def whole() -> None:
        async with place(weights, **options) as here:
            await work(here)

    asyncio.run(whole())
