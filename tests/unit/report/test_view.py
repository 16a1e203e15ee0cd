"""A status says what is going on, why, until when, and what a person can do."""

from __future__ import annotations

import json

import pytest

from rollout.domain.effects import Effect
from rollout.domain.state import OpenIntent, Phase, RolloutState, Said, StepName, Waiting
from rollout.errors import ExitCode
from rollout.report.view import Owner, exit_code_for, needs_person, summary, verbs_for, view_of
from tests.unit.report.samples import ID, NOW, event, halted, holding, minutes, plan, rolled_back, state

SAID = Said(verb="pause", actor="ana", reason="incident", at=NOW)


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (state(), ExitCode.DONE),
        (state(phase=Phase.PROMOTED), ExitCode.DONE),
        (state(phase=Phase.COMPLETED), ExitCode.DONE),
        (rolled_back(), ExitCode.ROLLED_BACK),
        (state(phase=Phase.ABORTED), ExitCode.ROLLED_BACK),
        (state(phase=Phase.ABORTED, exit_code=30), ExitCode.ROUTE_TAKEN),
        (state(phase=Phase.ABORTED, exit_code=3), ExitCode.REFUSED),
        (holding("drift"), ExitCode.HOLDING),
        (holding("inconclusive"), ExitCode.INCONCLUSIVE),
        (halted(), ExitCode.HALTED),
        (state(paused=SAID), ExitCode.HOLDING),
    ],
)
def test_each_state_has_one_exit_code(where: RolloutState, code: ExitCode) -> None:
    assert exit_code_for(where) is code


def test_there_is_no_exit_code_while_it_is_under_way() -> None:
    assert view_of(state(), None).exit_code is None
    assert view_of(state(paused=SAID), None).exit_code == 11
    assert view_of(rolled_back(), None).exit_meaning == "rolled back or aborted"


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.COMPLETED])
def test_every_phase_but_completed_names_a_verb_that_leads_on(phase: Phase) -> None:
    view = view_of(state(phase=phase), None)
    assert view.next
    assert all(line.startswith("rollout ") and ID in line for line in view.next)


def test_a_hold_names_its_own_verbs_as_commands() -> None:
    held = holding("inconclusive", verbs=("approve --accept-inconclusive", "rollback"))
    assert view_of(held, None).next[0] == f"rollout approve {ID} --accept-inconclusive --reason '…'"
    assert view_of(held, None).next[1] == f"rollout rollback {ID} --reason '…'"


def test_promoted_is_rolled_back_and_not_aborted() -> None:
    assert verbs_for(state(phase=Phase.PROMOTED)) == ("rollback", "pause", "extend-window --by 12h")
    assert "abort" not in verbs_for(state(phase=Phase.PROMOTED, paused=SAID))


@pytest.mark.parametrize(
    ("where", "person"),
    [
        (state(), False),
        (holding("drift"), False),
        (holding("drift").model_copy(update={"undo": SAID}), True),
        (holding("drain_timeout").model_copy(update={"undo": SAID}), False),
        (holding("approval"), True),
        (holding("weight_not_effective", clears=("0.rung.0.tries",)), True),
        (halted(), True),
        (state(paused=SAID), True),
    ],
)
def test_a_person_is_needed_when_the_cause_does_not_go_away(where: RolloutState, person: bool) -> None:
    assert needs_person(where) is person


def test_halted_shows_why_from_the_fact_the_engine_keeps() -> None:
    view = view_of(halted(), None)
    assert view.hold is not None
    assert (view.hold.reason, view.hold.since) == ("stable_lost", NOW - minutes(2))
    assert "spark-01 does not serve" in view.summary


def test_what_halted_is_ended_by_no_resume() -> None:
    assert verbs_for(halted()) == ("rollback", "abort")
    assert verbs_for(halted().model_copy(update={"step": StepName.CLEANUP})) == ("rollback",)
    assert verbs_for(halted().model_copy(update={"undo": SAID})) == ("run",)


@pytest.mark.parametrize("phase", [Phase.ROLLING_BACK, Phase.HOLDING, Phase.HALTED, Phase.PENDING])
def test_a_takeover_without_a_plan_is_gone_on_with_by_its_route(phase: Phase) -> None:
    taken = state(phase=phase, plan_digest="", undo=SAID)
    line = "rollout rollback --route chat --server http://gpustack.lan --reason '…'"
    assert view_of(taken, None).next == (line,)
    assert view_of(taken, None).goes_on == (line,)


def test_a_takeover_without_a_plan_is_not_tried_again() -> None:
    assert view_of(state(phase=Phase.ROLLED_BACK, plan_digest="", undo=SAID), None).next == ()
    assert view_of(rolled_back(), None).next == (f"rollout retry {ID} --reason '…'",)


def test_the_summary_says_what_is_being_done_before_what_is_waited_for() -> None:
    effect = Effect(verb="join", args={}, why="spark-01-r joins weight 11")
    doing = state(intent=OpenIntent(number=1, effect=effect, at=NOW))
    assert summary(doing) == "step canary: spark-01-r joins weight 11"
    assert summary(state()).startswith("step canary: exposure 360 of 600 s")


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_a_sentence(phase: Phase) -> None:
    assert len(summary(state(phase=phase, waiting=None))) > 8


def test_the_sentence_of_a_rollback_names_who_and_why() -> None:
    said = Said(verb="rollback", actor="ana", reason="users complain", at=NOW)
    going = state(phase=Phase.ROLLING_BACK, undo=said, waiting=None)
    assert summary(going) == "goes back to stable because ana said: users complain"
    loads = Waiting(why="spark-01 loads, about 60 s left", since=NOW, until=None)
    assert summary(going.model_copy(update={"waiting": loads})).endswith("users complain; spark-01 loads, about 60 s left")


def test_the_target_is_counted_from_one_and_known_before_the_receipts() -> None:
    view = view_of(state(), plan())
    assert view.target is not None
    assert (view.target.number, view.target.of, view.target.canary) == (1, 2, f"spark-01-r{ID[:8]}")
    early = view_of(state(facts={}), plan()).target
    assert early is not None
    assert (early.stable, early.of, early.canary) == ("spark-01", 2, None)


def test_an_ended_rollout_shows_no_share_any_more() -> None:
    view = view_of(rolled_back(), None)
    assert view.shares is None
    assert view.rung is None


def test_only_the_last_events_are_shown() -> None:
    view = view_of(state(), None, [event("fact", f"n{i}") for i in range(30)])
    assert [e.text for e in view.events] == [f"n{i}" for i in range(22, 30)]


def test_the_view_is_json_with_plain_words() -> None:
    raw = json.loads(view_of(holding(), plan(), [event("fact", "x")], Owner(name="ops:1", until=NOW)).model_dump_json())
    assert raw["phase"] == "holding"
    assert raw["step"] == {"name": "canary", "number": 4, "of": 6, "entered": "2026-03-01T02:14:00Z"}
    assert raw["exit_code"] == 12
    assert raw["hold"]["needs_person"] is True
    assert raw["owner"]["name"] == "ops:1"


def test_waiting_keeps_since_and_until() -> None:
    view = view_of(state(step=StepName.CLEANUP, waiting=Waiting(why="window", since=NOW, until=NOW + minutes(9))), None)
    assert view.waiting is not None
    assert (view.waiting.since, view.waiting.until) == (NOW, NOW + minutes(9))
