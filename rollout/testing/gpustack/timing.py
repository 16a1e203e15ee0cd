"""How long the fake server takes for things the real one takes time for. Numbers only.

Seconds as measured on the real server (contract sections 4.3, 5, 6, 8), all multiplied by `scale`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """`scale` 1.0 is the real server; 0.1 makes a day of tests a coffee break."""

    scale: float = 0.1
    state_step: float = 0.15  # between two states of a starting instance
    recreate: float = 0.4  # from "one instance too few" to the new row
    scale_down: float = 0.3  # from replicas written to the row deleted
    container_stop: float = 0.3  # from the row deleted to the process killed
    cascade: float = 0.2  # from a model's deletion to the route caches dropped
    reactivate: tuple[float, float] = (0.1, 0.3)  # a changed target is unavailable this long
    target_follow: float = 0.1  # from a model's state to its targets' state
    cache_ttl: float = 600.0  # GPUSTACK_SERVER_CACHE_TTL_SECONDS
    unreachable: float = 25.0  # failing /healthz to worker `unreachable`
    heartbeat_grace: float = 150.0
    reschedule_grace: float = 300.0
    resume_instances: float = 4.0
    resume_worker: float = 15.0
    heartbeat: float = 30.0  # interval of heartbeat and status
    monitor: float = 1.0
    pending_rescan: float = 180.0

    def of(self, name: str) -> float:
        """Scaled seconds of one field."""
        return float(getattr(self, name)) * self.scale

    def reactivation(self, rng: random.Random) -> float:
        """Scaled seconds a changed target stays unavailable."""
        return rng.uniform(*self.reactivate) * self.scale
