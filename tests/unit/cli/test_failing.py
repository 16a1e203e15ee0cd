"""Every failure is three lines and an exit code; a secret is in none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout import errors
from rollout.cli import failing, secrets
from rollout.cli.app import main
from rollout.errors import NotFound, PlanError, PreflightError, RolloutError
from rollout.plan.model import SecretRef

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, RolloutError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_says_what_why_and_what_next(kind: type[RolloutError]) -> None:
    what, why, following = failing.parts(kind())
    assert what
    assert why
    assert following
    assert len({what, why, following}) == 3


def test_three_lines_and_the_errors_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing.explain(NotFound("no rollout 'x'", why="this store knows none")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line[:8] for line in lines] == ["error: n", "  why:  ", "  next: "]


def test_findings_stand_between_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    error = PlanError("the plan has 2 findings")
    error.findings = ("p.yaml:3:1: a", "p.yaml:9:2: b")
    assert failing.explain(error) == 3
    assert capsys.readouterr().err.splitlines()[1:3] == ["  - p.yaml:3:1: a", "  - p.yaml:9:2: b"]


def test_the_cause_is_the_why_when_none_was_given() -> None:
    error = RolloutError("it failed")
    error.__cause__ = OSError("disk full")
    assert failing.parts(error)[1] == "OSError: disk full"


def test_what_was_not_foreseen_is_logged_and_never_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []

    def keep(error: BaseException, _path: Path) -> str:
        logged.append(str(error))
        return "/log"

    monkeypatch.setattr(failing, "_log", keep)
    assert failing.explain(ZeroDivisionError("division by zero")) == 1
    shown = capsys.readouterr().err
    assert logged == ["division by zero"]
    assert "Traceback" not in shown
    assert "/log" in shown


def test_debug_shows_the_traceback_without_secrets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_DEBUG", "1")
    monkeypatch.setattr(failing, "_log", lambda *_: "/log")
    secrets.resolve(SecretRef(env="K"), "k", env={"K": "sesame-open-4711"})
    failing.explain(ValueError("bad header Bearer sesame-open-4711"))
    shown = capsys.readouterr().err
    assert "ValueError" in shown
    assert "sesame" not in shown


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ([], "Usage: rollout"),
        (["frobnicate"], "no such verb 'frobnicate'"),
        (["staus"], "Did you mean 'status'"),
        (["status"], "'ID'"),
        (["status", "x", "--jsn"], "--jsn"),
        (["pause", "x"], "'--reason'"),
        (["demo", "--bad", "everything"], "--bad"),
        (["list", "--limit", "0"], "--limit"),
        (["tick"], "needs an ID or --all"),
        (["tick", "x", "--all"], "needs an ID or --all"),
        (["rollback", "--reason", "r"], "needs an ID, or --route with --server"),
        (["run", "x.yaml", "--until", "tomorrow"], "no phase and no step"),
        (["run", "x.yaml", "--patience", "10"], "--patience 10"),
        (["wait", "x", "--until", "promoted", "--timeout", "soon"], "--timeout soon"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_what_next(line: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    shown = capsys.readouterr()
    assert part in shown.err
    assert shown.out == ""
    assert not line or "  next: " in shown.err


@pytest.mark.parametrize(("ref", "env", "why"), [("KEY", {}, "KEY is not set"), ("KEY", {"KEY": " "}, "KEY is empty")])
def test_a_missing_variable_is_named_with_its_remedy(ref: str, env: dict[str, str], why: str) -> None:
    with pytest.raises(PreflightError) as caught:
        secrets.resolve(SecretRef(env=ref), "gpustack.management_key", env=env)
    assert "gpustack.management_key" in caught.value.message
    assert why in caught.value.why
    assert "export KEY=" in caught.value.hint


def test_the_first_line_of_a_file_is_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("key-1\nrest\n")
    assert secrets.resolve(SecretRef(file="~/key"), "k").reveal() == "key-1"
    (tmp_path / "key").write_text("\nkey-1\n")
    with pytest.raises(PreflightError, match="cannot be read"):
        secrets.resolve(SecretRef(file="~/key"), "k")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(PreflightError) as caught:
        secrets.resolve(SecretRef(file="/keys/m"), "gpustack.inference_key")
    assert "/keys/m" in caught.value.why
