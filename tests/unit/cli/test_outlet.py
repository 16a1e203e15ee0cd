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


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
@pytest.mark.parametrize(("line", "code"), [(["status", "zz"], 2), (["validate", "absent.yaml"], 3), (["no-such-verb"], 2), ([], 2)])
def test_an_error_that_nobody_hears_keeps_its_code(
    told: FakeDesk, line: list[str], code: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Sick(number))
    assert main(line) == code


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
@pytest.mark.parametrize("line", [["status", ID], ["list"], ["journal", ID], ["--help"], ["status", "zz"]])
def test_a_sign_that_a_terminal_does_not_have_ends_no_command(
    told: FakeDesk, line: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(line) == (2 if "zz" in line else 0)


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(("line", "code"), [(["list"], 0), (["status", ID], 0), (["status", "zz"], 2), (["--help"], 0)])
def test_a_stream_that_was_closed_before_is_none(
    told: FakeDesk, line: list[str], code: int, name: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, name, None)
    assert main(line) == code
    getattr(sys, name).close()
    assert "error" not in capsys.readouterr().out


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("line", [["journal", ID, "--json"], ["status", ID], ["list"]])
def test_a_full_disk_is_said(told: FakeDesk, line: list[str], late: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdout", Sick(errno.ENOSPC, late=late))
    assert main(line) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: the output could not be written\n  why:  sick\n")
    assert "fault in rollout" not in shown
