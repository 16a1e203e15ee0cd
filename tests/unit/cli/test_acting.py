"""run, tick, the control verbs and the way back: who ticks, what is said, and how each ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout.cli.app import main
from rollout.domain.state import Phase, StepName
from rollout.errors import RouteTaken, Unreachable
from tests.unit.cli.fakes import OTHER, FakeDesk
from tests.unit.report.samples import ID, NOW, event, facts, halted, holding, minutes, rolled_back, state

OPENED = {"at": NOW.isoformat(), "duration": 86400.0, "live": None, "base": {}, "kept": {}}

Captured = pytest.CaptureFixture[str]
PROMOTED = state(step=StepName.CLEANUP, phase=Phase.PROMOTED)


def test_run_goes_on_until_promoted_and_says_who_ticks_the_window(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [state(step=StepName.SHIFT), PROMOTED, rolled_back()]
    assert main(["run", ID]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"promoted  {ID}")
    assert "rollout tick --all" in shown.err
    assert len(shown.out.splitlines()) == 1


@pytest.mark.parametrize(("where", "code"), [(rolled_back(), 10), (halted(), 13), (holding(), 12), (holding("approval"), 11)])
def test_run_ends_with_where_the_rollout_stands(desk: FakeDesk, where: object, code: int, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [where]  # type: ignore[list-item]
    assert main(["run", ID, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_run_stops_at_the_step_it_was_asked_for(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(step=StepName.STAGE))
    desk.service.states = [state(step=StepName.ATTACH), state()]
    assert main(["run", ID, "--until", "attach"]) == 0
    assert desk.store.load(ID).state.step is StepName.ATTACH


def test_ctrl_c_detaches_and_says_how_to_go_on_and_how_to_go_back(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.fails = KeyboardInterrupt()
    assert main(["run", ID]) == 130
    shown = capsys.readouterr().err
    assert "goes on with whoever ticks" in shown
    assert f"rollout run {ID}" in shown
    assert f"rollout rollback {ID}" in shown


def test_under_ci_the_default_store_is_refused_before_anything_is_started(
    desk: FakeDesk, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr("rollout.plan.load.load_plan", lambda _path: "loaded")
    desk.put(state())
    assert main(["run", "plan.yaml"]) == 2
    assert desk.service.started == []
    assert "--store" in capsys.readouterr().err
    desk.service.states = [PROMOTED]
    assert main(["run", "plan.yaml", "--store", "/lasting/r.db"]) == 0
    assert len(desk.service.started) == 1


def test_tick_does_one_and_ends_with_its_code(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [holding("drift")]
    assert main(["tick", ID]) == 11
    assert capsys.readouterr().out.startswith("holding")


def test_tick_all_takes_what_is_due_and_one_failure_does_not_stop_the_others(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(), rolled_back().model_copy(update={"id": "ended"}))
    desk.put(state(id="later"), next_wake=NOW + minutes(5))
    desk.put(state(id="due"), next_wake=NOW - minutes(5))
    desk.service.fails = Unreachable("GET /v2/workers got no answer.", why="connection refused")
    assert main(["tick", "--all", "--json"]) == 20
    assert sorted(row["id"] for row in json.loads(capsys.readouterr().out)) == [ID, "due"]


def test_tick_leaves_alone_what_another_process_ticks(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.fails = RouteTaken("it is being run", why="ops-1:4711 holds it")
    assert main(["tick", "--all"]) == 0
    assert "left alone: ops-1:4711" in capsys.readouterr().out


def test_nothing_due_is_no_error(desk: FakeDesk, capsys: Captured) -> None:
    assert main(["tick", "--all"]) == 0
    assert "nothing is due" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["pause", "resume", "promote"])
def test_a_word_is_said_with_actor_and_reason_and_nobody_ticks_is_told(desk: FakeDesk, verb: str, capsys: Captured) -> None:
    desk.put(state())
    assert main([verb, ID[:5], "--reason", " incident ", "--actor", "eve"]) == 0
    assert desk.service.said == [(ID, verb, "eve", "incident", {})]
    assert "nobody ticks it now" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["pause", "resume", "promote"])
def test_a_word_that_was_said_is_told_as_json(desk: FakeDesk, verb: str, capsys: Captured) -> None:
    desk.put(state(), owner=OTHER, lease_until=NOW + minutes(1))
    assert main([verb, ID, "--reason", "incident", "--json"]) == 0
    told = {"id": ID, "said": verb, "actor": "ana", "reason": "incident", "ticked_by": "elsewhere:4711"}
    assert json.loads(capsys.readouterr().out) == told


TAKEN = state(phase=Phase.ROLLING_BACK, plan_digest="", undo=rolled_back().undo)
AGAIN = "rollout rollback --route chat --server http://gpustack.lan --reason '…'"


def test_tick_all_leaves_a_takeover_without_a_plan_alone_and_says_what_goes_on(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(TAKEN)
    assert main(["tick", "--all"]) == 0
    assert f"left alone, it holds no plan: `{AGAIN}` goes on" in capsys.readouterr().out
    assert main(["tick", ID]) == 2
    assert AGAIN in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["rollback", "abort"])
def test_nothing_is_said_to_a_takeover_that_this_command_could_not_see_through(desk: FakeDesk, verb: str, capsys: Captured) -> None:
    desk.put(TAKEN)
    assert main([verb, ID, "--reason", "r"]) == 2
    assert desk.service.said == []
    assert f"next: `{AGAIN}` goes on with it." in capsys.readouterr().err


def test_a_word_to_a_takeover_names_the_command_that_takes_it_up(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(TAKEN.model_copy(update={"phase": Phase.HOLDING}))
    assert main(["resume", ID, "--reason", "r"]) == 0
    assert f"`{AGAIN}` takes it up" in capsys.readouterr().err


def test_approve_can_accept_what_is_inconclusive(desk: FakeDesk) -> None:
    desk.put(holding(), owner=OTHER, lease_until=NOW + minutes(1))
    assert main(["approve", ID, "--accept-inconclusive", "--reason", "checked by hand"]) == 0
    assert desk.service.said[0][4] == {"accept_inconclusive": True}


def test_parking_is_approved_by_a_word_of_its_own(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(step=StepName.CLEANUP))
    assert main(["approve", ID, "--park", "--reason", "2 minutes are fine"]) == 0
    assert desk.service.said[0][4] == {"accept_inconclusive": False, "park": True}
    assert main(["approve", ID, "--park", "--accept-inconclusive", "--reason", "both"]) == 2
    assert "two things are approved at once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "args"),
    [
        (["--by", "12h"], {"by": 43200.0}),
        (["--until", "2026-12-04T18:00Z"], {"until": "2026-12-04T18:00:00+00:00"}),
        (["--until", "2026-12-04T18:00+02:00"], {"until": "2026-12-04T16:00:00+00:00"}),
        (["--until", "2026-12-04"], {"until": "2026-12-04T00:00:00+00:00"}),
    ],
)
def test_a_window_is_extended(desk: FakeDesk, line: list[str], args: dict[str, Any], capsys: Captured) -> None:
    desk.put(state(step=StepName.CLEANUP))
    assert main(["extend-window", ID, *line, "--reason", "night job"]) == 0
    assert desk.service.said == [(ID, "extend_window", "ana", "night job", args)]
    assert capsys.readouterr().out.startswith("extend-window: said to")


@pytest.mark.parametrize("line", [[], ["--by", "12h", "--until", "2026-12-04"], ["--by", "long"], ["--until", "friday"]])
def test_a_window_is_not_extended_by_nothing_or_nonsense(desk: FakeDesk, line: list[str]) -> None:
    desk.put(state(step=StepName.CLEANUP))
    assert main(["extend-window", ID, *line, "--reason", "night job"]) == 2
    assert desk.service.said == []


@pytest.mark.parametrize(
    ("facts_", "line", "code", "says"),
    [
        ({"cleanup.began": {"at": "x"}}, ["--by", "1h"], 23, "the cleanup has begun"),
        ({"window": OPENED}, ["--until", "2020-01-01"], 22, "it is not made shorter"),
    ],
)
def test_a_window_that_cannot_be_extended_says_so(
    desk: FakeDesk, facts_: dict[str, Any], line: list[str], code: int, says: str, capsys: Captured
) -> None:
    desk.put(state(step=StepName.CLEANUP, facts=facts(**facts_)))
    assert main(["extend-window", ID, *line, "--reason", "night job"]) == code
    assert says in capsys.readouterr().err
    assert desk.service.said == []


def test_a_rollback_that_is_known_to_be_impossible_is_refused_with_the_way_that_is_left(desk: FakeDesk, capsys: Captured) -> None:
    lost = {"spark-01": {"word": "not", "cause": "files", "why": "the files of spark-01 are gone: /m on n1", "seconds": None}}
    desk.put(state(phase=Phase.PROMOTED, step=StepName.CLEANUP, facts=facts(restorable=lost)))
    assert main(["rollback", ID, "--reason", "users complain"]) == 23
    told = capsys.readouterr().err
    assert "the files of spark-01 are gone: /m on n1" in told
    assert "Write a plan that goes the other way" in told
    assert desk.service.said == []


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        ({"phase": Phase.ROLLED_BACK, "exit_code": 10}, "There is nothing to take back"),
        ({"phase": Phase.ABORTED, "exit_code": 3}, "There is nothing to take back"),
        ({"phase": Phase.ABORTED, "exit_code": 21}, "says what is left"),
        ({"phase": Phase.ABORTED, "exit_code": 31}, "`rollout rollback --route chat --server http://gpustack.lan --reason '…'`"),
        ({"phase": Phase.COMPLETED, "exit_code": 0}, "Write a plan that goes the other way"),
        ({"phase": Phase.COMPLETED, "exit_code": 0, "facts": {"only": {"stable": ["a"]}}}, "what stood on the route under `before`"),
    ],
)
def test_what_is_left_to_do_after_an_end_follows_from_the_end(desk: FakeDesk, ended: dict[str, Any], says: str, capsys: Captured) -> None:
    desk.put(state(waiting=None, ended=NOW, **ended))
    assert main(["rollback", ID, "--reason", "users complain"]) == 23
    assert says in " ".join(capsys.readouterr().err.split())


def test_an_empty_reason_is_no_reason(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    assert main(["pause", ID, "--reason", "  "]) == 2
    assert desk.service.said == []


def test_a_word_to_an_ended_rollout_is_refused(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(rolled_back())
    assert main(["resume", ID, "--reason", "r"]) == 2
    assert "has ended" in capsys.readouterr().err


def test_rollback_is_carried_out_here_when_nobody_ticks(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [rolled_back()]
    assert main(["rollback", ID, "--reason", "users complain"]) == 0
    assert desk.service.said[0][:2] == (ID, "rollback")
    assert desk.service.ran == 1
    assert capsys.readouterr().out.startswith("rolled_back")


def test_rollback_waits_for_the_owner_while_it_lives(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(), owner=OTHER, lease_until=NOW + minutes(30))
    desk.clock.then = [lambda: None, lambda: desk.store.put(rolled_back())]
    assert main(["abort", ID, "--reason", "wrong image"]) == 0
    assert desk.service.ran == 0
    assert "elsewhere:4711 ticks it" in capsys.readouterr().err


def test_rollback_takes_over_when_the_owner_leaves_the_word_unheard(desk: FakeDesk) -> None:
    desk.store.unheard = ("rollback",)
    desk.put(state(), owner=OTHER, lease_until=NOW + minutes(30))
    desk.service.states = [rolled_back()]
    assert main(["rollback", ID, "--reason", "r"]) == 0
    assert desk.service.ran == 1
    assert desk.service.forced
    assert 45 < desk.clock.slept < 60


def test_rollback_waits_for_an_owner_that_claimed_it_in_the_same_moment(desk: FakeDesk, capsys: Captured) -> None:
    """Nobody ticked it when the word was said; somebody's `run` came first when this process wanted to."""
    desk.put(state())

    def claimed() -> None:
        desk.put(state(), owner=OTHER, lease_until=NOW + minutes(30))

    desk.service.taken = claimed
    desk.clock.then = [lambda: None, lambda: desk.store.put(rolled_back())]
    assert main(["rollback", ID, "--reason", "r"]) == 0
    assert desk.service.ran == 1
    assert "elsewhere:4711 ticks it" in capsys.readouterr().err


