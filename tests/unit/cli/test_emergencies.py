"""adopt, takeover, stable-only and rollback --print: what is asked of the engine, what is printed, how each ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout.cli import wiring
from rollout.cli.app import main
from rollout.domain.byhand import INFERENCE, ByHand, WayBack
from rollout.domain.state import Phase, StepName
from rollout.errors import NotFound, PreflightError, RollbackImpossible, RolloutError, StableLost
from rollout.plan.load import LoadedPlan
from tests.unit.cli.fakes import FakeDesk
from tests.unit.report.samples import ID, NOW, facts, holding, plan, state

Captured = pytest.CaptureFixture[str]
PROMOTED = state(step=StepName.CLEANUP, phase=Phase.PROMOTED)
SERVER = ["--server", "http://gpustack.lan"]
BEFORE = {
    "route": 4,
    "former": "9a9a",
    "targets": [
        {"id": 11, "model_id": 1, "deployment": "spark-01", "weight": 100, "extra": {"max_running_requests": 64}},
        {"id": 12, "model_id": 2, "deployment": "canary", "weight": 25, "extra": {}},
    ],
}
ONLY = {
    "only": {"stable": ["spark-01"]},
    "before": BEFORE,
    "claimed": {"at": NOW.isoformat()},
    "left.canary": {"at": NOW.isoformat()},
    "rest": ["canary"],
}
WAY = WayBack(
    "9a9a",
    "chat",
    (
        ByHand("spark-01 joins", "PUT", "/v2/model-routes/4", {"name": "chat", "targets": []}),
        ByHand("it must answer", "POST", "/v1/chat/completions", {"model": "chat"}, key=INFERENCE, until='"model": ?"spark-01"'),
    ),
)


@pytest.fixture(autouse=True)
def plan_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.plan.load.load_plan", lambda path: LoadedPlan(plan(), "text", path, "d"))


@pytest.mark.parametrize(
    "line", [["adopt", "plan.yaml", "--canary", "by-hand"], ["rollback", ID], ["rollback", "--route", "chat", *SERVER]]
)
def test_a_reason_is_needed_where_something_is_changed(desk: FakeDesk, line: list[str], capsys: Captured) -> None:
    desk.put(state())
    assert main(line) == 2
    assert "a reason is needed" in capsys.readouterr().err
    assert desk.service.said == []


@pytest.mark.parametrize("delete", [False, True])
def test_adopt_is_ticked_as_a_run(desk: FakeDesk, delete: bool, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [PROMOTED]
    flags = ["--delete-canary"] if delete else []
    assert main(["adopt", "plan.yaml", "--canary", "by-hand", "--reason", "begun on Friday", *flags]) == 0
    assert desk.service.said == [("by-hand", "adopt", "ana", "begun on Friday", {"delete": delete})]
    assert "adopts by-hand" in capsys.readouterr().err


def test_takeover_without_a_plan_ends_with_zero_once_the_route_is_ours(desk: FakeDesk, capsys: Captured) -> None:
    held = holding("taken_over", verbs=("rollback",))
    where = {**held.facts, "gpustack": {"server": "http://gpustack.lan"}}
    desk.put(state(plan_digest=""))
    desk.service.states = [held.model_copy(update={"plan_digest": "", "facts": where})]
    assert main(["takeover", "chat", *SERVER, "--reason", "owner gone"]) == 0
    assert desk.service.said == [("chat", "takeover", "ana", "owner gone", {"server": "http://gpustack.lan", "plan": False})]
    shown = capsys.readouterr()
    assert shown.out.startswith(f"holding  {ID}")
    assert f"rollout rollback {ID}" in shown.err


def test_takeover_with_a_plan_goes_on_as_run_does(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state())
    desk.service.states = [state(step=StepName.SHIFT), PROMOTED]
    assert main(["takeover", "chat", "--plan", "plan.yaml", "--reason", "owner gone", "--json"]) == 0
    assert desk.service.said[0][4] == {"server": "http://gpustack.lan", "plan": True}
    assert json.loads(capsys.readouterr().out)["phase"] == "promoted"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["takeover", "chat", "--reason", "r"], "`--server` is needed"),
        (["takeover", "other", "--plan", "plan.yaml", "--reason", "r"], "the plan is about route chat"),
        (["takeover", "chat", "--plan", "plan.yaml", "--server", "http://else", "--reason", "r"], "the plan is about http://gpustack.lan"),
        (["rollback", "--print"], "needs an ID, or --route"),
        (["rollback", ID, "--route", "chat", "--print"], "needs an ID, or --route"),
        (["stable-only", "chat", "--stable", "a", "--server", "gpustack.lan", "--reason", "r"], "the server cannot be used"),
        (["stable-only", "chat", "--stable", "a", *SERVER, "--management-key", "gpustack_0123456789", "--reason", "r"], "no reference"),
        (["init", "chat", *SERVER, "--unit", "image"], "is no change unit"),
    ],
)
def test_a_line_that_makes_no_sense_says_why_and_changes_nothing(desk: FakeDesk, line: list[str], said: str, capsys: Captured) -> None:
    desk.put(state())
    assert main(line) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "gpustack_0123456789" not in shown
    assert desk.service.said == []


@pytest.mark.parametrize(("error", "code"), [(NotFound("free"), 2), (PreflightError("other plan"), 3)])
def test_a_takeover_that_cannot_be_ends_with_its_code(
    desk: FakeDesk, error: RolloutError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(desk.service, "takeover", refuse)
    assert main(["takeover", "chat", *SERVER, "--reason", "r"]) == code


def test_under_ci_a_takeover_needs_a_store_that_lasts(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("CI", "true")
    assert main(["takeover", "chat", *SERVER, "--reason", "r"]) == 2
    assert "--store" in capsys.readouterr().err


def test_stable_only_prints_what_was_there_and_how_to_put_it_back(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(facts={"only": ONLY["only"]}, plan_digest=""))
    desk.service.states = [state(phase=Phase.COMPLETED, exit_code=0, ended=NOW, waiting=None, facts=ONLY, plan_digest="")]
    assert main(["stable-only", "chat", "--stable", "spark-01", "--stable", "spark-01", *SERVER, "--reason", "users suffer"]) == 0
    assert desk.service.said[0][4]["stable"] == ["spark-01"]
    shown = capsys.readouterr().out
    assert shown.startswith(f"completed  {ID}  done: only spark-01 serves the route; left over: canary")
    assert "spark-01  weight 100  {'max_running_requests': 64}" in shown
    assert "canary  weight 25" in shown
    assert "curl -fsS" in shown
    assert '{"id": 11, "model_id": 1, "weight": 100, "max_running_requests": 64}, {"model_id": 2, "weight": 25}' in shown


def test_stable_only_as_json(desk: FakeDesk, capsys: Captured) -> None:
    desk.put(state(facts={"only": ONLY["only"]}, plan_digest=""))
    desk.service.states = [state(phase=Phase.COMPLETED, exit_code=0, ended=NOW, waiting=None, facts=ONLY, plan_digest="")]
    assert main(["stable-only", "chat", "--stable", "spark-01", *SERVER, "--reason", "r", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["before"]["targets"] == BEFORE["targets"]
    assert told["before"]["rollout"] == "9a9a"
    assert told["before"]["rest"] == ["canary"]
    assert "retry" not in told["verbs"]


def test_stable_only_that_changed_nothing_says_why_and_ends_with_thirteen(desk: FakeDesk, capsys: Captured) -> None:
    why = {"only": ONLY["only"], "why": "spark-01 does not serve; nothing was changed on the route"}
    desk.put(state(facts={"only": ONLY["only"]}, plan_digest=""))
    desk.service.states = [state(phase=Phase.ABORTED, exit_code=13, ended=NOW, waiting=None, facts=why, plan_digest="")]
    assert main(["stable-only", "chat", "--stable", "spark-01", *SERVER, "--reason", "r"]) == 13
    assert "spark-01 does not serve; nothing was changed" in capsys.readouterr().out


def test_stable_lost_before_anything_was_asked_ends_with_thirteen(
    desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise StableLost("spark-01 does not serve: nothing was written")

    monkeypatch.setattr(desk.service, "stable_only", refuse)
    assert main(["stable-only", "chat", "--stable", "spark-01", *SERVER, "--reason", "r"]) == 13
    assert "Bring it back" in capsys.readouterr().err


def way(monkeypatch: pytest.MonkeyPatch, error: RolloutError | None = None) -> list[tuple[Any, ...]]:
    """The server's answer; the list has what was asked."""
    asked: list[tuple[Any, ...]] = []

    async def way_back(at: Any, route: str, receipts: Any, _clock: object) -> WayBack:
        asked.append((at.server, route, receipts.rollout if receipts else None))
        if error is not None:
            raise error
        return WAY

    monkeypatch.setattr(wiring, "way_back", way_back)
    return asked


