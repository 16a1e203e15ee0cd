"""Shares, verdicts, goals and words, each on its own."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from rollout.domain.state import Phase, RolloutState, Said, StepName
from rollout.errors import UsageError
from rollout.report import words
from rollout.report.goal import WORDS, goal_of
from rollout.report.share import rung_of, shares_of
from rollout.report.verdict import verdict_of
from tests.unit.report.samples import NOW, facts, halted, holding, minutes, rolled_back, state

UNDO = Said(verb="rollback", actor="ana", reason="r", at=NOW)


def test_the_three_shares_are_kept_apart() -> None:
    shares = shares_of(state())
    assert shares is not None
    assert shares.requested_pair == 0.1
    assert shares.effective_pair == pytest.approx(11 / 111)
    assert shares.effective_route == pytest.approx(11 / 211)
    assert shares.observed_route == pytest.approx(5 / 84)
    assert shares.proved


def test_a_share_that_was_written_and_not_measured_is_unknown_not_zero() -> None:
    bare = facts()
    del bare["0.rung.0.proved"]
    shares = shares_of(state(facts=bare))
    assert shares is not None
    assert shares.observed_route is None
    assert not shares.proved


def test_at_full_share_it_is_the_absence_of_stable_that_is_proved() -> None:
    handed = facts(
        **{"0.handed": {"at": NOW.isoformat()}, "0.absent": {"n": 20, "ok": 20, "models": {"spark-01-r3f2a91c0": 14, "spark-02": 6}}}
    )
    shares = shares_of(state(step=StepName.SHIFT, facts=handed))
    assert shares is not None
    assert (shares.requested_pair, shares.weight, shares.proved) == (1.0, None, True)
    assert shares.observed_route == pytest.approx(0.7)
    handed["0.absent"] = {"models": {"spark-01": 1, "spark-01-r3f2a91c0": 19}}
    still = shares_of(state(step=StepName.SHIFT, facts=handed))
    assert still is not None
    assert not still.proved


def test_a_dark_canary_has_no_share() -> None:
    bare = {k: v for k, v in facts().items() if not k.startswith("0.rung")}
    assert shares_of(state(facts=bare)) is None
    assert rung_of(state(facts=bare)) is None
    assert shares_of(state(facts={})) is None


def test_the_rung_is_the_last_one_written_and_counts_from_one() -> None:
    rung = rung_of(state(step=StepName.SHIFT, facts=facts(**{"0.rung.1.written": {"at": NOW.isoformat()}})))
    assert rung is not None
    assert (rung.number, rung.of, rung.ladder) == (2, 3, (0.1, 0.5, 1.0))


def test_the_verdict_holds_its_interval_and_its_assumptions_as_the_judge_said_them() -> None:
    row = {"metric": "ttft", "edge": 0.25, "part": "body", "confidence": 0.95, "odds": [1.1, 2.0], "slowdown": [0.12, 0.31]}
    details = {"effect": [{**row, "times_as_many": [1.1, 1.5]}], "assumptions": ["A1: by chance"]}
    verdict = verdict_of(state(facts={"0.judge": {"verdict": {"kind": "fail", "details": details}}}))
    assert verdict is not None
    assert verdict.effect == ("TTFT +12 % to +31 %, 1.1 to 1.5 times as many requests over 0.25 s",)
    assert verdict.assumptions == ("A1: by chance",)


def test_the_verdict_names_its_evidence_and_its_noise() -> None:
    verdict = verdict_of(state())
    assert verdict is not None
    assert (verdict.word, verdict.mode, verdict.v, verdict.phi, verdict.guaranteed) == ("inconclusive", "thin", 0.2, 0.8, False)
    assert (verdict.requests, verdict.pairs) == (12, 48)


def test_before_anything_is_judged_the_mode_is_known_and_no_verdict_is_claimed() -> None:
    verdict = verdict_of(state(facts={"mode": "sparse"}))
    assert verdict is not None
    assert (verdict.word, verdict.mode, verdict.alpha) == ("none", "sparse", None)
    assert verdict_of(state(facts={})) is None


@pytest.mark.parametrize("word", WORDS)
def test_every_word_that_is_offered_is_a_goal(word: str) -> None:
    goal_of(word).reached(state())


def test_an_unknown_goal_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        goal_of("don")
    assert "promoted" in caught.value.why


@pytest.mark.parametrize(
    ("word", "where", "reached"),
    [
        ("promoted", state(), False),
        ("promoted", state(step=StepName.CLEANUP, target=1), True),
        ("promoted", state(step=StepName.CLEANUP, phase=Phase.HOLDING), True),
        ("promoted", state(step=StepName.CLEANUP, phase=Phase.ROLLING_BACK, undo=UNDO), False),
        ("promoted", state(phase=Phase.COMPLETED, step=StepName.CLEANUP), True),
        ("completed", state(step=StepName.CLEANUP, phase=Phase.PROMOTED), False),
        ("attach", state(), True),
        ("shift", state(), False),
        ("shift", state(step=StepName.ATTACH, target=1), True),
        ("cleanup", state(step=StepName.ATTACH, target=1), False),
        ("rolled-back", rolled_back(), True),
    ],
)
def test_a_goal_is_reached_or_not(word: str, where: RolloutState, reached: bool) -> None:
    assert goal_of(word).reached(where) is reached


def test_run_stops_where_a_person_is_needed_and_sits_out_a_hold_that_may_pass() -> None:
    goal = goal_of("promoted")
    assert goal.stops(holding("inconclusive"), NOW, 3600)
    assert goal.stops(halted(), NOW, 3600)
    assert goal.stops(rolled_back(), NOW, 3600)
    assert not goal.stops(holding("drift"), NOW, 3600)
    assert goal.stops(holding("drift"), NOW, 14 * 60)
    assert not goal.stops(state(), NOW, 0)


def test_a_goal_is_missed_only_by_an_end_elsewhere() -> None:
    assert goal_of("promoted").missed(rolled_back())
    assert not goal_of("rolled_back").missed(rolled_back())
    assert not goal_of("promoted").missed(holding())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (90, "1 min 30 s"),
        (120, "2 min"),
        (359, "5 min 59 s"),
        (700, "11 min"),
        (6780, "1 h 53 min"),
        (7200, "2 h"),
        (187200, "2 d 4 h"),
    ],
)
def test_lengths_of_time_have_two_units_at_most(seconds: float, text: str) -> None:
    assert words.ago(seconds) == text


def test_a_deadline_that_passed_is_called_overdue() -> None:
    assert words.until(NOW - minutes(1), NOW, UTC) == "02:19 (1 min overdue)"
    assert words.until(NOW + minutes(113), NOW, UTC) == "04:13 (in 1 h 53 min)"


def test_another_day_is_named() -> None:
    assert words.day(NOW + timedelta(days=1), NOW, UTC) == "Mon 02 Mar 02:20"


@pytest.mark.parametrize(
    ("share", "text"), [(0.1, "10 %"), (1.0, "100 %"), (0.0, "0 %"), (11 / 111, "9.9 %"), (0.004, "0.40 %"), (0.9999, "99.99 %")]
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert words.percent(share) == text