def test_rollback_that_halts_ends_with_its_code(desk: FakeDesk) -> None:
    desk.put(state())
    desk.service.states = [halted().model_copy(update={"undo": rolled_back().undo})]
    assert main(["rollback", ID, "--reason", "r"]) == 13


def test_rollback_after_the_cleanup_began_is_refused_before_it_is_tried(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(step=StepName.CLEANUP, facts={"cleanup.began": {"at": NOW.isoformat()}}))
    assert main(["rollback", ID, "--reason", "r"]) == 23
    assert desk.service.ran == 0


def test_abort_of_a_promoted_rollout_names_rollback(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(PROMOTED)
    assert main(["abort", ID, "--reason", "r"]) == 2
    assert f"rollout rollback {ID}" in capsys.readouterr().err


def test_retry_is_a_new_attempt_that_is_ticked(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(rolled_back())
    desk.service.states = [PROMOTED]
    assert main(["retry", ID, "--reason", "driver fixed"]) == 0
    assert desk.service.said == [(ID, "retry", "ana", "driver fixed", {})]
    assert desk.service.ran == 1


def test_a_key_itself_is_never_taken_from_the_command_line(desk: FakeDesk, capsys: Captured) -> None:
    line = ["rollback", "--route", "chat", "--server", "http://g", "--management-key", "gpustack_abc", "--reason", "r"]
    assert main(line) == 2
    assert "gpustack_abc" not in capsys.readouterr().err


def test_progress_goes_to_stderr_one_line_per_transition(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [state(step=StepName.SHIFT), PROMOTED]
    main(["run", ID])
    lines = [line for line in capsys.readouterr().err.splitlines() if "enters" in line]
    assert [line.split()[1] for line in lines] == ["shift", "cleanup"]
    assert event("step", "x").text == "x"