def test_print_of_a_rollout_of_the_store(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    asked = way(monkeypatch)
    desk.put(state(), plan=plan().model_dump(mode="json", by_alias=True))
    assert main(["rollback", ID, "--print"]) == 0
    assert asked == [("http://gpustack.lan", "chat", ID)]
    shown = capsys.readouterr().out
    assert shown.startswith("#!/usr/bin/env bash")
    assert 'export ROLLOUT_MANAGEMENT_KEY="$MKEY"' in shown
    assert "http://gpustack.lan/v2/model-routes/4" in shown
    assert desk.service.said == []


def test_print_from_the_marker_alone_as_json(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    asked = way(monkeypatch)
    assert main(["rollback", "--route", "chat", *SERVER, "--print", "--json"]) == 0
    assert asked == [("http://gpustack.lan", "chat", None)]
    told = json.loads(capsys.readouterr().out)
    assert [c["method"] for c in told["calls"]] == ["PUT", "POST"]
    assert told["calls"][1]["key"] == "ROLLOUT_INFERENCE_KEY"


def test_print_of_a_taken_over_rollout_knows_the_server(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = way(monkeypatch)
    where = {"server": "http://other.lan", "management_key": {"env": "M"}, "inference_key": {"env": "I"}}
    desk.put(state(facts=facts(gpustack=where), plan_digest=""))
    assert main(["rollback", ID, "--print"]) == 0
    assert asked[0][0] == "http://other.lan"


@pytest.mark.parametrize(
    ("held", "code"),
    [
        (state(facts={}), 2),
        (state(step=StepName.CLEANUP, facts={"cleanup.began": {"at": NOW.isoformat()}}), 23),
        (state(phase=Phase.ROLLED_BACK, ended=NOW), 23),
    ],
)
def test_print_of_what_cannot_be_undone(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, held: Any, code: int) -> None:
    assert way(monkeypatch) == []
    desk.put(held, plan=plan().model_dump(mode="json", by_alias=True))
    assert main(["rollback", ID, "--print"]) == code


def test_print_when_the_old_side_is_gone(desk: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    way(monkeypatch, RollbackImpossible("deployment spark-01 is gone"))
    desk.put(state(), plan=plan().model_dump(mode="json", by_alias=True))
    assert main(["rollback", ID, "--print"]) == 23


@pytest.mark.parametrize(
    ("there", "left", "said"),
    [
        ([], {}, "before, the route had no target: there is nothing to put back"),
        (BEFORE["targets"], {f"left.{t['deployment']}": {"at": "x"} for t in BEFORE["targets"]}, "a second passes in which nobody serves"),
    ],
    ids=["an emptied route", "nothing of it stayed"],
)
def test_stable_only_says_what_putting_it_back_would_cost(
    desk: FakeDesk, there: list[Any], left: dict[str, Any], said: str, capsys: Captured
) -> None:
    found = {**ONLY, "before": {**BEFORE, "targets": there}, **left}
    desk.put(state(facts={"only": ONLY["only"]}, plan_digest=""))
    desk.service.states = [state(phase=Phase.COMPLETED, exit_code=0, ended=NOW, waiting=None, facts=found, plan_digest="")]
    assert main(["stable-only", "chat", "--stable", "spark-01", *SERVER, "--reason", "r"]) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert ("curl" in shown) is bool(there)
