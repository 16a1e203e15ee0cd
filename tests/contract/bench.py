"""The product's backend on a contract server: effects as calls, and what the server then shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from rollout.backends.gpustack import GPUStackBackend
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.domain.effects import Effect, satisfied
from rollout.domain.world import Scope, World
from tests.contract.faulty import Faulty
from tests.contract.site import Row, Site, unique


class Bench:
    """One site with the backend beside it. Every call opens and closes its own connections."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.faults = Faulty()

    def perform(self, verb: str, **args: Any) -> dict[str, Any]:
        """One effect; what it must have brought about is checked with `satisfied` where the world can show it."""

        async def work(backend: GPUStackBackend) -> dict[str, Any]:
            return await backend.perform(verb, args)

        return self._with(work)

    def observe(self, route: str, *deployments: str, probes: tuple[str, ...] = (), survey: bool = False) -> World:
        """The world of one tick; with `survey` that of a rollout which has not started."""

        async def work(backend: GPUStackBackend) -> World:
            return await backend.observe(Scope(route, deployments, probes, survey=survey))

        return self._with(work)

    def world(self, *deployments: str) -> World:
        """The world of a tick in the window: with model files."""

        async def work(backend: GPUStackBackend) -> World:
            return await backend.observe(Scope("no-route", deployments, files=True))

        return self._with(work)

    def derive(self, stable: Any, change: dict[str, Any], name: str) -> dict[str, Any]:
        """The spec of a canary."""

        async def work(backend: GPUStackBackend) -> dict[str, Any]:
            return backend.derive(stable, change, {}, name)

        return dict(self._with(work))

    def holds(self, verb: str, **args: Any) -> bool:
        """Whether the world shows the end of an effect."""
        name = args.get("name", "")
        world = self.observe(args.get("route", "no-route"), args.get("deployment", name), probes=(name,))
        return satisfied(Effect(verb=verb, args=args, why="test"), world)

    def until_holds(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait for what the server does by itself."""
        self.site.until(true, "the world to follow", seconds)

    def targets(self, route: Row) -> dict[int, Row]:
        """Rows by target id without what time changes."""
        moving = {"state", "updated_at"}
        return {row["id"]: {k: v for k, v in row.items() if k not in moving} for row in self.site.target_list(route["id"])}

    def probe_name(self) -> str:
        """A name for a private route, removed at the end whether or not the test got that far."""
        return unique("probe")

    def sweep(self, *names: str) -> None:
        """Delete routes and deployments of these names."""
        for kind in ("model-routes", "models"):
            for row in self.site.get(f"/v2/{kind}?perPage=1000")["items"]:
                if row["name"] in names:
                    self.site.admin.delete(f"/v2/{kind}/{row['id']}")

    def _with(self, work: Callable[[GPUStackBackend], Any]) -> Any:
        described = self.site.described

        async def session() -> Any:
            self.faults.renew()
            http = Http(described["server_url"], Secret(described["management_key"]), retry=Retry(SystemClock()), transport=self.faults)
            both = {name: Secret(described[name]) for name in ("inference_key", "management_key")}
            async with GPUStackBackend(GPUStack(http), SystemClock(), **both) as backend:
                return await work(backend)

        return asyncio.run(session())


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the seconds it took."""
    began = time.monotonic()
    result = call()
    return result, time.monotonic() - began
