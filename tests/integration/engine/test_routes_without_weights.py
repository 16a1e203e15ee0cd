"""Routes that balance by themselves get weights for a rollout, in one journaled write, and give them back on every way back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollout.domain.receipts import receipts_of
from rollout.domain.state import Phase, RolloutState, StepName
from rollout.errors import ExitCode
from rollout.testing.memory import Target
from tests.integration.engine.harness import PLAN, Case, CrashError, reached
from tests.integration.engine.test_late_writes import FreezingPlatform
from tests.integration.engine.test_takeover import AT, Other

ASKED = PLAN.replace("route: {name: chat}", "route: {name: chat, convert_to_weighted: true, accept_loss: true}")
ASKED_BESIDE = ASKED.replace("[10, 50, 100]", "[10, 25, 50, 100]")


def unweighted(folder: Path, text: str = ASKED, *siblings: str) -> Case:
    """The harness's route with two replicas and no weights, as the server makes it for such a deployment."""
    case = Case(folder, text)
    case.platform.routes["chat"].targets[0].weight = 0
    case.platform.routes["chat"].policies = ("least-load", "session-affinity")
    for name in siblings:
        case.platform.deploy(name)
        case.platform.routes["chat"].targets.append(Target(case.platform._id(), name, 0, {"max_running_requests": 3}))
    case.before = case.shape()
    return case


def weights(case: Case) -> dict[str, int]:
    return {t.deployment: t.weight for t in case.platform.routes["chat"].targets}


def reweighs(case: Case) -> list[dict[str, int]]:
    return [args["weights"] for verb, args in case.platform.writes if verb == "reweigh"]


def converted(state: RolloutState) -> bool:
    return state.fact("converted") is not None


def test_without_the_plans_word_nothing_is_touched(tmp_path: Path) -> None:
    case = unweighted(tmp_path, PLAN)
    state = case.run(case.start().state.id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.REFUSED)
    assert "has no weights (it balances by least-load and session-affinity)" in state.fact("findings")[0]
    assert (case.platform.writes, case.shape()) == ([], case.before)


def test_a_route_without_weights_is_converted_once_and_promoted(tmp_path: Path) -> None:
    """The write stands before the first rung, is journaled as an effect of its own, and a promotion keeps the weights."""
    case = unweighted(tmp_path)
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED, (state.phase, case.events[-1][0].text)
    assert reweighs(case) == [{"chat-a": 100}]
    verbs = [verb for verb, _ in case.platform.writes]
    assert verbs.index("reweigh") < verbs.index("join")
    assert weights(case) == {f"chat-a-r{state.id[:8]}": 100}
    intents = [row.data["effect"]["verb"] for row in case.store.journal(state.id) if row.kind == "intent"]
    assert intents.count("reweigh") == 1


@pytest.mark.parametrize(("step", "rung"), [("attach", None), ("canary", 0), ("shift", 2), ("cleanup", None)])
def test_going_back_takes_the_weights_back_last_of_the_route(tmp_path: Path, step: str, rung: int | None) -> None:
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName(step), rung=rung))
    case.service().say(rollout_id, "rollback", "tester", "because")
    state = case.run(rollout_id)
    assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
    assert case.shape() == case.before
    assert {t.deployment: t.extra for t in case.platform.routes["chat"].targets}["other"] == {"max_running_requests": 3}
    there = [{"chat-a": 100, "other": 100}, {"chat-a": 0, "other": 0}] if step != "attach" else []
    assert reweighs(case) == there


def test_a_sibling_gets_a_weight_too_and_the_shares_count_it(tmp_path: Path) -> None:
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    assert weights(case) == {f"chat-a-r{state.id[:8]}": 100, "other": 100}
    receipts = receipts_of(state)
    assert receipts is not None
    assert receipts.siblings_weight(receipts.pairs[0]) == 100


def test_a_bad_canary_ends_with_the_route_as_it_was_found(tmp_path: Path) -> None:
    case = unweighted(tmp_path, ASKED.replace("sim/vllm:2", "sim/vllm:failing"))
    state = case.run(case.start().state.id)
    assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
    assert case.shape() == case.before


