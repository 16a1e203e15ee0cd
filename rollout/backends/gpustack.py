"""GPUStack (2.2 and 2.3) as a serving platform that routes: the world of one tick, and every effect that changes it.

The rooms beside this one do the work; here is only the table from verb to deed. No decision is made here, and no weight, id or
state is remembered between calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from rollout.backends.gpustack_deployments import Deployments
from rollout.backends.gpustack_files import Files
from rollout.backends.gpustack_front import Front
from rollout.backends.gpustack_hand import Hand
from rollout.backends.gpustack_keys import keys_of
from rollout.backends.gpustack_marker import Marker
from rollout.backends.gpustack_observe import SampleSource, observe
from rollout.backends.gpustack_probe_routes import ProbeRoutes
from rollout.backends.gpustack_reweigh import Reweigh
from rollout.backends.gpustack_spec import derive_spec, diff_spec
from rollout.backends.gpustack_targets import Targets
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.secret import Secret
from rollout.clock import Clock
from rollout.domain.world import Scope, World
from rollout.errors import Unreachable, UsageError

Json = Any
LOOK = 120.0
"""seconds for one look at everything: a list may have many pages, and each of them may drip"""
Deed = Callable[[Mapping[str, Json]], Awaitable[dict[str, Json]]]


class GPUStackBackend:
    """Implements `domain.ports.Backend`. Use as an async context manager: it closes its connections."""

    def __init__(
        self,
        client: GPUStack,
        clock: Clock,
        *,
        samples: SampleSource | None = None,
        inference_key: Secret | None = None,
        management_key: Secret | None = None,
        front: Front | None = None,
    ) -> None:
        """`samples` reads engine counters; without it a world has none. `inference_key` says who may use the private routes.

        Both keys are looked for in the server's list; nothing is sent with them here. `front` says whether a gateway stands before the
        server; without it there is none.
        """
        self._front = front
        self._client = client
        self._clock = clock
        self._samples = samples
        self._keys = (management_key, inference_key)
        hand = Hand(clock)
        targets, marker, deployments = Targets(client, hand), Marker(client, hand), Deployments(client, hand)
        probe_routes = ProbeRoutes(client, hand, inference_key)
        self._deeds: dict[str, Deed] = {
            "mark_route": marker.mark,
            "unmark_route": marker.unmark,
            "create_deployment": deployments.create,
            "delete_deployment": deployments.delete,
            "scale": deployments.scale,
            "delete_file": Files(client, hand).delete,
            "create_probe_route": probe_routes.create,
            "delete_probe_route": probe_routes.delete,
            "join": targets.join,
            "set_weight": targets.set_weight,
            "leave": targets.leave,
            "refresh": targets.refresh,
            "twin": targets.twin,
            "reweigh": Reweigh(client, hand).reweigh,
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.__aexit__(kind, error, trace)
        if self._front is not None:
            await self._front.aclose()

    def knows(self, verb: str) -> bool:
        """Whether this backend carries out `verb`."""
        return verb in self._deeds

    def derive(self, stable: Mapping[str, Json], change: Mapping[str, Json], sizing: Mapping[str, Json], name: str) -> dict[str, Json]:
        """The canary's spec: stable's + the change unit (`{"unit", "to"}`, {} for none) + sizing. Raises PlanError naming the key."""
        return derive_spec(stable, change.get("unit", "parameters"), change.get("to", {}), sizing, name)

    def diff(self, stable: Mapping[str, Json], canary: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
        """The fields in which two specs differ: (field, stable's value, canary's value)."""
        return diff_spec(stable, canary)

    async def observe(self, scope: Scope) -> World:
        """Everything in `scope`, read afresh. Raises Unreachable, BadAnswer, Refused."""
        try:
            async with asyncio.timeout(LOOK), Together() as together:
                world = together.start(observe(self._client, self._clock, scope, self._samples))
                keys = together.start(keys_of(self._client, *self._keys))
                gateway = together.start(self._gateway(scope))
        except TimeoutError:
            why = "each call was answered in time, but all of them together were not"
            raise Unreachable(
                f"The server could not be read within {LOOK:g} s.", why=why, hint="Look at its load and its database."
            ) from None
        return replace(world.result(), keys=keys.result(), gateway=gateway.result())

    async def _gateway(self, scope: Scope) -> bool | None:
        return await self._front.gateway() if scope.front and self._front is not None else False

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """Carries out one effect and reads it back; safe to repeat. The receipt has `already`, `seconds` of the write, and `id`.

        `active: false` in a receipt: written, but the target does not take requests yet. Raises Unreachable (it may have been
        applied), Refused (the server or a safety rule said no), BadAnswer (accepted, and not as wanted).
        """
        deed = self._deeds.get(verb)
        if deed is None:
            raise UsageError(f"GPUStack does not carry out `{verb}`.", hint=f"It knows {', '.join(sorted(self._deeds))}.")
        return await deed(args)
