"""A tired person must understand the screen, at 80 columns, without colour."""

from __future__ import annotations

import io
from datetime import UTC

import pytest
from rich.console import Console, RenderableType

from rollout.domain.effects import Effect
from rollout.domain.state import Hold, OpenIntent, Phase, RolloutState, Said, StepName, Waiting
from rollout.report.events import event_view
from rollout.report.text import screen, table, transition
from rollout.report.view import Owner, SaidView, view_of
from tests.unit.report.samples import ID, NOW, event, facts, halted, holding, minutes, rolled_back, state

OWNER = Owner(name="ops-1:4711", until=NOW + minutes(0.3))


def rendered(what: RenderableType, width: int, *, colour: bool = False) -> str:
    out = io.StringIO()
    system = "truecolor" if colour else None
    Console(file=out, width=width, force_terminal=colour, color_system=system, highlight=False).print(what)  # type: ignore[arg-type]
    return out.getvalue()


def shown(where: RolloutState, width: int = 80, owner: Owner | None = None) -> str:
    text = rendered(screen(view_of(where, None, [event("fact", "share proved by 84 own requests")], owner), NOW, UTC), width)
    return "\n".join(line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("where", [state(), holding(), halted(), rolled_back(), state(facts={}, waiting=None)], ids=lambda s: str(s.phase))
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(where: RolloutState, width: int) -> None:
    text = shown(where, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…\n" not in text.replace("'…'", "")


def test_the_first_line_is_the_phase_in_capitals_and_the_second_the_sentence() -> None:
    lines = shown(holding()).splitlines()
    assert lines[0] == f"HOLDING  chat-vllm-0-21  {ID}"
    assert lines[1] == "holds (inconclusive): no verdict within 7200 s"


def test_a_hold_shows_what_can_be_done_before_anything_else() -> None:
    lines = shown(holding("inconclusive", verbs=("approve --accept-inconclusive", "rollback"))).splitlines()
    assert lines[3] == "you can"
    assert lines[4].strip() == f"rollout approve {ID} --accept-inconclusive --reason '…'"


def test_it_says_what_is_waited_for_since_when_and_until_when() -> None:
    text = shown(state())
    assert "exposure 360 of 600 s, 12 of 20 requests" in text
    assert "since 02:14 (6 min ago), until 04:13 (in 1 h 53 min)" in text


def test_a_wait_that_is_only_the_next_look_has_no_deadline_on_the_screen() -> None:
    text = shown(state(waiting=Waiting(why="ready", since=NOW, until=NOW + minutes(1 / 60))))
    assert "looked at again every moment" in text
    assert "overdue" not in text


def test_asked_set_and_seen_stand_side_by_side() -> None:
    text = shown(state(), 120)
    assert "asked 10 %, set 9.9 % (weight 11 beside 100, 5.2 % of the whole route)" in text
    assert "seen 6.0 % of 84 requests: proved" in text


def test_the_verdict_says_mode_bounds_and_noise() -> None:
    text = " ".join(shown(state(), 200).split())
    assert "INCONCLUSIVE TTFT: 3 to 1" in text
    assert "evidence thin; 12 requests seen on this rung, 48 paired probes; α 0.01, β 0.05" in text
    assert "replica noise v 0.2, φ 0.8 (not guaranteed: one replica)" in text


def test_the_six_steps_are_marked_by_signs_and_not_by_colour() -> None:
    assert "4 of 6  ✓ declare  ✓ stage  ✓ attach  ▸ canary  · shift  · cleanup" in shown(state())
    assert "✓ cleanup" in shown(state(phase=Phase.COMPLETED, step=StepName.CLEANUP, ended=NOW, waiting=None))


def test_it_says_who_ticks_and_that_nobody_does() -> None:
    assert "ops-1:4711, lease until 02:20:18" in shown(state(), owner=OWNER)
    assert "nobody now" in shown(state())
    assert "nobody now" in shown(state(), owner=Owner(name="ops-1:4711", until=NOW - minutes(1)))
    assert "ticked by" not in shown(rolled_back())


def test_a_pause_and_an_undo_name_who_and_why() -> None:
    said = Said(verb="pause", actor="ana", reason="incident 12", at=NOW - minutes(3))
    assert "by ana 02:17 (3 min ago): incident 12" in " ".join(shown(state(paused=said), 120).split())
    assert "rollback by judge 02:19 (1 min ago): verdict: TTFT is worse" in " ".join(shown(rolled_back(), 120).split())


def test_without_colour_not_one_escape_is_written_and_with_colour_the_words_stay() -> None:
    view = view_of(halted(), None)
    plain = rendered(screen(view, NOW, UTC), 100)
    assert "\x1b" not in plain
    assert "HALTED" in plain
    assert "\x1b[" in rendered(screen(view, NOW, UTC), 100, colour=True)


def test_a_transition_is_time_step_word_reason() -> None:
    line = transition(event_view(event("step", "first rung held", step="shift")), "shift", UTC)
    assert line == "02:14:00  shift    enters        first rung held"


@pytest.mark.parametrize("width", [14, 30, 40, 60, 80, 100, 200])
def test_a_list_never_cuts_the_id_and_keeps_to_the_width(width: int) -> None:
    wide = state(name="chat-with-a-name-of-some-length", route="chat-for-everybody")
    lines = rendered(table([view_of(wide, None), view_of(rolled_back(), None)], NOW), width).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(ID) for line in lines[1:])
    assert max(len(line) for line in lines) <= width
    assert width < 60 or "rolled back" in lines[2]


def test_a_word_that_was_not_taken_up_and_a_server_that_does_not_answer_are_shown() -> None:
    effect = Effect(verb="join", args={}, why="spark-01-r joins weight 11")
    away = Waiting(why="server: GET /version got no answer.", since=NOW - minutes(1), until=NOW)
    where = state(intent=OpenIntent(number=1, effect=effect, at=NOW), waiting=away)
    said = SaidView(verb="abort", actor="ana", reason="wrong image", at=NOW - minutes(3))
    text = " ".join(rendered(screen(view_of(where, None, pending=[said]), NOW, UTC), 200).split())
    assert "said abort by ana 02:17 (3 min ago): wrong image (not yet taken up)" in text
    assert "step canary: spark-01-r joins weight 11; server: GET /version got no answer." in text
    held = holding().model_copy(update={"waiting": away})
    assert "waits server: GET /version got no answer.; since" in " ".join(rendered(screen(view_of(held, None), NOW, UTC), 200).split())


def test_halted_says_what_ends_it() -> None:
    text = " ".join(shown(halted(), 200).split())
    assert "nothing is written until stable serves again: bring it back; a rollback or abort said now waits for that too" in text
    assert "resume" not in text
    going = halted().model_copy(update={"undo": rolled_back().undo})
    assert "bring it back, then it goes on going back" in " ".join(shown(going, 200).split())


def test_the_list_has_one_line_each() -> None:
    text = rendered(table([view_of(state(), None), view_of(rolled_back(), None)], NOW), 120)
    assert len(text.strip().splitlines()) == 3
    assert "rolled back" in text
    assert "4/6 canary" in text


def window(**side: object) -> RolloutState:
    """Promoted two hours ago."""
    opened = {"at": (NOW - minutes(120)).isoformat(), "duration": 86400.0, "live": None, "base": {}, "kept": {}}
    can = {"word": "by_loading", "cause": "", "why": "", "seconds": 95.0, **side}
    known = facts(window=opened, restorable={"spark-01": can, "spark-02": {**can, "word": "at_once"}})
    return state(phase=Phase.PROMOTED, step=StepName.CLEANUP, facts=known)


def test_the_window_says_until_when_and_what_a_rollback_would_take() -> None:
    text = shown(window())
    assert "window    open until Mon 02 Mar 00:20 (in 22 h)" in text
    assert "spark-01: restorable by loading, about 95 s" in text
    assert "spark-02: restorable at once" in text
    assert f"rollout extend-window {ID} --by 12h --reason '…'" in text


def test_a_lost_way_back_is_said_and_json_has_it() -> None:
    lost = window(word="not", cause="files", why="the files of spark-01 are gone: /m on n1", seconds=None)
    assert "spark-01: NOT restorable: the files of spark-01 are gone: /m on n1" in shown(lost)
    seen = view_of(lost, None).model_dump(mode="json")["window"]
    assert [(s["deployment"], s["word"]) for s in seen["sides"]] == [("spark-01", "not"), ("spark-02", "at_once")]
    assert view_of(state(), None).window is None


def test_on_the_way_back_no_earlier_look_contradicts_what_the_way_back_finds() -> None:
    gone = "the files of spark-01 are gone: /m on n1"
    held = Hold(reason="rollback_impossible", detail=gone, since=NOW)
    back = Said(verb="rollback", actor="ana", reason="x", at=NOW)
    text = shown(window().model_copy(update={"phase": Phase.HOLDING, "undo": back, "hold": held}))
    assert gone in text
    assert "restorable by loading" not in text


def replayed(**known: object) -> RolloutState:
    first = {"used": 40, "of": 100, "stable": 38.0, "canary": 31.0, "errors": [0, 2], "lost": 9, "worst": [f"q{n}" for n in range(9)]}
    return state(facts=facts(**{"0.seen": {"rung": 0, "requests": 12, "pairs": 48, "replay": {**first, **known}}}))


def test_replayed_prompts_have_a_line_of_their_own() -> None:
    text = " ".join(shown(replayed()).split())
    assert "quality 40 of 100 prompts: stable 38 right, canary 31; 2 failed on the canary; the canary lost 9: q0, q1, " in text
    assert "q7, … " in text
    assert "q8" not in text
    assert "quality 0 of 100 prompts: none was replayed yet" in " ".join(shown(replayed(used=0)).split())
    assert "quality" not in shown(state())
    quality = view_of(replayed(), None).model_dump(mode="json")["verdict"]["quality"]
    assert (quality["lost"], quality["canary_errors"], len(quality["worst"])) == (9, 2, 9)
