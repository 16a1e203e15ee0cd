"""A whole rollout in memory: the real engine, store and steps on `MemoryPlatform` and a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rollout.domain.state import Event, Phase, RolloutState, StepName
from rollout.engine.service import Connected, Service
from rollout.plan.load import LoadedPlan, parse_plan, plan_digest
from rollout.store import Store, StoredRollout
from rollout.testing.memory import MemoryPlatform

PLAN = """
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {name: chat-v2}
gpustack:
  server: http://127.0.0.1:30080
  management_key: {env: ROLLOUT_MANAGEMENT_KEY}
  inference_key: {env: ROLLOUT_INFERENCE_KEY}
route: {name: chat}
change: {unit: backend_image, to: {image_name: "sim/vllm:2"}}
stable: [{deployment: chat-a}]
ladder: [10, 50, 100]
stage: {worker: staging, prompt_tokens: [128], concurrency: [1, 2], requests_per_cell: 4}
evidence: {mode: thin, window: 10s, min_time: 1m, min_time_before_full: 5m}
drain: {quiet: 10s}
window: {duration: 2m}
cleanup: {approval: none}
"""


PATIENCE = timedelta(days=8)
"""No rollout of these tests lasts longer in its own time."""


class CrashError(BaseException):
    """The process dies here."""


class StuckError(BaseException):
    """It goes round for ever; nothing of the product may catch this."""


class SteppingClock:
    """Time that moves only when somebody sleeps, or by a hair at each look."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 1, tzinfo=UTC)
        self.curfew = datetime.max.replace(tzinfo=UTC)
        """whoever sleeps past it has hung"""
        self.naps = 0
        """how often somebody may still sleep"""
        self.jump = timedelta()
        """by how much the wall clock is wrong"""

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time + self.jump

    def boot(self) -> str:
        return "boot-1"

    def monotonic(self) -> float:
        return self.time.timestamp()

    def allow(self, time: timedelta, naps: int) -> None:
        """From here on: this much time and this many sleeps, then `StuckError`."""
        self.curfew, self.naps = self.time + time, naps

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.naps -= 1
        if self.time > self.curfew or self.naps == 0:
            raise StuckError(f"asleep until {self.time}, {self.naps} sleeps left")
        await asyncio.sleep(0)


@dataclass
class Case:
    """One store, one platform, one clock."""

    folder: Path
    text: str = PLAN
    clock: SteppingClock = field(default_factory=SteppingClock)
    events: list[tuple[Event, RolloutState]] = field(default_factory=list)
    naps: int = 100_000
    """how often the engine may sleep in one run"""

    def __post_init__(self) -> None:
        self.platform = MemoryPlatform(
            self.clock,
            slow_images={"sim/vllm:slow": 2.0},
            failing_images={"sim/vllm:failing": 0.3},
            own_time=lambda: self.clock.time.timestamp(),
        )
        self.platform.server_time = lambda: self.clock.time
        self.platform.deploy("chat-a")
        self.platform.route("chat", {"chat-a": 100}, {"team": "search"})
        self.store = Store.open(str(self.folder / "rollout.db"), now=self.clock.now)
        self.before = self.shape()

    def service(self, checkpoint: Callable[[str], None] | None = None, store: Store | None = None) -> Service:
        async def nothing() -> None:
            return None

        async def connect(_plan: Any = None) -> Connected:
            return Connected(self.platform, self.platform, nothing)

        service = Service(store or self.store, self.clock, connect)
        if checkpoint is not None:
            service.checkpoint = checkpoint
        return service

    def loaded(self) -> LoadedPlan:
        plan = parse_plan(self.text, "plan.yaml", self.folder)
        return LoadedPlan(plan, self.text, "plan.yaml", plan_digest(plan))

    def start(self) -> StoredRollout:
        return self.service().start(self.loaded(), actor="tester")

    def run(
        self,
        rollout_id: str,
        until: Callable[[RolloutState], bool] = lambda _s: False,
        checkpoint: Callable[[str], None] | None = None,
        limit: int = 20000,
    ) -> RolloutState:
        """Run to the end; bounds on events, time and sleeps keep a livelock from hanging the test."""

        def on_event(event: Event, state: RolloutState) -> None:
            self.events.append((event, state))
            assert len(self.events) < limit, [e.text for e, _ in self.events[-12:]]

        self.clock.allow(PATIENCE, self.naps)
        try:
            return asyncio.run(self.service(checkpoint).run(rollout_id, until=until, on_event=on_event))
        except StuckError as error:
            raise AssertionError(self.told(rollout_id)) from error

    def told(self, rollout_id: str) -> str:
        """Where a rollout is and how it came there, for whoever reads a failure."""
        state = self.store.load(rollout_id).state
        at = f"{state.phase} in {state.step}, holding {state.hold}, waiting {state.waiting}"
        return "\n".join([at, *(event.text for event, _ in self.events[-20:])])

    def shape(self) -> dict[str, Any]:
        """Routes, weights, meta and deployments: what a rollback must restore."""
        platform = self.platform
        return {
            "routes": {n: ({t.deployment: t.weight for t in r.targets}, r.meta, r.policy) for n, r in platform.routes.items()},
            "deployments": {n: d.spec for n, d in platform.deployments.items()},
        }


def reached(step: StepName, *, rung: int | None = None) -> Callable[[RolloutState], bool]:
    """True once the rollout entered `step` (and, on the ladder, proved `rung`)."""
    order = list(StepName)

    def done(state: RolloutState) -> bool:
        there = order.index(state.step) >= order.index(step)
        return there and (rung is None or state.fact(f"{state.target}.rung.{rung}.proved") is not None)

    return done


def holding(reason: str) -> Callable[[RolloutState], bool]:
    """True while it holds for that reason."""
    return lambda s: s.phase is Phase.HOLDING and s.hold is not None and s.hold.reason == reason
