"""The story of `rollout demo`: a healthy rollout and then a bad canary on the embedded sandbox, under live streaming traffic.

The engine, the judge, the clients and the store are the real ones, with the product's margins, alpha and beta; only durations are
compressed. The sandbox is a fake GPUStack with three simulated nodes on loopback.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout.clock import SystemClock
from rollout.domain.state import Event, Phase, RolloutState
from rollout.engine.service import Service
from rollout.plan.load import LoadedPlan, parse_plan, plan_digest
from rollout.store import Store
from rollout.testing.sandbox import Sandbox
from rollout.testing.traffic import Load, Traffic

ROUTE = "chat"
ENGINE: dict[str, Any] = {"ttft_base": 0.2, "tpot": 0.01, "load_factor": 0.015, "jitter": 0.1, "slots": 64}
LOAD = Load(clients=56, stream_share=0.25, stream_seconds=(1.5, 4.0), token_delay=0.25, think=0.35)
SLOW = {"ttft_factor": 2.0}
KEYS = ("ROLLOUT_DEMO_MANAGEMENT_KEY", "ROLLOUT_DEMO_INFERENCE_KEY")
PLAN = """\
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {name: %(name)s}
gpustack:
  server: %(server)s
  management_key: {env: ROLLOUT_DEMO_MANAGEMENT_KEY}
  inference_key: {env: ROLLOUT_DEMO_INFERENCE_KEY}
route: {name: chat}
change: {unit: backend_image, to: {image_name: "%(image)s"}}   # exactly one unit
stable: [{deployment: %(stable)s}]
canary: {sizing: {worker: %(worker)s}}
stage: {worker: staging, prompt_tokens: [128], concurrency: [1, 2], requests_per_cell: 4, output_tokens: 8}
evidence:
  {mode: thin, window: 1s, min_time: 3s, min_time_before_full: 4s, deadline: 90s, probes: {pairs: 40, batch: 8, max_tokens: 2, warm_up: 4}}
