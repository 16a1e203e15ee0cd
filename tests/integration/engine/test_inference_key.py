"""The inference key is asked about before anything is claimed, and a side that does not answer is not asked every second."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, StepName
from rollout.errors import Unreachable
from rollout.report.view import summary
from tests.integration.engine.harness import PLAN, Case, reached

REFUSED = {"status": 401, "listed": None, "error": "GET /v1/models was refused (401). Invalid authentication credentials"}
HIDDEN = {"status": 200, "listed": False, "error": ""}
MUTE = {"n": 3, "ok": 0, "models": {}, "errors": ["http_error: 401 Invalid authentication credentials"] * 3}


@pytest.mark.parametrize(("says", "word"), [(REFUSED, "refused (401)"), (HIDDEN, "not visible")])
def test_a_key_that_may_not_use_the_route_is_refused_before_anything_is_touched(tmp_path: Path, says: dict[str, Any], word: str) -> None:
    case = Case(tmp_path)
    case.platform.key_says = says
    state = case.run(case.start().state.id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, 3)
    assert summary(state).startswith("refused: nothing was changed; ")
    assert case.events[-1][0].text.startswith("refused: nothing was changed; ")
    assert any(word in finding for finding in state.fact("findings"))
    assert case.platform.writes == []
    assert case.shape() == case.before


def test_all_findings_come_at_once(tmp_path: Path) -> None:
    case = Case(tmp_path, PLAN.replace("worker: staging", "worker: nowhere"))
    case.platform.key_says = REFUSED
    state = case.run(case.start().state.id)
    assert len(state.fact("findings")) == 2


def test_an_inference_url_that_is_away_ends_with_twenty_and_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)

    def away(_args: Mapping[str, Any]) -> dict[str, Any]:
        raise Unreachable("GET /v1/models got no answer.", why="connection refused")

    monkeypatch.setattr(case.platform, "_do_probe_key", away, raising=False)
    with pytest.raises(Unreachable):
        case.run(case.start().state.id)
    assert case.platform.writes == []


def test_a_canary_that_does_not_answer_is_asked_less_and_less_often_and_the_error_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path)
    asked: list[datetime] = []
    answer = case.platform._do_probe

    def mute(args: Mapping[str, Any]) -> dict[str, Any]:
        if not args["model"].endswith("-canary"):
            return answer(args)
        asked.append(case.clock.now())
        return dict(MUTE)

    monkeypatch.setattr(case.platform, "_do_probe", mute)
    started = case.start().state.id
    case.run(started, reached(StepName.ATTACH))
    case.run(started, lambda s: len(asked) >= 8)
    pauses = [(b - a).total_seconds() for a, b in pairwise(asked)]
    assert [round(p) for p in pauses] == pytest.approx([1, 2, 4, 8, 15, 15, 15], abs=1)
    waits = [e.text for e, _ in case.events if e.kind == "wait"]
    assert any("does not answer yet: http_error: 401 Invalid authentication credentials" in w for w in waits)
    monkeypatch.setattr(case.platform, "_do_probe", answer)
    assert case.run(started).phase is Phase.COMPLETED


def test_a_stable_side_that_came_back_mute_is_asked_less_and_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)
    started = case.start().state.id
    case.run(started, reached(StepName.CANARY, rung=0))
    case.platform.deployments["chat-a"].healthy = False
    case.run(started, lambda s: s.phase is Phase.HALTED)
    case.platform.deployments["chat-a"].healthy = True
    answer, asked = case.platform._do_probe, list[datetime]()

    def mute(args: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(case.clock.now())
        return dict(MUTE)

    monkeypatch.setattr(case.platform, "_do_probe", mute)
    case.run(started, lambda s: len(asked) >= 6)
    assert asked[-1] - asked[-2] > asked[1] - asked[0]
    assert (asked[-1] - asked[-2]).total_seconds() >= 8
    monkeypatch.setattr(case.platform, "_do_probe", answer)
    assert case.run(started).phase is Phase.COMPLETED
