"""Help is complete, alike, and cheap: a verb is imported only when it is used."""

from __future__ import annotations

import inspect

import pytest
import typer

from rollout.cli.app import app, main
from rollout.cli.lazy import load
from rollout.cli.verbs import VERBS
from rollout.errors import EXIT_MEANING

REASONED = ("approve", "pause", "resume", "promote", "abort", "retry", "takeover", "stable-only")


def help_of(name: str) -> str:
    command = load(name)
    with typer.main.get_command(app).make_context("rollout", [name]) as root:
        return str(command.get_help(command.context_class(command, info_name=name, parent=root)))


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_examples_that_use_it_and_exit_codes(name: str) -> None:
    text = help_of(name)
    assert f"rollout {name}" in text.split("Examples:")[1].split("Exit codes:")[0]
    codes = text.split("Exit codes:")[1]
    assert EXIT_MEANING[next(iter(EXIT_MEANING))][:8] in codes


@pytest.mark.parametrize("name", VERBS)
def test_the_summary_in_the_table_is_the_first_line_of_the_help(name: str) -> None:
    said = inspect.cleandoc(load(name).help or "").splitlines()[0]
    assert said == VERBS[name].summary


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    assert all(param.help for param in load(name).params)


@pytest.mark.parametrize("name", REASONED)
def test_a_verb_that_changes_what_happens_needs_a_reason(name: str) -> None:
    assert next(p for p in load(name).params if p.name == "reason").required


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_speaks_json(name: str) -> None:
    assert any("--json" in p.opts for p in load(name).params)


def test_root_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rollout ")
