"""One line per transition; what is waited for overwrites itself on a terminal and is rare in a log."""

from __future__ import annotations

import io
from datetime import timedelta

from rollout.cli.progress import Progress
from rollout.domain.state import Event, Waiting
from tests.unit.report.samples import NOW, event, state


def wait(text: str, seconds: float) -> tuple[Event, Waiting]:
    at = NOW + timedelta(seconds=seconds)
    return Event(kind="wait", at=at, actor="e", text=text), Waiting(why=text, since=at, until=None)


def test_a_transition_is_one_line_with_time_step_word_and_reason() -> None:
    out = io.StringIO()
    Progress(out, live=False)(event("intent", "spark-01-r joins weight 11"), state())
    assert out.getvalue().split(maxsplit=3)[1:] == ["canary", "does", "spark-01-r joins weight 11\n"]


def test_in_a_log_waiting_is_repeated_every_thirty_seconds_at_most() -> None:
    out = io.StringIO()
    progress = Progress(out, live=False)
    for seconds in range(0, 70, 5):
        told, waiting = wait(f"drain: {70 - seconds} in flight", seconds)
        progress(told, state(waiting=waiting))
    assert len(out.getvalue().splitlines()) == 3


def test_on_a_terminal_waiting_is_one_line_that_is_cleared_before_the_next_transition() -> None:
    out = io.StringIO()
    progress = Progress(out, live=True)
    for told, waiting in (wait("first", 0), wait("second", 1)):
        progress(told, state(waiting=waiting))
    assert "\n" not in out.getvalue()
    progress(event("step", "first rung held"), state())
    progress.end()
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().rsplit("\r", 1)[1].endswith("first rung held\n")


def test_an_effect_done_at_once_is_one_line_and_a_slow_or_failed_one_is_two() -> None:
    out = io.StringIO()
    progress = Progress(out, live=False)
    intent = event("intent", "create spark-01-r")
    done = event("outcome", "done: create spark-01-r", result="done")
    for entry in (intent, done, intent, done.model_copy(update={"at": done.at + timedelta(seconds=9)})):
        progress(entry, state())
    for entry in (intent, event("outcome", "refused: create spark-01-r", result="refused")):
        progress(entry, state())
    assert [line.split()[2] for line in out.getvalue().splitlines()] == ["does", "does", "done", "does", "refused"]


def test_measuring_windows_are_as_rare_as_waits_in_a_log() -> None:
    out = io.StringIO()
    progress = Progress(out, live=False)
    for number in range(10):
        entry = event("fact", f"window {number}", facts={"0.judge": {}, "0.seen": {}})
        progress(entry.model_copy(update={"at": NOW + timedelta(seconds=2 * number)}), state())
    assert len(out.getvalue().splitlines()) == 1
