"""What an interruption, a repeated word, a refusal or a wrong clock may not change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, StepName
from rollout.domain.world import Scope, World
from rollout.errors import Refused
from tests.integration.engine.harness import PLAN, Case, holding, reached


def test_a_halt_before_the_rung_is_watched_is_not_compared_either(tmp_path: Path) -> None:
    """Stable is lost after rung 1 was written and proved, but before `watching rung` sets the base."""
    case = Case(tmp_path)
    case.platform.request_seconds = 35.0
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.rung.1.written") is not None and s.fact("0.rung.1.proved") is None)
    case.platform.deployments["chat-a"].healthy = False
    case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    case.platform.deployments["chat-a"].healthy = True
    case.events.clear()
    case.run(rollout_id, until=lambda s: s.step is StepName.CLEANUP or s.terminal)
    back = next(e.at for e, _ in case.events if e.text == "chat-a serves again")
    windows = [(e.at, e.data["note"]["window"]) for e, _ in case.events if "window" in e.data.get("note", {})]
    seen = [((at - back).total_seconds(), window["load_ratio"]) for at, window in windows if window["seconds"]]
    early = [(t, ratio) for t, ratio in seen if t < 35]
    assert early, seen[:5]
    assert {ratio for _, ratio in early} == {None}, early


def test_a_hold_whose_words_count_seconds_keeps_its_since(tmp_path: Path) -> None:
    """`since` of a hold is when it began; its journal row is written once; `--patience` can pass."""
    case = Case(tmp_path, PLAN.replace("evidence:", "ready_within: 1m\nevidence:"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.ATTACH))
    case.platform.deployments["chat-a"].healthy = True
    created = case.run(rollout_id, until=lambda s: s.fact("0.attach.created") is not None)
    canary = next(d for n, d in case.platform.deployments.items() if n.startswith("chat-a-r"))
    canary.healthy = False
    held = case.run(rollout_id, until=lambda s: s.hold is not None)
    assert held.hold is not None
    assert created is not None
    first = held.hold.since
    ticks = [0]

    def later(state: object) -> bool:
        ticks[0] += 1
        return ticks[0] > 30

    state = case.run(rollout_id, until=later)
    assert state.hold is not None
    assert state.hold.since == first
    rows = [r for r in case.store.journal(rollout_id) if r.kind == "hold"]
    assert len(rows) == 1, [r.text for r in rows[:3]]


def test_time_when_nobody_watched_is_no_exposure(tmp_path: Path) -> None:
    """An hour of halt at 50 % does not count as the five minutes that were asked for."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: (s.fact("0.seen") or {}).get("rung") == 1)
    case.platform.deployments["chat-a"].healthy = False
    case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    asyncio.run(case.clock.sleep(3600))
    case.platform.deployments["chat-a"].healthy = True
    back = case.clock.now()
    case.run(rollout_id, until=lambda s: s.fact("0.rung.1.left") is not None or s.terminal)
    assert (case.clock.now() - back).total_seconds() >= 290, (case.clock.now() - back).total_seconds()


