"""status, list, journal, wait, watch: they read the store, never tick, and speak JSON."""

from __future__ import annotations

import json

import pytest

from rollout.cli.app import main
from rollout.domain.state import Phase, StepName
from tests.unit.cli.fakes import OTHER, FakeDesk
from tests.unit.report.samples import ID, NOW, event, halted, holding, minutes, plan, rolled_back, state

Captured = pytest.CaptureFixture[str]


def test_status_shows_the_screen_and_ends_with_zero(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(holding(), plan=plan().model_dump(mode="json", by_alias=True))
    assert main(["status", ID]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("HOLDING")
    assert shown.err == ""
    assert desk.service.ran == 0


@pytest.mark.parametrize(("where", "code"), [(holding(), 12), (holding("drift"), 11), (halted(), 13), (rolled_back(), 10), (state(), 0)])
def test_status_can_end_with_the_rollouts_own_code(desk: FakeDesk, where: object, code: int, capsys: Captured) -> None:
    desk.put(where)  # type: ignore[arg-type]
    assert main(["status", ID[:4], "--exit-code", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["id"] == ID


def test_status_names_the_owner_only_while_its_lease_lasts(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(), owner=OTHER, lease_until=NOW + minutes(1))
    main(["status", ID, "--json"])
    assert json.loads(capsys.readouterr().out)["owner"]["name"] == "elsewhere:4711"
    desk.put(state(), owner=OTHER, lease_until=NOW - minutes(1))
    main(["status", ID, "--json"])
    assert json.loads(capsys.readouterr().out)["owner"] is None


def test_an_unknown_rollout_ends_with_two(desk: FakeDesk, capsys: Captured) -> None:
    assert main(["status", "nope"]) == 2
    assert "`rollout list`" in capsys.readouterr().err


def test_list_has_a_line_each_and_json_is_a_list(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(), rolled_back().model_copy(update={"id": "aaaa"}))
    assert main(["list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["list", "--active", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [ID]


def test_an_empty_list_is_an_empty_result(desk: FakeDesk, capsys: Captured) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_journal_is_printed_in_order_and_verified(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.store.entries = [event("created", "plan chat"), event("intent", "join", effect={"verb": "join"})]
    assert main(["journal", ID]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]
    assert main(["journal", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["data"] == {"effect": {"verb": "join"}}
    assert main(["journal", ID, "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": ID, "entries": 2, "unbroken": True}


def test_a_broken_chain_ends_with_one_and_names_the_row(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.store.broken = True
    assert main(["journal", ID, "--verify"]) == 1
    assert "row 2" in capsys.readouterr().err


def test_wait_ends_with_zero_when_it_is_there(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.clock.then = [
        lambda: desk.store.put(state(step=StepName.SHIFT)),
        lambda: desk.store.put(state(step=StepName.CLEANUP, phase=Phase.PROMOTED)),
    ]
    assert main(["wait", ID, "--until", "promoted", "--timeout", "1m"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("promoted")
    assert "running: step shift" in shown.err


def test_wait_ends_with_fourteen_when_time_is_up(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(holding())
    assert main(["wait", ID, "--until", "promoted", "--timeout", "3s", "--json"]) == 14
    assert json.loads(capsys.readouterr().out)["phase"] == "holding"
    assert desk.clock.slept == pytest.approx(3.0)


@pytest.mark.parametrize(("where", "code"), [(rolled_back(), 10), (halted(), 13)])
def test_wait_ends_at_once_when_it_ended_or_halted_elsewhere(desk: FakeDesk, where: object, code: int) -> None:
    desk.put(where)  # type: ignore[arg-type]
    assert main(["wait", ID, "--until", "promoted"]) == code


def test_waiting_for_a_rollback_that_never_came_is_no_success(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(phase=Phase.COMPLETED, step=StepName.CLEANUP, ended=NOW, exit_code=0))
    assert main(["wait", ID, "--until", "rolled_back"]) == 14
    shown = capsys.readouterr()
    assert "`rolled_back` was not reached and cannot be any more: it ended completed" in shown.err
    assert shown.out.startswith("completed")
    assert main(["run", ID, "--until", "rolled_back"]) == 14
    assert main(["wait", ID, "--until", "promoted"]) == 0


def test_status_shows_a_word_that_nobody_has_taken_up(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.store.unheard = ("abort",)
    assert main(["status", ID]) == 0
    assert "abort by ana" in capsys.readouterr().out
    main(["status", ID, "--json"])
    assert json.loads(capsys.readouterr().out)["pending"][0]["verb"] == "abort"


def test_watch_as_json_is_a_line_an_entry_and_the_status_at_last(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(rolled_back())
    desk.store.entries = [event("step", "declared", step="stage"), event("fact", "share proved")]
    assert main(["watch", ID, "--json"]) == 10
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("step") for line in lines[:2]] == ["stage", "stage"]
    assert (lines[0]["seq"], lines[0]["word"], lines[1]["text"]) == (1, "enters", "share proved")
    assert (lines[2]["id"], lines[2]["exit_code"]) == (ID, 10)


def test_under_no_color_not_one_escape_code_is_sent(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    desk.put(halted())
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["status", ID])
    assert "\x1b" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["status", ID])
    assert "\x1b" not in capsys.readouterr().out


def test_waiting_for_a_rollback_that_came_is_a_success(desk: FakeDesk) -> None:
    desk.put(rolled_back())
    assert main(["wait", ID, "--until", "rolled_back"]) == 0


def test_a_piped_watch_prints_each_entry_once_and_ends_with_the_rollout(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.store.entries = [event("step", "declared", step="stage")]

    def later() -> None:
        desk.store.entries.append(event("phase", "everything is as it was found", phase="rolled_back"))
        desk.store.put(rolled_back())

    desk.clock.then = [later]
    assert main(["watch", ID]) == 10
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].split()[1:3] == ["stage", "enters"]
    assert lines[2].startswith("rolled_back")
