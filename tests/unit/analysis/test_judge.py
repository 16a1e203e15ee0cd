"""Absorbing windows: each exactly once, only what the load ratio allows, and a state that survives any restart."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rollout.analysis import ArmWindow, JudgeConfig, JudgeState, absorb, config_for, new_state, verdict
from rollout.analysis.design import design_of, log_fail, log_pass
from tests.unit.analysis.cases import REFERENCE, after, config, probes, windows

NOISES = [(0.0, 0.0), (0.2, 0.8)]


def saved(state: JudgeState) -> str:
    return json.dumps(state.to_json(), allow_nan=False)


def against(asked: JudgeConfig, state: JudgeState) -> float:
    return log_fail(design_of(asked), state)[0]


def for_it(asked: JudgeConfig, state: JudgeState) -> dict[str, float]:
    return log_pass(design_of(asked), state)


@pytest.mark.parametrize("noise", NOISES)
def test_saving_and_loading_at_every_window_is_bit_equal(noise: tuple[float, float]) -> None:
    asked = config(rungs=2, noise=noise)
    through = straight = new_state(asked)
    for part in (windows(4, slow=1.2), windows(4, rung=1, first=4), probes(20, first=8)):
        for window in part:
            straight = absorb(asked, straight, window)
            through = absorb(asked, JudgeState.from_json(json.loads(saved(through))), window)
            assert saved(through) == saved(straight)
    assert verdict(asked, through) == verdict(asked, straight)


def test_the_config_survives_saving_and_ignores_what_a_newer_release_added() -> None:
    asked = config("thin", memory_floor=1 << 32)
    data = {**json.loads(json.dumps(asked.to_json())), "from_the_future": 1}
    assert JudgeConfig.from_json(data) == asked


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 99"):
        JudgeState.from_json({**new_state(config()).to_json(), "version": 99})


def test_a_window_counts_once_however_often_it_comes() -> None:
    asked = config()
    seen = list(windows(5, slow=1.3))
    once = after(asked, iter(seen))
    again = after(asked, iter([seen[4], seen[0], seen[3]]), state=once)
    assert saved(again) == saved(once)


def test_absorbing_leaves_the_old_state_alone() -> None:
    asked = config(noise=(0.2, 0.8))
    state = after(asked, windows(3))
    before = saved(state)
    after(asked, windows(3, first=3), state=state)
    assert saved(state) == before


@pytest.mark.parametrize(("ratio", "may_fail", "may_pass"), [(0.1, True, False), (0.8, True, True), (1.25, True, True), (3.0, False, True)])
def test_the_load_ratio_decides_what_latency_may_conclude(ratio: float, may_fail: bool, may_pass: bool) -> None:
    asked = config()
    slow, same = after(asked, windows(20, slow=2.0, ratio=ratio)), after(asked, windows(20, ratio=ratio))
    assert (against(asked, slow) > math.log(100)) is may_fail
    assert (for_it(asked, same)["ttft body"] > math.log(20)) is may_pass


def test_errors_are_compared_at_any_load_ratio() -> None:
    asked = config()
    for ratio in (0.1, 5.0):
        assert after(asked, windows(20, errors=0.06, ratio=ratio)).crossing


def test_without_a_live_comparison_nothing_is_concluded() -> None:
    asked = config()
    state = after(asked, windows(20, slow=3.0, errors=0.05, ratio=None))
    assert against(asked, state) == pytest.approx(0.0)
    assert set(for_it(asked, state).values()) == {0.0}


@pytest.mark.parametrize(
    "change",
    [
        {"weight_changed": True},
        {"canary": ArmWindow(0, 0, restarts=1)},
        {"stable": ArmWindow(0, 0, restarts=1)},
        {"canary": ArmWindow(0, 0, status="METRIC_ERROR")},
        {"stable": ArmWindow(0, 0, status="NO_METRIC")},
        {"stable": ArmWindow(0, 0, status="NO_TRAFFIC")},
    ],
)
def test_windows_that_cannot_be_trusted_move_no_evidence(change: dict[str, Any]) -> None:
    asked = config()
    state = after(asked, (replace(w, **change) for w in windows(20, slow=3.0)))
    assert against(asked, state) == pytest.approx(0.0)
    assert for_it(asked, state)["ttft body"] == 0.0


def test_a_restart_of_the_canary_is_counted_and_two_trip_the_breaker() -> None:
    asked = config()
    crashing = [replace(w, canary=ArmWindow(0, 0, restarts=1)) for w in windows(2)]
    assert after(asked, iter(crashing[:1])).tally.restarts_canary == 1
    assert after(asked, iter(crashing)).breaker.tripped


def test_a_late_regression_is_found_by_the_restart_at_its_rung() -> None:
    asked, single = config(rungs=2), config(rungs=1)

    def needed(told: JudgeConfig) -> int:
        state = after(told, windows(60, each=60))
        for count, window in enumerate(windows(60, slow=1.2, rung=1, first=60, each=60), start=1):
            state = absorb(told, state, window)
            if state.crossing:
                return count
        return 61

    assert needed(asked) < needed(single)


def test_no_more_restarts_are_opened_than_were_weighed() -> None:
    asked = config(rungs=2)
    state = after(asked, *(windows(2, rung=r, first=2 * r) for r in range(5)))
    assert state.starts == (0, 1)


def test_promotion_evidence_is_carried_over_rungs() -> None:
    asked = config(rungs=2)
    one, two = after(asked, windows(20)), after(asked, windows(10), windows(10, rung=1, first=10))
    assert for_it(asked, two)["errors"] == pytest.approx(for_it(asked, one)["errors"])


def test_the_first_crossing_is_remembered_whatever_comes_after() -> None:
    asked = config()
    state = after(asked, windows(20, slow=2.0))
    assert state.crossing
    assert after(asked, windows(100, slow=0.5, first=20), state=state).crossing == state.crossing


@pytest.mark.parametrize("noise", NOISES)
def test_the_state_does_not_grow_with_the_number_of_windows(noise: tuple[float, float]) -> None:
    asked = config(noise=noise)
    state = after(asked, windows(20))
    early = sum(bank.log.size + bank.law.size for bank in state.banks.values())
    state = after(asked, windows(300, first=20, each=20), state=state)
    assert sum(bank.log.size + bank.law.size for bank in state.banks.values()) == early
    assert len(saved(state)) < 60_000


def test_without_noise_the_state_is_a_few_hundred_floats() -> None:
    assert sum(bank.log.size for bank in new_state(config()).banks.values()) < 400


def test_the_same_histogram_as_end_to_end_latency_is_judged_by_the_same_code() -> None:
    asked = config_for("rich", rungs=1, reference_e2e=REFERENCE, noise=(0.0, 0.0))
    moved = [replace(w, stable=_as_e2e(w.stable), canary=_as_e2e(w.canary)) for w in windows(10, slow=2.0)]
    state = after(asked, iter(moved))
    assert state.crossing
    assert state.crossing.culprits == ("e2e",)


def _as_e2e(arm: ArmWindow) -> ArmWindow:
    return ArmWindow(arm.requests, arm.errors, None, arm.ttft)


def test_weights_sum_to_one_whatever_is_missing() -> None:
    for mode in ("rich", "thin", "sparse"):
        for reference in (REFERENCE, None):
            assert sum(config_for(mode, rungs=1, reference_ttft=reference).weights().values()) == pytest.approx(1.0)


def test_probe_failures_join_the_error_evidence_and_trip_the_breaker() -> None:
    asked = config("sparse")
    state = after(asked, probes(20, failing=8))
    assert state.breaker.tripped
    assert log_fail(design_of(asked), state)[1]["errors"] > np.log(0.35)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rungs": 0}, "rung"),
        ({"tolerated_latency": 0.5}, "must lie below"),
        ({"alpha": 0.0}, "alpha"),
        ({"tail_odds": 1.0}, "tail_odds"),
        ({"phi": 1.0}, "noise"),
    ],
)
def test_an_impossible_config_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(config(), **change)


def test_more_errors_than_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="5 errors among 3"):
        ArmWindow(3, 5)