def test_promote_holds_for_the_target_it_was_said_on(tmp_path: Path) -> None:
    """The second target is judged and exposed as if nothing had been said."""
    case = Case(tmp_path, PLAN.replace("stable: [{deployment: chat-a}]", "stable: [{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 100}, {"team": "search"})
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
    case.service().say(rollout_id, "promote", "tester", "take the first one")
    case.run(rollout_id, until=lambda s: s.target == 1 and s.step is StepName.CANARY)
    began = case.clock.now()
    case.run(rollout_id, until=lambda s: s.step is StepName.CLEANUP or s.terminal)
    assert (case.clock.now() - began).total_seconds() >= 300, (case.clock.now() - began).total_seconds()


def test_a_reboot_into_a_fast_wall_clock_opens_no_window(tmp_path: Path) -> None:
    """The steady clock begins anew, and the wall clock is two days ahead: the server's own clock stands against it."""
    case = Case(tmp_path, PLAN.replace("duration: 2m", "duration: 3h"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.phase is Phase.PROMOTED)
    began = case.clock.time
    case.clock.boot = lambda: "boot-2"  # type: ignore[method-assign]
    case.clock.jump = timedelta(days=2)
    assert case.run(rollout_id, limit=10000).phase is Phase.COMPLETED
    assert (case.clock.time - began) >= timedelta(hours=2.9), case.clock.time - began


def test_a_command_that_is_cut_off_in_a_write_lets_go_of_it(tmp_path: Path) -> None:
    """Ctrl-C ends the tick and what it was doing: a write that went on behind it would meet a closed client, and nobody would hear it."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.ATTACH))
    real, ended = case.platform.perform, list[str]()

    async def cut_off() -> None:
        under_way = asyncio.Event()

        async def perform(verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
            under_way.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(verb)
            return {}

        case.platform.perform = perform  # type: ignore[method-assign]
        command = asyncio.create_task(case.service().run(rollout_id, until=lambda s: s.terminal))
        await under_way.wait()
        command.cancel()
        await asyncio.gather(command, return_exceptions=True)
        assert len(ended) == 1, "before the command has ended, not after"

    asyncio.run(cut_off())
    case.platform.perform = real  # type: ignore[method-assign]
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_a_write_that_stays_refused_on_the_way_back_holds(tmp_path: Path) -> None:
    """Tried again for two minutes, then a person is asked; `resume` tries once more."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
    real = case.platform.perform

    async def perform(verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "delete_deployment":
            msg = "not now"
            raise Refused(msg)
        return await real(verb, args)

    case.platform.perform = perform  # type: ignore[method-assign]
    case.service().say(rollout_id, "rollback", "tester", "go back")
    state = case.run(rollout_id, until=holding("refused"))
    assert state.hold is not None
    assert "not now" in state.hold.detail
    case.platform.perform = real  # type: ignore[method-assign]
    case.service().say(rollout_id, "resume", "tester", "try again")
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_a_rollback_names_the_foreign_route_that_keeps_the_canary(tmp_path: Path) -> None:
    """It goes on by itself once nothing of others sends there."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
    case.platform.route("foreign", {f"chat-a-r{state.id[:8]}": 100})
    case.service().say(rollout_id, "rollback", "tester", "go back")
    held = case.run(rollout_id, until=holding("in_use"))
    assert held.hold is not None
    assert "foreign" in held.hold.detail
    assert [t.deployment for t in case.platform.routes["chat"].targets] == ["chat-a"]
    del case.platform.routes["foreign"]
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


@pytest.mark.parametrize("step", [StepName.SHIFT, StepName.CLEANUP])
def test_a_halt_with_both_sides_down_ends_when_the_canary_serves_again(tmp_path: Path, step: StepName) -> None:
    """The canary carries the route alone by then: stable, drained and out of it, is not what anybody waits for."""
    case = Case(tmp_path, PLAN.replace("drain: {quiet: 10s}", "drain: {quiet: 60s}"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.step is step and s.fact("0.handed") is not None)
    canary = next(d for n, d in case.platform.deployments.items() if n.startswith("chat-a-r"))
    case.platform.deployments["chat-a"].healthy = canary.healthy = False
    halted = case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    assert halted.fact("halted")["reason"] == "canary_lost"
    canary.healthy = True
    state = case.run(rollout_id, until=lambda s: s.fact("halted") is None)
    assert state.phase is (Phase.PROMOTED if step is StepName.CLEANUP else Phase.RUNNING)
    case.platform.deployments["chat-a"].healthy = True
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_the_way_back_reads_engines_only_for_a_drain(tmp_path: Path) -> None:
    """Their pages would hold up the first write; whoever drains gets them."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
    asked: list[tuple[bool, tuple[str, ...]]] = []
    real = case.platform.observe

    async def observe(scope: Scope) -> World:
        world = await real(scope)
        canary = any(t.deployment != "chat-a" for t in world.route.targets) if world.route else False
        asked.append((canary, scope.sample))
        return world

    case.platform.observe = observe  # type: ignore[method-assign]
    case.service().say(rollout_id, "rollback", "tester", "go back")
    state = case.run(rollout_id)
    canary = state.fact("receipts")["pairs"][0]["canary"]
    assert {sample for inside, sample in asked if inside} == {()}
    assert (False, (canary,)) in asked
    assert state.phase is Phase.ROLLED_BACK
