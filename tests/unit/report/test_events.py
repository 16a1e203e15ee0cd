"""Journal entries become words; what only repeats is not told twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rollout.domain.state import Event
from rollout.report.events import event_view, obvious, repeats, routine, told
from tests.unit.report.samples import event

WINDOW: dict[str, dict[str, object]] = {"0.judge": {}, "0.seen": {}, "0.base": {}}


@pytest.mark.parametrize(
    ("kind", "data", "word"),
    [
        ("phase", {"phase": "rolling_back"}, "rolling back"),
        ("command", {"said": {"verb": "pause"}}, "pause"),
        ("hold", {"hold": None}, "goes on"),
        ("hold", {"hold": {"reason": "drift"}}, "holds"),
        ("intent", {}, "does"),
        ("outcome", {"result": "not applied"}, "not applied"),
        ("outcome", {}, "done"),
        ("strange", {}, "strange"),
    ],
)
def test_journal_entries_become_words(kind: str, data: dict[str, object], word: str) -> None:
    assert event_view(event(kind, "text", **data)).word == word


def test_a_result_is_said_once() -> None:
    shown = event_view(event("outcome", "refused: create spark-01-r", result="refused"))
    assert (shown.word, shown.text) == ("refused", "create spark-01-r")


def test_a_phase_that_says_only_its_name_has_no_sentence() -> None:
    assert event_view(event("phase", "running", phase="running")).text == ""


@pytest.mark.parametrize(
    ("entry", "is_routine"),
    [
        (event("fact", "window 3: canary 5 requests", facts=WINDOW), True),
        (event("fact", "10 paired probes used", facts={**WINDOW, "0.pairs": None}), True),
        (event("fact", "3 requests in flight", facts={"0.drain": {"began": "t", "mark": {"requests": 1}}}), True),
        (event("fact", "in flight 0", facts={"0.drain": {"began": "t", "mark": None, "done": "t"}}), False),
        (event("fact", "a batch says nothing", facts={"0.seen": {}, "0.base": {}, "0.pairs": None}), True),
        (event("intent", "paired probes 1 to 10 of 120", effect={"verb": "probe_pairs"}), True),
        (event("outcome", "done: paired probes 1 to 10", verb="probe_pairs", result="done"), True),
        (event("outcome", "no result: paired probes", verb="probe_pairs", result="no result"), False),
        (event("fact", "watching rung 10 %", facts={"0.seen": {}, "0.base": {}}), False),
        (event("fact", "judging begins", facts={"0.judge": {}}), False),
        (event("intent", "join"), False),
    ],
)
def test_windows_and_looks_at_a_drain_are_routine(entry: Event, is_routine: bool) -> None:
    assert routine(entry) is is_routine


def test_a_hold_is_not_told_after_the_phase_that_said_the_same() -> None:
    phase, hold = event("phase", "no verdict", phase="holding"), event("hold", "no verdict", hold={"reason": "inconclusive"})
    assert repeats(hold, phase)
    assert not repeats(hold, None)
    assert not repeats(event("hold", "drift", hold={}), phase)
    assert [e.word for e in told([event("fact", "w", facts=WINDOW), phase, hold])] == ["holding"]


def test_an_effect_done_at_once_is_told_by_its_intent() -> None:
    intent, done = event("intent", "join"), event("outcome", "done: join", result="done")
    assert obvious(done, intent)
    assert not obvious(done, None)
    assert not obvious(event("outcome", "refused: join", result="refused"), intent)
    assert not obvious(done.model_copy(update={"at": done.at + timedelta(seconds=9)}), intent)
