"""`init` writes a plan once, never over a person's work, and ends with 3 where the route cannot be rolled."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rollout.cli import wiring
from rollout.cli.app import main
from rollout.domain.world import World
from rollout.engine.service import Connected
from rollout.errors import Unreachable
from tests.unit.cli.fakes import FakeBackend
from tests.unit.report.samples import world

Captured = pytest.CaptureFixture[str]
LINE = ["init", "chat", "--server", "http://gpustack.lan", "--unit", "backend_image"]


def serve(monkeypatch: pytest.MonkeyPatch, seen: World, error: Unreachable | None = None) -> list[str]:
    closed: list[str] = []

    async def aclose() -> None:
        closed.append("closed")

    async def connect_to(*_: object) -> Connected:
        return Connected(FakeBackend(seen, error), None, aclose)  # type: ignore[arg-type]

    monkeypatch.setattr(wiring, "connect_to", connect_to)
    return closed


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that were written; no real one is."""
    files: dict[str, str] = {}
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in files)
    monkeypatch.setattr("rollout.cli.output.to_file", lambda path, text: files.update({str(path): text}))
    return files


def test_to_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    closed = serve(monkeypatch, world())
    assert main(LINE) == 0
    shown = capsys.readouterr().out
    assert "kind: RolloutPlan" in shown
    assert "to: {} # FILL IN" in shown
    assert closed == ["closed"]


def test_to_a_file_once(monkeypatch: pytest.MonkeyPatch, saved: dict[str, str], capsys: Captured) -> None:
    serve(monkeypatch, world())
    assert main([*LINE, "-o", "chat.yaml"]) == 0
    assert "rollout validate chat.yaml" in capsys.readouterr().out
    kept = saved["chat.yaml"]
    saved["chat.yaml"] = "a person's work"
    assert main([*LINE, "-o", "chat.yaml"]) == 2
    assert "is not overwritten" in capsys.readouterr().err
    assert saved["chat.yaml"] == "a person's work"
    assert main([*LINE, "-o", "chat.yaml", "--force"]) == 0
    assert saved["chat.yaml"].splitlines()[2:] == kept.splitlines()[2:]


def test_as_json(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, world())
    assert main([*LINE, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] is None
    assert told["problems"] == []
    assert 'route: {name: "chat"}' in told["plan"]


def test_a_route_that_cannot_be_rolled_ends_with_three(monkeypatch: pytest.MonkeyPatch, saved: dict[str, str], capsys: Captured) -> None:
    seen = world()
    assert seen.route is not None
    serve(monkeypatch, dataclasses.replace(seen, route=dataclasses.replace(seen.route, lb_mode="by-moon")))
    assert main([*LINE, "-o", "chat.yaml"]) == 3
    assert "cannot be rolled as it is: route `chat` balances by `by-moon`" in capsys.readouterr().err
    assert "THIS ROUTE CANNOT BE ROLLED" in saved["chat.yaml"]


def test_no_such_route_and_no_server(monkeypatch: pytest.MonkeyPatch, saved: dict[str, str], capsys: Captured) -> None:
    serve(monkeypatch, dataclasses.replace(world(), route=None))
    assert main([*LINE, "-o", "chat.yaml"]) == 3
    assert "does not exist" in capsys.readouterr().err
    serve(monkeypatch, world(), Unreachable("GET /v2/workers got no answer.", why="connection refused"))
    assert main(LINE) == 20
    assert saved == {}


def test_a_place_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, world())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    assert main([*LINE, "-o", "/nowhere/chat.yaml"]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_whatever_a_person_must_fill_in_is_said(monkeypatch: pytest.MonkeyPatch, saved: dict[str, str], capsys: Captured) -> None:
    """No worker is free, so the one for staging is a person's to name."""
    serve(monkeypatch, dataclasses.replace(world(), workers={}))
    main([*LINE, "-o", "chat.yaml"])
    assert "fill in `change.to` and what says FILL-IN, then" in capsys.readouterr().out