drain: {quiet: 1s}
window: {duration: 4s}
cleanup: {approval: required}
"""


@dataclass
class DemoResult:
    """How the two rollouts ended, and what users lost."""

    completed: int = 0
    rolled_back: int = 0
    failed_requests: int = 0
    cut_streams: int = 0


@dataclass
class Story:
    """One sandbox, one store, one voice."""

    box: Sandbox
    service: Service
    report: Callable[[str], None]
    on_event: Callable[[Event, RolloutState], None]
    sabotage: str | None
    traffic: Traffic
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, name: str, image: str, worker: str) -> RolloutState:
        """One plan from start to end; a person approves the removal of the old side when the window is over."""
        stable = next(iter(self.box.weights(ROUTE)))
        text = PLAN % {"name": name, "server": self.box.url, "image": image, "stable": stable, "worker": worker}
        plan = parse_plan(text, f"{name}.yaml")
        started = self.service.start(LoadedPlan(plan, text, f"{name}.yaml", plan_digest(plan)), actor="demo")
        self.report("")
        self.report(f"== {name}: {stable} on {image}, under {self.traffic.load.clients} clients")
        state = await self.service.run(started.state.id, until=lambda _s: False, on_event=self._hear)
        self.report(f"== {name}: {state.phase.value} (rollout {state.id}); users: {_users(self.traffic)}")
        self.report(f"   judged by: {_terms(state)}")
        return state

    def _hear(self, event: Event, state: RolloutState) -> None:
        self.on_event(event, state)
        if event.kind == "hold" and state.hold is not None and state.hold.reason == "approval":
            self.service.say(state.id, "approve", "demo", "the window is over and nobody complained")
        elif event.kind == "hold" and state.hold is not None and state.undo is None:
            self.service.say(state.id, "rollback", "demo", "nobody sits here to decide")
        if event.kind == "fact" and event.text.startswith("watching rung") and self.sabotage == "kill-stable":
            self.sabotage = None
            self._kill_stable()

    def _kill_stable(self) -> None:
        """What a crash of the stable engine does to its users: every stream in it is cut."""
        stable = next(iter(self.box.weights(ROUTE)))
        for node in self.box.nodes.values():
            for running in list(node.instances.values()):
                if running.model["name"] == stable:
                    self.report(f"== sabotage: {stable} is killed on {node.name}")
                    task = asyncio.ensure_future(node.crash_instance(running.instance["id"]))
                    self.tasks.add(task)


def run_demo(
    bad: str, sabotage: str | None, report: Callable[[str], None], on_event: Callable[[Event, RolloutState], None] = lambda _e, _s: None
) -> DemoResult:
    """Run the story. `bad`: ttft | none, what is wrong with the second canary. `sabotage`: kill-stable, or None."""
    return asyncio.run(_demo(bad, sabotage, report, on_event))


async def _demo(
    bad: str, sabotage: str | None, report: Callable[[str], None], on_event: Callable[[Event, RolloutState], None]
) -> DemoResult:
    from rollout.cli.wiring import service as wired

    clock = SystemClock()
    async with Sandbox(scale=0.3, engine=ENGINE) as box:
        for node in box.nodes.values():
            node.image_knobs["sim/vllm:slow"] = SLOW
        await box.deploy("chat-v1", worker="spark-01", image_name="sim/vllm:1")
        await box.route(ROUTE, {"chat-v1": 100}, meta={"team": "search"})
        with tempfile.TemporaryDirectory() as folder, _keys(box), Store.open(str(Path(folder) / "demo.db"), now=clock.now) as store:
            async with Traffic(box.inference_url, box.user_key, ROUTE, LOAD) as traffic:
                await asyncio.sleep(2)  # so that stable has a history to be compared with
                story = Story(box, wired(store, clock), report, on_event, sabotage, traffic)
                states = [await story.run("healthy", "sim/vllm:2", "spark-02")]
                if sabotage is not None:  # what was to be shown is shown
                    return _result(states, traffic)
                second = ("also-healthy", "sim/vllm:3") if bad == "none" else ("bad-canary", "sim/vllm:slow")
                states.append(await story.run(*second, "spark-01"))
            return _result(states, traffic)


def _result(states: list[RolloutState], traffic: Traffic) -> DemoResult:
    return DemoResult(
        completed=sum(s.phase is Phase.COMPLETED for s in states),
        rolled_back=sum(s.phase is Phase.ROLLED_BACK for s in states),
        failed_requests=traffic.failed_requests,
        cut_streams=traffic.cut_streams,
    )


@contextmanager
def _keys(box: Sandbox) -> Iterator[None]:
    """The sandbox's keys where the plan says they are, for as long as the demo lasts."""
    os.environ.update(zip(KEYS, (box.management_key, box.inference_key), strict=True))
    try:
        yield
    finally:
        for name in KEYS:
            os.environ.pop(name, None)


def _terms(state: RolloutState) -> str:
    """The terms of the verdict, as the judge fixed them before it saw a request of the canary."""
    fact = state.fact("0.judge")
    if fact is None:
        return "nothing"
    c = fact["config"]
    margins = f"TTFT tolerated +{c['tolerated_latency']:.0%}, unacceptable +{c['unacceptable_latency']:.0%}"
    errors = f"errors odds {c['tolerated_error_odds']:g} tolerated, +{c['unacceptable_errors'] * 100:g} pp unacceptable"
    bound = "bound claimed" if c["guaranteed"] else "not guaranteed: one replica"
    terms = f"evidence {c['mode']}, alpha {c['alpha']:g}, beta {c['beta']:g}, {margins}, {errors}"
    return f"{terms}, (v, phi) = ({c['v']:g}, {c['phi']:g}), {bound}"


def _users(traffic: Traffic) -> str:
    counts = traffic.summary()
    return f"{counts['requests']} requests ({counts['streams']} streams), {counts['failed_requests']} failed, {counts['cut_streams']} cut"
