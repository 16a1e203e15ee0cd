"""`plan` shows the forecast of the real decisions on the world as it is; `validate`, `schema` and `demo` end as they should."""

from __future__ import annotations

import dataclasses
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rollout.cli import wiring
from rollout.cli.app import main
from rollout.domain.world import World
from rollout.engine.service import Connected
from rollout.errors import PlanError, RolloutError, Unreachable
from rollout.plan.finding import Finding
from rollout.plan.load import LoadedPlan
from tests.unit.cli.fakes import FakeBackend, FakeDesk, FakeMeasurer
from tests.unit.report.samples import plan, world

Captured = pytest.CaptureFixture[str]
Key = dict[str, Any] | RolloutError | None


def serve(monkeypatch: pytest.MonkeyPatch, seen: World, error: RolloutError | None = None, key: Key = None) -> list[str]:
    """`plan.yaml` is the sample plan and the server shows `seen`; the list has one entry for each closed connection."""
    closed: list[str] = []

    async def aclose() -> None:
        closed.append("closed")

    async def connect(*_: object) -> Connected:
        return Connected(FakeBackend(seen, error), FakeMeasurer(key), aclose)

    monkeypatch.setattr("rollout.plan.load.load_plan", lambda path: LoadedPlan(plan(), "text", path, "digest"))
    monkeypatch.setattr(wiring, "connect", connect)
    return closed


def test_plan_ends_with_zero_when_a_run_would_start(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    closed = serve(monkeypatch, world())
    assert main(["plan", "plan.yaml", "--json"]) == 0
    raw = json.loads(capsys.readouterr().out)
    assert raw["refusals"] == []
    assert [p["stable"] for p in raw["pairs"]] == ["spark-01", "spark-02"]
    assert raw["pairs"][0]["changes"] == [{"field": "image_name", "stable": None, "canary": "vllm/vllm-openai:v0.21.0", "kind": "unit"}]
    assert raw["evidence"]["mode"] == "sparse"
    assert closed == ["closed"]


def test_plan_shows_every_finding_and_ends_with_three(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, dataclasses.replace(world(), route=None, workers={}))
    assert main(["plan", "plan.yaml"]) == 3
    shown = capsys.readouterr().out
    assert "REFUSED" in shown
    assert "route `chat` does not exist" in shown
    assert "worker `staging` is not known" in shown


def test_plan_of_a_taken_route_ends_with_thirty(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    found = world()
    assert found.route is not None
    taken = dataclasses.replace(found.route, meta={"rollout": {"id": "beef", "nonce": "n", "store": "s", "expires": "2026"}})
    serve(monkeypatch, dataclasses.replace(found, route=taken))
    assert main(["plan", "plan.yaml"]) == 30
    assert "taken by rollout beef" in " ".join(capsys.readouterr().out.split())


def test_plan_of_an_unreachable_server_closes_what_it_opened(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    closed = serve(monkeypatch, world(), Unreachable("GET /version got no answer.", why="connection refused"))
    assert main(["plan", "plan.yaml"]) == 20
    assert closed == ["closed"]
    assert "connection refused" in capsys.readouterr().err


def test_a_key_that_is_refused_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, world(), key={"status": 401, "listed": None, "error": "GET /v1/models was refused (401)."})
    assert main(["plan", "plan.yaml"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "the inference key is not accepted at http://gpustack.lan (GET /v1/models was refused (401).)" in shown
    assert "`gpustack.inference_key`" in shown


def test_a_route_that_the_key_does_not_see_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, world(), key={"status": 200, "listed": False, "error": ""})
    assert main(["plan", "plan.yaml"]) == 3
    assert "route `chat` is not visible to the inference key" in " ".join(capsys.readouterr().out.split())


def test_an_inference_url_that_keeps_no_list_is_no_objection(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, world(), key={"status": 404, "listed": None, "error": "GET /v1/models was refused (404)."})
    assert main(["plan", "plan.yaml"]) == 0


def test_an_inference_url_that_does_not_answer_ends_with_twenty(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    closed = serve(monkeypatch, world(), key=Unreachable("GET /v1/models got no answer.", why="connection refused"))
    assert main(["plan", "plan.yaml"]) == 20
    assert closed == ["closed"]
    assert "GET /v1/models" in capsys.readouterr().err


def test_validate_says_what_the_plan_changes(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    serve(monkeypatch, world())
    assert main(["validate", "plan.yaml"]) == 0
    assert capsys.readouterr().out == "plan.yaml: valid; changes backend_image of 2 targets on route chat\n"


def test_validate_gives_findings_as_json_and_ends_with_three(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def refuse(path: str) -> LoadedPlan:
        error = PlanError("plan.yaml has 1 finding")
        error.findings = (Finding(path, 3, 5, "change.unit", "a unit", "`uint`", "did you mean `unit`?"),)
        raise error

    monkeypatch.setattr("rollout.plan.load.load_plan", refuse)
    assert main(["validate", "plan.yaml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["findings"][0]["line"], found["findings"][0]["key"]) == (False, 3, "change.unit")
    assert main(["validate", "plan.yaml"]) == 3
    assert "plan.yaml:3:5: change.unit: expected a unit" in capsys.readouterr().err


def test_schema_is_a_json_schema(capsys: Captured) -> None:
    assert main(["schema"]) == 0
    assert "$schema" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "ends", "code"),
    [
        ([], (1, 1, 0, 0), 0),
        (["--bad", "none"], (2, 0, 0, 0), 0),
        (["--bad", "none"], (1, 1, 0, 0), 1),
        ([], (2, 0, 0, 0), 1),
        ([], (1, 1, 1, 0), 1),
        (["--sabotage", "kill-stable"], (1, 1, 0, 3), 1),
    ],
)
def test_the_demo_fails_when_anybody_was_harmed_or_it_ended_otherwise(
    line: list[str], ends: tuple[int, int, int, int], code: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked: list[object] = []

    def run_demo(bad: str, sabotage: str | None, report: object, on_event: object) -> object:
        asked.extend([bad, sabotage])
        return SimpleNamespace(completed=ends[0], rolled_back=ends[1], failed_requests=ends[2], cut_streams=ends[3])

    fake = ModuleType("rollout.testing.demo")
    fake.run_demo = run_demo  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rollout.testing.demo", fake)
    assert main(["demo", *line]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "demo: completed={} rolled_back={} failed_requests={} cut_streams={}".format(*ends)
    assert asked == ["none" if "none" in line else "ttft", "kill-stable" if "--sabotage" in line else None]


def test_the_demo_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "rollout.testing.demo", None)
    assert main(["demo"]) == 1
    assert "rollout[sandbox]" in capsys.readouterr().err


def test_a_route_is_rolled_back_with_the_keys_that_were_named(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    at = wiring.gpustack_at("http://gpustack.lan", None, "env:MKEY", "file:/keys/i")
    assert (at.management_key.env, at.inference_key.file) == ("MKEY", "/keys/i")
    with pytest.raises(RolloutError, match="server cannot be used"):
        wiring.gpustack_at("gpustack.lan", None, "env:MKEY", "env:IKEY")
