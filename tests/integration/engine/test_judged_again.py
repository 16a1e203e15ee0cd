"""What a rollout's judge saw, written down and judged again: the same sentences as live, or what other margins would have said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.analysis.recording import read, written
from rollout.analysis.replay import judged
from rollout.cli.app import main
from rollout.cli.desk import event_of
from rollout.domain.state import Phase
from rollout.report.judge_picture import picture
from rollout.report.recorded import recorded
from tests.integration.engine.harness import Case


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The windows of a rollout that was completed, as `rollout windows` writes them."""
    home = tmp_path_factory.mktemp("again")
    case = Case(home)
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED
    attempts = recorded(state, map(event_of, case.store.journal(state.id)))
    file = home / "seen.jsonl"
    file.write_text("".join(f"{line}\n" for line in written(attempts)), "utf-8")
    return file


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_every_verdict_is_given_again_to_the_letter(recording: Path) -> None:
    attempts = read(recording.read_text("utf-8").split("\n"))
    said = [one for attempt in attempts for one in judged(attempt)]
    assert len(said) > 5
    assert all(one.worded_as_said for one in said)


def test_the_command_says_so_and_ends_as_the_verdict_does(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "judge", "--windows", str(recording))
    assert code == 0
    assert "verdicts are as they were given live\n" in out
    assert "95 % sure: TTFT " in out
    code, out, _ = ran(capsys, "judge", "--windows", str(recording), "--json", "--each")
    found: list[dict[str, Any]] = json.loads(out)
    assert found[0]["as_live"]["told"] == found[0]["as_live"]["same"] == len(found[0]["looks"]) > 5


def test_the_words_of_another_release_are_no_other_verdict(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "old.jsonl"
    header, *rows = map(json.loads, recording.read_text("utf-8").splitlines())
    for row in rows:
        row["verdict"]["sentence"] = "what was said then"
    old.write_text("".join(f"{json.dumps(row)}\n" for row in (header, *rows)), "utf-8")
    _, out, _ = ran(capsys, "judge", "--windows", str(old))
    assert f"{len(rows)} of {len(rows)} verdicts are as they were given live, {len(rows)} in other words" in out
    assert "judged otherwise" not in out


def test_other_margins_give_other_verdicts(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "judge", "--windows", str(recording), "--set", "unacceptable_errors=0.0001")
    assert code == 12
    assert "was judged otherwise live" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--set", "ttft.toleratd=0.1"), 2, "did you mean `ttft.tolerated`?"),
        (("--set", "alpha=2"), 2, "alpha and beta must lie between 0 and 1"),
        (("--svg", "/nowhere/at/all.svg"), 2, "cannot be written"),
        (("--fit",), 3, "the noise cannot be fitted"),
    ],
)
def test_what_cannot_be_done_is_told(
    recording: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, told: str
) -> None:
    ended, _, err = ran(capsys, "judge", "--windows", str(recording), *words)
    assert ended == code
    assert told in err
    assert "Traceback" not in err


def test_a_broken_line_is_named_with_its_file_and_number(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = recording.read_text("utf-8").split("\n")
    row = json.loads(lines[2])
    del row["canary"]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines[:2], json.dumps(row), *lines[3:]]), "utf-8")
    code, _, err = ran(capsys, "judge", "--windows", str(broken))
    assert code == 3
    assert "broken.jsonl:3: `canary` is missing" in err


def test_the_picture_shows_both_lines_and_both_sides(recording: Path) -> None:
    attempt = read(recording.read_text("utf-8").split("\n"))[-1]
    drawn = picture(attempt, attempt.config, judged(attempt))
    assert drawn.count("<polyline") == 2
    assert "roll back, 100 to 1" in drawn
    assert "stable:" in drawn
    assert "canary:" in drawn
    assert "<script" not in drawn


def test_a_file_that_an_editor_marked_is_read_and_one_cut_in_its_first_line_has_no_lines_before(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marked, cut = tmp_path / "marked.jsonl", tmp_path / "cut.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + recording.read_bytes())
    assert ran(capsys, "judge", "--windows", str(marked))[0] == 0
    cut.write_bytes(recording.read_bytes()[:300])
    code, _, err = ran(capsys, "judge", "--windows", str(cut))
    assert code == 3
    assert "head -n" not in err


def test_the_keys_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "judge", "--set", "help")
    assert code == 0
    assert "ttft.tolerated" in out.splitlines()


def test_a_picture_that_cannot_be_written_leaves_the_old_one(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old.svg"
    old.write_text("old")

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert main(["judge", "--windows", str(recording), "--svg", str(old)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["old.svg"]
    assert old.read_text() == "old"
