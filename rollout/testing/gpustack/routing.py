"""The proxy's view of a route: a cache of active targets that goes stale, and one weighted draw per request (contract 6.3, 6.4).

This is where traps 2, 4, 5 and 8 live. It never writes a row.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass

from rollout.testing.gpustack.timing import Timing
from rollout.testing.gpustack.world import PLATFORM, Row, World


@dataclass(frozen=True)
class Choice:
    """One cached target: where to send, and with which weight."""

    model_id: int
    weight: int
    adapter: str | None = None
    """`base:lora` that the engine is asked for instead of its base model"""


class RouteCache:
    """Active targets by route name, as last read; dropped by name, else good for the TTL."""

    def __init__(self, world: World, timing: Timing, rng: random.Random) -> None:
        self.world, self.timing, self._rng = world, timing, rng
        self._entries: dict[str, tuple[float, list[Choice]]] = {}
        self._turns = itertools.count()

    def drop(self, name: str) -> None:
        """Forget one route; the next request reads the rows again."""
        self._entries.pop(name, None)

    def choices(self, name: str) -> list[Choice]:
        """What the proxy believes the route to be, stale or not."""
        entry = self._entries.get(name)
        if entry is not None and entry[0] > time.monotonic():
            return entry[1]
        others = {route["id"] for route in self.world.where("model-routes", name=name) if route["owner_principal_id"] != PLATFORM}
        rows = self.world.where("model-route-targets", route_name=name, state="active")
        own = [row for row in rows if row["model_id"] is not None and row.get("route_id") not in others]
        fresh = [Choice(row["model_id"], row["weight"], row.get("overridden_model_name")) for row in own]
        self._entries[name] = (time.monotonic() + self.timing.of("cache_ttl"), fresh)
        return fresh

    def draw(self, name: str) -> Choice | None:
        """One request's target: independent draws by weight, uniform when all weights are zero, None when nothing is active."""
        choices = self.choices(name)
        if not choices:
            return None
        weights = [choice.weight for choice in choices]
        return self._rng.choices(choices, weights)[0] if sum(weights) else self._rng.choice(choices)

    def instance(self, model_id: int) -> Row | None:
        """Running instances of a model take turns; None when there is none."""
        running = sorted(self.world.where("model-instances", model_id=model_id, state="running"), key=lambda row: int(row["id"]))
        return running[next(self._turns) % len(running)] if running else None
