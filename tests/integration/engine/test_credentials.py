"""Keys during a rollout: one that is about to end, and one that the server no longer takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, StepName
from rollout.domain.world import Keys, KeyView, Scope, World
from rollout.errors import KeyRefused
from tests.integration.engine.harness import Case, reached


def ends(case: Case, **span: float) -> Keys:
    when = case.clock.now() + timedelta(**span)
    return Keys(KeyView("ours", ("management",), when), KeyView("probes", ("inference",), None))


def held(reason: str) -> Any:
    return lambda s: s.hold is not None and s.hold.reason == reason


def test_a_key_that_ends_within_the_hour_holds_and_a_new_one_lets_it_go_on(tmp_path: Path) -> None:
    case = Case(tmp_path)
    started = case.start().state.id
    case.platform.keys = ends(case, hours=30)
    case.run(started, reached(StepName.CANARY))
    case.platform.keys = ends(case, minutes=59)
    weights = {t.deployment: t.weight for t in case.platform.routes["chat"].targets}
    state = case.run(started, held("credentials"))
    assert state.phase is Phase.HOLDING
    assert "`management_key` (ours) ends at" in (state.hold.detail if state.hold else "")
    assert {t.deployment: t.weight for t in case.platform.routes["chat"].targets} == weights
    assert len([e for e, _ in case.events if e.kind == "hold" and "ends at" in e.text]) == 1
    case.platform.keys = ends(case, hours=30)
    assert case.run(started).phase is Phase.COMPLETED


def test_a_rollback_goes_ahead_of_a_key_that_is_about_to_end(tmp_path: Path) -> None:
    case = Case(tmp_path)
    started = case.start().state.id
    case.run(started, reached(StepName.CANARY))
    case.platform.keys = ends(case, minutes=5)
    case.run(started, held("credentials"))
    case.service().say(started, "rollback", "ana", "the key ends")
    assert case.run(started).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_a_key_that_ends_too_soon_refuses_the_start(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.platform.keys = ends(case, minutes=5)
    state = case.run(case.start().state.id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, 3)
    assert case.platform.writes == []


class Shut:
    """The server refuses the key as long as `shut` says so."""

    def __init__(self, case: Case) -> None:
        self.shut, self._seen = False, case.platform.observe

    async def observe(self, scope: Scope) -> World:
        if self.shut:
            raise KeyRefused("GET /v2/models was refused (401).", why="Invalid authentication credentials", hint="Make a new key.")
        return await self._seen(scope)


@pytest.fixture
def case_and_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Shut]:
    case = Case(tmp_path)
    door = Shut(case)
    monkeypatch.setattr(case.platform, "observe", door.observe)
    return case, door


def test_a_refused_key_holds_says_why_and_goes_on_when_it_is_taken_again(case_and_door: tuple[Case, Shut]) -> None:
    case, door = case_and_door
    started = case.start().state.id
    case.run(started, reached(StepName.CANARY))
    door.shut = True
    state = case.run(started, held("credentials"))
    assert state.phase is Phase.HOLDING
    assert "Make a new key." in (state.hold.detail if state.hold else "")
    door.shut = False
    assert case.run(started).phase is Phase.COMPLETED
    assert len([e for e, _ in case.events if e.kind == "hold" and "refused (401)" in e.text]) == 1


def test_a_key_that_is_refused_before_anything_was_touched_ends_the_command_at_once(case_and_door: tuple[Case, Shut]) -> None:
    case, door = case_and_door
    door.shut = True
    began = case.clock.now()
    with pytest.raises(KeyRefused):
        case.run(case.start().state.id)
    assert case.clock.now() - began < timedelta(seconds=5)


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_what_never_reached_its_server_can_be_ended_without_it(case_and_door: tuple[Case, Shut], verb: str) -> None:
    case, door = case_and_door
    door.shut = True
    started = case.start().state.id
    with pytest.raises(KeyRefused):
        case.run(started)
    case.service().say(started, verb, "ana", "the address was wrong")
    assert case.run(started).phase is (Phase.ABORTED if verb == "abort" else Phase.ROLLED_BACK)
    assert case.platform.writes == []
    assert case.start().state.id != started


def test_going_back_with_a_refused_key_gives_up_after_half_a_minute_and_goes_on_later(case_and_door: tuple[Case, Shut]) -> None:
    case, door = case_and_door
    started = case.start().state.id
    case.run(started, reached(StepName.CANARY))
    door.shut = True
    case.service().say(started, "rollback", "ana", "bad answers")
    began = case.clock.now()
    with pytest.raises(KeyRefused):
        case.run(started)
    assert case.clock.now() - began < timedelta(minutes=3)
    door.shut = False
    assert case.run(started).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_a_key_that_may_look_and_not_write_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)
    carry = case.platform.perform

    async def perform(verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "create_deployment":
            raise KeyRefused("POST /v2/models was refused (403).", why="No permission", hint="Put a key of an administrator there.")
        return await carry(verb, args)

    monkeypatch.setattr(case.platform, "perform", perform)
    state = case.run(case.start().state.id, held("credentials"))
    assert "No permission; Put a key of an administrator there." in (state.hold.detail if state.hold else "")
    monkeypatch.setattr(case.platform, "perform", carry)
    case.service().say(state.id, "resume", "ana", "another key")
    assert case.run(state.id).phase is Phase.COMPLETED
