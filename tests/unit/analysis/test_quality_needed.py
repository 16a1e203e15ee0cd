"""How many prompts a promotion needs at least, as the dry run says it, is what the judge asks for."""

import math

import pytest

from rollout.analysis import ArmWindow, QualityPair, Window, absorb, new_state, verdict
from rollout.analysis.config import Mode, config_for
from rollout.analysis.quality import pairs_needed

QUIET = ArmWindow(0, 0, status="NO_TRAFFIC")


@pytest.mark.parametrize(("mode", "count"), [("rich", 126), ("thin", 126), ("sparse", 50)])
def test_so_many_equal_pairs_prove_the_claim_and_one_fewer_does_not(mode: Mode, count: int) -> None:
    config = config_for(mode, rungs=1, quality="binary")
    assert pairs_needed(config.unacceptable("quality"), config.beta) == count
    state = absorb(config, new_state(config), Window(1, 0, 0.0, QUIET, QUIET, quality=(QualityPair(1.0, 1.0),) * (count - 1)))
    assert claim(config, state) < -math.log10(config.beta)
    state = absorb(config, state, Window(2, 0, 0.0, QUIET, QUIET, quality=(QualityPair(1.0, 1.0),)))
    assert claim(config, state) >= -math.log10(config.beta)


def test_pairs_that_neither_side_answered_prove_nothing() -> None:
    config = config_for("thin", rungs=1, quality="binary")
    state = absorb(config, new_state(config), Window(1, 0, 0.0, QUIET, QUIET, quality=(QualityPair(None, None),) * 300))
    assert claim(config, state) == 0.0


def more(lost: int, count: int) -> float | None:
    config = config_for("thin", rungs=1, quality="binary")
    pairs = (QualityPair(1.0, 0.0),) * lost + (QualityPair(1.0, 1.0),) * (count - lost)
    state = absorb(config, new_state(config), Window(1, 0, 0.0, QUIET, QUIET, quality=pairs))
    found: float | None = verdict(config, state).details["forecast"]["quality"]
    return found


def test_the_forecast_says_how_many_more_prompts_at_the_pace_so_far() -> None:
    assert more(0, 10) == 116
    assert more(0, 60) == pytest.approx(66, abs=1)
    assert more(1, 60) > 150  # type: ignore[operator]
    assert more(12, 60) is None  # at that pace never
    assert more(0, 126) == 0.0


def test_a_failed_and_an_undecided_verdict_speak_of_prompts() -> None:
    config = config_for("thin", rungs=1, quality="binary")
    wrong = Window(1, 0, 0.0, QUIET, QUIET, quality=(QualityPair(1.0, 0.0),) * 30 + (QualityPair(1.0, 1.0),) * 70)
    failed = verdict(config, absorb(config, new_state(config), wrong))
    assert failed.details["evidence_against"]["culprits"] == ["quality"]
    assert "against 'answers no worse than stable's'" in failed.sentence
    assert "100 replayed prompts" in failed.sentence
    few = Window(1, 0, 0.0, QUIET, QUIET, quality=(QualityPair(1.0, 1.0),) * 60)
    assert "needs about 67 more prompts" in verdict(config, absorb(config, new_state(config), few)).sentence


def claim(config, state) -> float:  # type: ignore[no-untyped-def]
    return float(verdict(config, state).details["evidence_for"]["log10_by_claim"]["quality"])