@pytest.mark.parametrize("point", ["intent", "acted", "outcome"])
@pytest.mark.parametrize("way", ["there", "back"])
def test_a_crash_around_the_write_neither_repeats_nor_forgets_it(tmp_path: Path, way: str, point: str) -> None:
    case = unweighted(tmp_path)
    rollout_id = case.start().state.id
    if way == "back":
        case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
        case.service().say(rollout_id, "rollback", "tester", "because")
    asked: list[str] = []

    def die(name: str) -> None:
        opened = case.store.load(rollout_id).state.intent
        mine = opened is not None and opened.effect.verb == "reweigh"
        if mine:
            asked.append(name)
        if (mine and name == point) or (point == "outcome" and name == point and asked):
            asked.clear()
            raise CrashError

    with pytest.raises(CrashError):
        case.run(rollout_id, checkpoint=die)
    state = case.run(rollout_id)
    if way == "there":
        assert state.phase is Phase.COMPLETED, case.events[-1][0].text
        assert reweighs(case) == [{"chat-a": 100}]
    else:
        assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
        assert case.shape() == case.before
        assert reweighs(case) == [{"chat-a": 100}, {"chat-a": 0}]


def test_a_target_that_came_meanwhile_is_not_swept_away_by_the_way_back(tmp_path: Path) -> None:
    """Zero beside a positive weight is refused, and theirs is not ours to change: a person is asked, and then it goes on."""
    case = unweighted(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=converted)
    case.service().say(rollout_id, "rollback", "tester", "because")
    case.platform.deploy("foreign")
    case.platform.routes["chat"].targets.append(Target(900, "foreign", 50))
    state = case.run(rollout_id, until=lambda s: s.phase is Phase.HOLDING)
    assert state.hold is not None
    assert "somebody else set foreign 50 on route chat, and weights are all or none: remove that target" in state.hold.detail
    assert "(found: chat-a 0)" in state.hold.detail
    assert weights(case) == {"chat-a": 100, "foreign": 50}
    case.platform.routes["chat"].targets.pop()
    case.service().say(rollout_id, "resume", "tester", "it is gone")
    state = case.run(rollout_id)
    assert state.phase is Phase.ROLLED_BACK
    assert case.shape()["routes"] == case.before["routes"]


def test_no_weights_are_written_while_a_target_is_away(tmp_path: Path) -> None:
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY))
    case.platform.deployments["other"].healthy = False
    state = case.run(rollout_id, until=lambda s: s.phase is Phase.HOLDING)
    assert state.hold is not None
    assert state.hold.detail == "other not active: the route gets no weights now"
    assert reweighs(case) == []
    case.platform.deployments["other"].healthy = True
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_weights_that_land_when_a_frozen_server_thaws_are_taken_back_too(tmp_path: Path) -> None:
    """The abort was said while nothing answered; the write lands when the way back has begun."""
    case = unweighted(tmp_path)
    platform = FreezingPlatform(case.clock, deployments=case.platform.deployments, routes=case.platform.routes)
    platform.freezes_on = "reweigh"
    case.platform = platform
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda _s: platform.thaws > 0)
    case.service().say(rollout_id, "abort", "tester", "the server is frozen")
    assert case.run(rollout_id).phase is Phase.ABORTED
    assert platform.held is None
    assert case.shape() == case.before


@pytest.mark.parametrize(("step", "rung"), [("attach", None), ("canary", 0), ("shift", 1), ("cleanup", None)])
def test_a_takeover_goes_on_with_the_weights_that_the_route_was_given(tmp_path: Path, step: str, rung: int | None) -> None:
    """The conversion is seen in the world: neither written twice nor taken for somebody else's change."""
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    former = case.start().state.id
    case.run(former, until=reached(StepName(step), rung=rung))
    other = Other(case)
    state = other.run(other.take(case.loaded()))
    assert state.phase is Phase.COMPLETED, (state.phase, state.hold)
    assert reweighs(case) == [{"chat-a": 100, "other": 100}]
    assert weights(case) == {f"chat-a-r{former[:8]}": 100, "other": 100}


def test_a_takeover_gives_the_route_back_without_weights(tmp_path: Path) -> None:
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    case.run(case.start().state.id, until=reached(StepName.CLEANUP))
    other = Other(case)
    taken = other.take()
    other.run(taken, until=lambda s: s.phase is Phase.HOLDING)
    other.service().say(taken, "rollback", "eve", "back")
    assert other.run(taken).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_stable_alone_comes_back_with_the_weight_that_the_route_was_given(tmp_path: Path) -> None:
    """The weight as found is none, and none beside others is refused."""
    case = unweighted(tmp_path, ASKED_BESIDE, "other")
    case.run(case.start().state.id, until=reached(StepName.CLEANUP))
    taken = asyncio.run(case.service().stable_only(AT, "chat", ("chat-a",), actor="eve", reason="users suffer")).state.id
    assert case.run(taken).phase is Phase.COMPLETED
    assert weights(case) == {"chat-a": 100}
