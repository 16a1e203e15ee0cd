"""Values for the report tests: one rollout of two targets, at 02:20 UTC, six minutes into its first rung."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rollout.domain.receipts import take
from rollout.domain.state import Event, Hold, Phase, RolloutState, Said, StepName, Waiting
from rollout.domain.world import DeploymentView, InstanceView, RouteView, TargetView, WorkerView, World
from rollout.plan.model import Plan

NOW = datetime(2026, 3, 1, 2, 20, tzinfo=UTC)
ID = "3f2a91c07d6e"


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def route(*names: str) -> RouteView:
    """A weighted route, weight 100 each."""
    targets = tuple(TargetView(n, n, name, 100, "active") for n, name in enumerate(names, 1))
    return RouteView(1, "chat", targets, "weighted", {}, None)


def facts(**more: Any) -> dict[str, Any]:
    """After the first rung of the first target was proved."""
    receipts = take(ID, route("spark-01", "spark-02"), ("spark-01", "spark-02"), {}, 30, 1800)
    config = {"mode": "thin", "alpha": 0.01, "beta": 0.05, "v": 0.2, "phi": 0.8, "guaranteed": False}
    verdict = {"kind": "inconclusive", "sentence": "TTFT: 3 to 1 against 'no slower than +10 %'"}
    return {
        "receipts": receipts.model_dump(mode="json"),
        "ladder": [0.1, 0.5, 1.0],
        "mode": "thin",
        "0.rung.0.written": {"at": NOW.isoformat()},
        "0.rung.0.proved": {"n": 84, "hits": 5},
        "0.judge": {"config": config, "verdict": verdict},
        "0.seen": {"rung": 0, "requests": 12, "pairs": 48},
        **more,
    }


def state(**update: Any) -> RolloutState:
    """Running in `canary`, waiting for exposure."""
    waiting = Waiting(why="exposure 360 of 600 s, 12 of 20 requests", since=NOW - minutes(6), until=NOW + minutes(113))
    base = RolloutState(
        id=ID,
        name="chat-vllm-0-21",
        server="http://gpustack.lan",
        route="chat",
        plan_digest="d",
        phase=Phase.RUNNING,
        step=StepName.CANARY,
        created=NOW - minutes(41),
        entered=NOW - minutes(6),
        facts=facts(),
        waiting=waiting,
    )
    return base.model_copy(update=update)


def holding(reason: str = "inconclusive", **hold: Any) -> RolloutState:
    held = Hold(reason=reason, detail="no verdict within 7200 s", since=NOW - minutes(14), **hold)
    return state(phase=Phase.HOLDING, waiting=None, hold=held)


def halted() -> RolloutState:
    why = {"reason": "stable_lost", "detail": "spark-01 does not serve", "at": (NOW - minutes(2)).isoformat()}
    return state(phase=Phase.HALTED, waiting=None, facts=facts(halted=why))


def rolled_back() -> RolloutState:
    said = Said(verb="rollback", actor="judge", reason="verdict: TTFT is worse", at=NOW - minutes(1))
    return state(phase=Phase.ROLLED_BACK, waiting=None, ended=NOW, undo=said)


def event(kind: str, text: str, **data: Any) -> Event:
    return Event(kind=kind, at=NOW - minutes(6), actor="ana", text=text, data=data)


def plan(**update: Any) -> Plan:
    """Two targets, a new image, a smaller memory fraction."""
    return Plan.model_validate(
        {
            "apiVersion": "rollout/v1",
            "kind": "RolloutPlan",
            "metadata": {"name": "chat-vllm-0-21"},
            "gpustack": {"server": "http://gpustack.lan", "management_key": {"env": "MKEY"}, "inference_key": {"env": "IKEY"}},
            "route": {"name": "chat"},
            "change": {"unit": "backend_image", "to": {"image_name": "vllm/vllm-openai:v0.21.0"}},
            "stable": [{"deployment": "spark-01"}, {"deployment": "spark-02"}],
            "stage": {"worker": "staging"},
            **update,
        }
    )


def world() -> World:
    """Both targets serve; the staging worker is ready."""
    names = ("spark-01", "spark-02")
    deployments = {
        n: DeploymentView(i, n, 1, 1, "running", {"name": n}, (InstanceView(i, n, "running", n),)) for i, n in enumerate(names, 1)
    }
    workers = {"staging": WorkerView(3, "staging", "ready", 1.0, 128 << 30, 100 << 30, True)}
    return World(NOW, "v2.3.0", route(*names), deployments, workers=workers)
