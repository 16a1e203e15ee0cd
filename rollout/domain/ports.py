"""What the engine needs from the outside, as small protocols. No implementation here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rollout.domain.world import Scope, World

Json = Any


class Backend(Protocol):
    """A serving platform that routes: reads the world, and carries out effects that state a wanted end."""

    async def observe(self, scope: Scope) -> World:
        """Read everything in `scope` afresh. Raises Unreachable, BadAnswer, Refused."""

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """Carry out one effect of `domain.effects` and read it back. Safe to repeat.

        Returns a JSON receipt. Raises Unreachable (ambiguous: it may have been applied), Refused, BadAnswer.
        """

    def knows(self, verb: str) -> bool:
        """Whether this backend carries out `verb`."""

    def derive(self, stable: Mapping[str, Json], change: Mapping[str, Json], sizing: Mapping[str, Json], name: str) -> dict[str, Json]:
        """The canary's spec: stable's spec + the change unit (`{"unit", "to"}`, or {} for none) + sizing, under `name`. Pure.

        Raises PlanError when `to` names a field outside its unit.
        """

    def diff(self, stable: Mapping[str, Json], canary: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
        """The fields in which two specs differ: (field, stable's value, canary's value). Pure."""


class Measurer(Protocol):
    """Own requests: probes, warm-up, share tests, load. Same shape as a backend's `perform`, changes no configuration."""

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]: ...

    def knows(self, verb: str) -> bool: ...
