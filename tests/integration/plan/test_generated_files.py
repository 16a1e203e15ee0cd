"""Committed files that are made from the model are fresh: the schema and the reference page."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout.plan import output, render, schema

ROOT = Path(__file__).parents[3]


def test_the_committed_schema_is_fresh() -> None:
    assert (ROOT / schema.FILE).read_text("utf-8") == schema.schema_text(), "run `python -m rollout.plan.schema`"


def test_the_committed_reference_page_is_fresh() -> None:
    assert (ROOT / render.FILE).read_text("utf-8") == render.page(), "run `python -m rollout.plan.render`"


def test_check_writes_nothing_and_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "made" / "it.json"
    assert output.keep("a\n", file, ["--check"], "m") == 1
    assert not file.exists()
    assert "run `python -m m`" in capsys.readouterr().err
    assert output.keep("a\n", file, [], "m") == 0
    assert output.keep("a\n", file, ["--check"], "m") == 0
    assert output.keep("b\n", Path("elsewhere"), ["--check", str(file)], "m") == 1
    assert file.read_text() == "a\n"


@pytest.mark.parametrize("arguments", [["--chek"], ["a", "b"]])
def test_wrong_arguments_are_usage(arguments: list[str]) -> None:
    assert output.keep("a\n", Path("never"), arguments, "m") == 2
