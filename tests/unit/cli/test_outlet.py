"""A reader that went away ends a command quietly; an output that cannot be written is said, and is no fault of ours."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from rollout.cli.app import main
from tests.unit.cli.fakes import FakeDesk
from tests.unit.report.samples import ID, event, state

Captured = pytest.CaptureFixture[str]


class Sick(io.StringIO):
    """Fails when it is written to, or when what it kept is flushed."""

    def __init__(self, number: int, *, late: bool = False) -> None:
        super().__init__()
        self.number, self.late = number, late

    def write(self, text: str) -> int:
        if not self.late:
            raise OSError(self.number, "sick")
        return super().write(text)

    def flush(self) -> None:
        if self.late:
            raise OSError(self.number, "sick")


@pytest.fixture
def told(desk: FakeDesk) -> FakeDesk:
    desk.put(state())
    desk.store.entries = [event("fact", f"entry {n}") for n in range(5)]
    return desk


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("line", [["journal", ID, "--json"], ["status", ID], ["list"], ["--help"], ["schema"]])
def test_a_closed_pipe_ends_quietly(told: FakeDesk, line: list[str], late: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdout", Sick(errno.EPIPE, late=late))
    assert main(line) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("line", [["journal", ID, "--json"], ["status", ID], ["list"]])
def test_a_full_disk_is_said(told: FakeDesk, line: list[str], late: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdout", Sick(errno.ENOSPC, late=late))
    assert main(line) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: the output could not be written\n  why:  sick\n")
    assert "fault in rollout" not in shown
