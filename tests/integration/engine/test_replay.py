"""Replayed prompts in a whole rollout: each is asked once, takes turns with the other evidence, and is told; nothing of it is kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState
from rollout.rung import replay
from rollout.store import StoredRollout
from rollout.testing.answers import prompt_set
from tests.integration.engine.harness import PLAN, Case, CrashError, holding

TEXT = PLAN.replace("evidence: {mode: thin, window: 10s,", "evidence: {mode: thin, window: 2s, quality: {file: set.jsonl, batch: 7},")
SIZE = 60


def begun(folder: Path, text: str = TEXT, size: int = SIZE) -> tuple[Case, StoredRollout]:
    (folder / "set.jsonl").write_text(prompt_set(size))
    case = Case(folder, text)
    case.platform.wrong_images = {"sim/vllm:wrong": 0.2}
    return case, case.start()


def known(state: RolloutState) -> dict[str, object]:
    return dict(state.fact("0.seen")["replay"])


def all_asked(state: RolloutState) -> bool:
    seen = state.fact("0.seen") or {}
    return replay.used(seen) == SIZE


def test_each_prompt_is_asked_once_in_an_order_that_the_rollout_drew(tmp_path: Path) -> None:
    case, started = begun(tmp_path)
    state = case.run(started.state.id, until=all_asked)
    ids = [f"q{n}" for n in range(1, SIZE + 1)]
    assert sorted(case.platform.replayed) == sorted(ids)
    assert case.platform.replayed != ids
    assert known(state) == {"used": SIZE, "of": SIZE, "stable": 60.0, "canary": 60.0, "errors": [0, 0], "lost": 0, "worst": []}
    windows = [row.data["window"] for row in case.store.journal(state.id) if "window" in row.data]
    assert sum(len(w["quality"]) for w in windows) == SIZE
    assert all(w["canary"]["requests"] == 0 and w["load_ratio"] is None for w in windows if w["quality"])
    assert [w["id"] for w in windows] == sorted({w["id"] for w in windows})


def test_batches_take_turns_with_live_windows_and_paired_probes(tmp_path: Path) -> None:
    case, started = begun(tmp_path, TEXT.replace("[10, 50, 100]", "[50, 100]"))
    case.platform.rate = 0.1
    state = case.run(started.state.id, until=all_asked)
    windows = [row.data["window"] for row in case.store.journal(state.id) if "window" in row.data]
    kinds = ["replay" if w["quality"] else "probes" if w["pairs"] else "live" for w in windows]
    assert {"replay", "probes", "live"} == set(kinds)
    assert all(kinds[n - 1] == "live" for n in range(1, len(kinds)) if kinds[n] != "live")
    own = [kind for kind in kinds if kind != "live"]
    assert own[:6] in (["replay", "probes"] * 3, ["probes", "replay"] * 3)


def test_neither_prompts_nor_answers_are_in_journal_and_state(tmp_path: Path) -> None:
    """The set stands in the stored plan, once."""
    case, started = begun(tmp_path, TEXT.replace("sim/vllm:2", "sim/vllm:wrong"))
    state = case.run(started.state.id, until=all_asked)
    kept = json.dumps([row.data for row in case.store.journal(state.id)]) + state.model_dump_json()
    row = json.loads(prompt_set(1))
    assert "what does node" not in kept
    assert row["expected"][:20] not in kept
    assert "what does node" in json.dumps(case.store.load(state.id).plan)
    (tmp_path / "set.jsonl").unlink()
    assert known(state)["lost"] == SIZE - known(state)["canary"]  # type: ignore[operator]
    assert set(known(state)["worst"]) <= {f"q{n}" for n in range(1, SIZE + 1)}  # type: ignore[call-overload]


def test_a_crash_at_any_point_of_a_batch_uses_no_prompt_twice(tmp_path: Path) -> None:
    case, started = begun(tmp_path)
    chance, crashes = random.Random(4), 0

    def crash(_point: str) -> None:
        nonlocal crashes
        stored = case.store.load(started.state.id).state
        doing = stored.intent is not None and stored.intent.effect.verb == "replay_pairs"
        if (doing or stored.fact("0.replay")) and chance.random() < 0.3:
            crashes += 1
            raise CrashError

    state = started.state
    for _ in range(200):
        try:
            state = case.run(started.state.id, until=all_asked, checkpoint=crash)
            break
        except CrashError:
            continue
    assert crashes > 10
    assert known(state)["used"] == SIZE
    windows = [row.data["window"] for row in case.store.journal(state.id) if "window" in row.data]
    assert sum(len(w["quality"]) for w in windows) == SIZE


def test_a_batch_from_before_judging_began_afresh_is_no_evidence() -> None:
    seen = {"replay": {"used": 7}}
    assert replay.unusable({"seq": 0, "invalid": None, "pairs": []}, seen) is not None
    assert replay.unusable({"seq": 7, "invalid": None, "pairs": []}, seen) is None
    assert replay.unusable({"seq": 7, "invalid": "nobody answered", "pairs": []}, seen) == "nobody answered"


@pytest.mark.parametrize(("used", "right", "holds"), [(19, 0, False), (20, 9, True), (20, 10, False), (100, 49, True)])
def test_a_set_that_stable_does_not_answer_carries_no_promotion(used: int, right: int, holds: bool) -> None:
    found = replay.misfit({"replay": {"used": used, "stable": float(right)}})
    assert (found is not None) is holds
    assert found is None or (found.reason == "inconclusive" and f"{right} of {used}" in found.detail)


def test_a_batch_that_nobody_answered_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, started = begun(tmp_path)
    answer, silent = case.platform._do_replay_pairs, 3

    def sometimes(args: dict[str, object]) -> dict[str, object]:
        nonlocal silent
        silent -= 1
        return {**answer(args), "invalid": "neither side answered one of 7 prompts" if silent >= 0 else None}

    monkeypatch.setattr(case.platform, "_do_replay_pairs", sometimes)
    state = case.run(started.state.id, until=all_asked)
    assert known(state)["used"] == SIZE
    assert len(case.platform.replayed) == SIZE + 3 * 7
    assert holding("inconclusive")(state) is False


def test_two_sides_that_are_both_wrong_are_not_promoted_until_a_person_says_so(tmp_path: Path) -> None:
    text = TEXT.replace("batch: 7", "batch: 50").replace("sim/vllm:2", "sim/vllm:other")
    case, started = begun(tmp_path, text, size=200)
    case.platform.deployments["chat-a"].wrong = 1.0
    case.platform.wrong_images = {"sim/vllm:other": 1.0}
    state = case.run(started.state.id, until=holding("inconclusive"))
    assert state.hold is not None
    assert "stable itself answered 0 of 200 prompts as expected" in state.hold.detail
    case.service().say(started.state.id, "accept_inconclusive", "ana", "the set is being rewritten")
    assert case.run(started.state.id).phase is Phase.COMPLETED


def judged(state: RolloutState) -> dict[str, Any]:
    return dict(state.fact("0.judge")["verdict"]["details"])


@pytest.mark.parametrize("mode", ["thin", "sparse", "rich"])
def test_every_fifth_answer_wrong_is_rolled_back_and_quality_is_the_culprit(tmp_path: Path, mode: str) -> None:
    text = TEXT.replace("mode: thin", f"mode: {mode}").replace("sim/vllm:2", "sim/vllm:wrong")
    case, started = begun(tmp_path, text, size=150)
    state = case.run(started.state.id)
    assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
    assert judged(state)["evidence_against"]["culprits"] == ["quality"]
    assert case.shape() == case.before


def test_a_promotion_waits_for_the_quality_claim_and_says_what_it_rests_on(tmp_path: Path) -> None:
    """All other claims are proved long before: without a set the same rollout has its verdict earlier."""
    case, started = begun(tmp_path, TEXT.replace("min_time_before_full: 5m", "min_time_before_full: 1m"), size=130)
    state = case.run(started.state.id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    assert known(state)["used"] >= 126  # type: ignore[operator]
    assert judged(state)["evidence_for"]["log10_by_claim"]["quality"] >= 1.3


def test_a_set_that_is_too_small_holds_at_the_deadline(tmp_path: Path) -> None:
    case, started = begun(tmp_path, TEXT.replace("min_time: 1m", "deadline: 10m, min_time: 1m"))
    state = case.run(started.state.id, until=holding("inconclusive"))
    assert state.hold is not None
    assert known(state)["used"] == SIZE
    assert "quality" in state.hold.detail
