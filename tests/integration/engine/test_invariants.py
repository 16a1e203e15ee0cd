"""Random nights: sides die and come back, people say things, somebody writes to the route. What must hold, holds at every write."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout.domain.state import Event, Phase, RolloutState
from rollout.errors import RolloutError
from rollout.testing.memory import MemoryPlatform
from tests.integration.engine.harness import PLAN, Case

TEXT = (
    PLAN.replace("[10, 50, 100]", "[10, 25, 50, 100]")
    .replace("min_time_before_full: 5m", "min_time_before_full: 1m")
    .replace("{duration: 2m}", "{duration: 40s, keep: parked, warm: 5s, approval: none}")
)
FOREIGN = "foreign"
EXAMPLES = int(os.environ.get("ROLLOUT_NIGHTS", "10"))
ACTIONS = (
    "kill stable",
    "revive stable",
    "kill canary",
    "revive canary",
    "pause",
    "resume",
    "abort",
    "rollback",
    "promote",
    "drift",
    "undrift",
)


class Watched(MemoryPlatform):
    """Checks the world before each write of ours."""

    async def perform(self, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        route = self.routes["chat"]
        before = {t.deployment: t.weight for t in route.targets}
        if verb == "join":
            assert self.serves(args["deployment"]), f"{args['deployment']} got traffic while it was down"
        if verb in ("set_weight", "leave") and "chat-a" in before and args["deployment"] != "chat-a":
            assert self.serves("chat-a"), f"{verb} while stable was lost"
        if verb == "delete_deployment":
            used = [r.name for r in self.routes.values() if any(t.deployment == args["name"] for t in r.targets)]
            assert not used, f"{args['name']} was deleted while {used} sent to it"
        if verb == "scale" and args["replicas"] == 0:
            used = [r.name for r in self.routes.values() if r.policy == "authed" and any(t.deployment == args["name"] for t in r.targets)]
            assert not used, f"{args['name']} was parked while {used} sent to it"
            assert self.deployments[args["name"]].in_flight == 0
            assert any(self.serves(t.deployment) for t in route.targets if t.deployment != FOREIGN), "parked while its successor was down"
        if verb in ("join", "set_weight") and args["deployment"] != "chat-a":
            assert args["weight"] in (11, 33, 100), "a weight that is no rung"
        result = await super().perform(verb, args)
        after = {t.deployment: t.weight for t in self.routes["chat"].targets}
        assert after.get(FOREIGN) == before.get(FOREIGN) == 50, "a target that is not ours was touched"
        return result


def _apply(case: Case, action: str, rollout_id: str) -> None:
    platform = case.platform
    canary = next((d for n, d in platform.deployments.items() if n.startswith("chat-a-r")), None)
    stable = platform.deployments.get("chat-a")
    target = next((t for t in platform.routes["chat"].targets if t.deployment == "chat-a"), None)
    match action:
        case "kill stable" | "revive stable" if stable is not None:
            stable.healthy = action.startswith("revive")
        case "kill canary" | "revive canary" if canary is not None:
            canary.healthy = action.startswith("revive")
        case "drift" | "undrift" if target is not None and case.store.load(rollout_id).state.fact("expected"):  # else it was so before us
            target.weight = 30 if action == "drift" else 100
        case "pause" | "resume" | "abort" | "rollback" | "promote":
            try:
                case.service().say(rollout_id, action, "tester", "at night")
            except RolloutError:
                return  # it said why it cannot have an effect


@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 25), st.sampled_from(ACTIONS)), max_size=6))
def test_no_night_breaks_an_invariant(night: list[tuple[int, str]]) -> None:
    """No request towards a dead side, no empty route, nothing foreign touched; and in the end it is over, or says why not."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(Path(folder), TEXT, naps=20_000)
        old = case.platform
        case.platform = Watched(case.clock, slow_images=old.slow_images)
        case.platform.deploy("chat-a")
        case.platform.deploy(FOREIGN)
        case.platform.route("chat", {"chat-a": 100, FOREIGN: 50}, {"team": "search"})
        before = case.shape()
        rollout_id = case.start().state.id
        state = _through(case, rollout_id, night)
        _heal(case)
        state = case.run(rollout_id, until=lambda s: s.phase is Phase.HOLDING, limit=60000)
        if state.phase is Phase.HOLDING:
            assert state.hold is not None
            assert state.hold.detail
            case.service().say(rollout_id, "rollback", "tester", "morning")
            state = case.run(rollout_id, limit=60000)
        assert state.terminal
        if state.phase is not Phase.COMPLETED:
            assert case.shape() == before
        assert case.store.verify(rollout_id) > 0
        case.store.close()


def _through(case: Case, rollout_id: str, night: list[tuple[int, str]]) -> RolloutState:
    """Let the night happen: each action after so many journal entries more."""
    state = case.store.load(rollout_id).state
    for entries, action in night:
        goal = len(case.events) + entries
        started = case.clock.now()

        def later(s: RolloutState, goal: int = goal) -> bool:
            late = (case.clock.now() - started).total_seconds() > 120  # noqa: B023  # nothing may happen for long while it halts
            return len(case.events) >= goal or late or s.terminal

        state = case.run(rollout_id, until=later, limit=60000)
        if state.terminal:
            return state
        _apply(case, action, rollout_id)
    return state


def _heal(case: Case) -> None:
    for deployment in case.platform.deployments.values():
        deployment.healthy = True
    for target in case.platform.routes["chat"].targets:
        if target.deployment == "chat-a":
            target.weight = 100


def test_the_harness_sees_a_broken_invariant(tmp_path: Path) -> None:
    """The watch itself can fail: a write towards a dead side is noticed."""
    case = Case(tmp_path, TEXT)
    watched = Watched(case.clock)
    watched.deploy("chat-a")
    watched.route("chat", {"chat-a": 100})
    watched.deploy("dead", ready=False)
    seen: list[Event] = []
    with pytest.raises(AssertionError, match="while it was down"):
        watched.perform("join", {"route": "chat", "deployment": "dead", "weight": 11}).send(None)
    assert not seen
