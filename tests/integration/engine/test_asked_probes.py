"""Paired probes beside rich traffic: only where the plan asks for them, then all of them; and what a slow client may still say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase
from tests.integration.engine.harness import PLAN, Case

RICH = PLAN.replace("mode: thin,", "mode: rich,").replace("[10, 50, 100]", "[50, 100]")
ASKED = RICH.replace("min_time: 1m, min_time_before_full: 5m", "min_time: 10s, min_time_before_full: 10s, probes: {pairs: 600, batch: 100}")


def windows(case: Case, rollout_id: str) -> list[dict[str, Any]]:
    return [row.data["window"] for row in case.store.journal(rollout_id) if "window" in row.data]


def test_rich_traffic_alone_sends_no_pairs(tmp_path: Path) -> None:
    case = Case(tmp_path, RICH)
    case.platform.rate = 20.0
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED
    assert not any(w["pairs"] for w in windows(case, state.id))


def test_pairs_that_were_asked_for_are_all_sent_before_100_percent(tmp_path: Path) -> None:
    case = Case(tmp_path, ASKED)
    case.platform.rate = 20.0
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED
    assert sum(len(w["pairs"]) for w in windows(case, state.id)) == 600


def test_answers_that_break_off_are_seen_by_a_client_that_is_too_slow_to_time_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path, ASKED)
    case.platform.rate = 20.0

    def asked(args: dict[str, Any]) -> dict[str, Any]:
        pairs = [[0.03, None if n % 20 == 0 else 0.3, True, n % 20 != 0] for n in range(args["seq"], args["seq"] + args["n"])]
        return {"pairs": pairs, "invalid": "client-bound: loop lag p99 9.0 ms"}

    monkeypatch.setattr(case.platform, "_do_probe_pairs", asked)
    state = case.run(case.start().state.id)
    assert state.phase is Phase.ROLLED_BACK
    found = state.facts["0.judge"]["verdict"]["details"]
    assert found["evidence_against"]["culprits"] == ["errors"], "ten times slower, and not blamed for it: nobody timed that"
    assert all(p["canary_ttft"] is None for w in windows(case, state.id) for p in w["pairs"])
