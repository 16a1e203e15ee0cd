"""The memory slope by exact Gaussian algebra: the evidence is exp(b S - b^2 I / 2) with S linear in what was seen, so its moments are."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis import ArmWindow, JudgeState, Window, absorb, config_for, new_state
from rollout.analysis.slope import SLOPES, Trend
from rollout.analysis.state import Crossing

GIB = float(1 << 30)
SD = 0.3 * GIB
SMALL = 1e-7
Seen = Sequence[bool | None]  # a window each: known, unknown (False), or one in which a process began anew (None)

gaps = st.lists(st.sampled_from([True, True, True, True, False, None]), min_size=3, max_size=14)


def followed(values: Sequence[float], seen: Seen, phi: float) -> Trend:
    trend = Trend()
    for i, there in enumerate(seen):
        if there is None:
            trend = trend.parted()
        elif there:
            trend = trend.observed(i / 60, values[i], SD, phi)
        else:
            trend = trend.skipped()
    return trend


def score(values: Sequence[float], seen: Seen, phi: float, tolerated: float) -> float:
    """S, read off two of the bets."""
    logs = followed(values, seen, phi).evidence(tolerated)
    return float((logs[0] / SLOPES[0] - logs[1] / SLOPES[1] * SLOPES[0] / SLOPES[1]) / (1 - SLOPES[0] / SLOPES[1]))


def information(seen: Seen, phi: float) -> float:
    logs = followed([0.0] * len(seen), seen, phi).evidence(0.0)
    return float(-2 * logs[0] / SLOPES[0] ** 2)


def weights(seen: Seen, phi: float) -> np.ndarray:
    """The coefficient of each window's value in S."""
    unit = np.eye(len(seen)) * GIB
    return np.array([score(row, seen, phi, 0.0) for row in unit.tolist()]) / GIB


def covariance(seen: Seen, phi: float) -> np.ndarray:
    """Of AR(1) noise; stretches before and after a process began anew know nothing of each other."""
    stretch = np.cumsum([there is None for there in seen])
    apart = np.abs(np.subtract.outer(np.arange(len(seen)), np.arange(len(seen))))
    return SD**2 * phi**apart * (stretch[:, None] == stretch[None, :])


@settings(max_examples=60, deadline=None)
@given(gaps, st.sampled_from([0.0, 0.5, 0.9, 0.98]))
def test_under_the_tolerated_slope_every_bet_expects_exactly_one_whatever_was_missed(seen: list[bool | None], phi: float) -> None:
    """Then S has mean 0 and variance I, so E[exp(b S - b^2 I / 2)] = 1; no level of any stretch enters."""
    c, known = weights(seen, phi), information(seen, phi)
    stretch = np.cumsum([there is None for there in seen])
    assert c @ covariance(seen, phi) @ c == pytest.approx(known, rel=SMALL, abs=1e-30)
    for part in set(stretch.tolist()):
        assert float(c[stretch == part].sum()) == pytest.approx(0.0, abs=SMALL * float(np.abs(c).sum()) + 1e-30)
    hours = np.arange(len(seen)) / 60
    assert float(c @ hours) == pytest.approx(known, rel=1e-6, abs=1e-30)  # a slope of b moves the mean of S by b I: below it E < 1


@settings(max_examples=40, deadline=None)
@given(gaps, st.sampled_from([0.0, 0.9]), st.data())
def test_the_evidence_grows_by_steps_that_the_past_does_not_foretell(seen: list[bool | None], phi: float, data: st.DataObject) -> None:
    """Cov(S_s, S_t) = I_s for s < t: the increments are uncorrelated, for Gaussians independent, so looking often costs nothing."""
    early = data.draw(st.integers(1, len(seen)))
    first = np.zeros(len(seen))
    first[:early] = weights(seen[:early], phi)
    together = float(first @ covariance(seen, phi) @ weights(seen, phi))
    assert together == pytest.approx(information(seen[:early], phi), rel=1e-6, abs=1e-30)


def test_a_tolerance_is_taken_off_the_slope() -> None:
    rising = [i / 60 * 2 * GIB for i in range(60)]
    seen = [True] * 60
    assert score(rising, seen, 0.5, 2 * GIB) == pytest.approx(0.0, abs=1e-6 * information(seen, 0.5) * GIB)
    assert followed(rising, seen, 0.5).evidence(0.0).max() > 0 > followed(rising, seen, 0.5).evidence(3 * GIB).max()


def test_one_value_and_one_value_each_side_of_a_restart_say_nothing() -> None:
    assert not followed([5 * GIB], [True], 0.9).evidence(0.0).any()
    assert not followed([0.0, 0.0, 9 * GIB], [True, None, True], 0.9).evidence(0.0).any()


def test_a_trend_that_was_saved_goes_on_where_it_was() -> None:
    trend = followed([0.0, GIB, 0.0, GIB], [True, True, None, True], 0.9)
    assert Trend(**{key: getattr(trend, key) for key in trend.__dataclass_fields__}) == trend


Level = Callable[[int], float]
Told = Callable[[int, ArmWindow, bool], ArmWindow]


def rollout(canary: Level, stable: Level, arms: Told) -> JudgeState:
    """80 windows of memory alone, noise as fitted; `arms` says what else happened to a side (canary True)."""
    told = config_for("rich", rungs=1, noise=(0.0, 0.0), memory_noise=(SD, 0.9))
    rng, own, state = np.random.default_rng(4), 0.0, new_state(told)
    for i in range(80):
        own = 0.9 * own + SD * math.sqrt(1 - 0.81) * rng.normal()
        used = [int(20 * GIB + extra) for extra in (stable(i), canary(i) + own)]
        theirs, ours = (arms(i, ArmWindow(0, 0, status="NO_TRAFFIC", memory_used=u), side == 1) for side, u in enumerate(used))
        state = absorb(told, state, Window(i, 0, 30.0, theirs, ours, (), 1.0))
    return state


def as_is(_: int, arm: ArmWindow, __: bool) -> ArmWindow:
    return arm


def culprits(crossing: Crossing | None) -> tuple[str, ...]:
    return crossing.culprits if crossing else ()


def test_a_leak_is_found_and_a_level_difference_is_not_one() -> None:
    assert culprits(rollout(lambda i: i / 120 * 12 * GIB, lambda _: 0.0, as_is).crossing) == ("memory",)
    assert rollout(lambda _: 9 * GIB, lambda _: 0.0, as_is).crossing is None


@pytest.mark.parametrize("canary_too", [False, True])
def test_a_process_that_begins_anew_with_less_memory_is_no_leak_of_the_other_side(canary_too: bool) -> None:
    """Stable frees 8 GiB at its restart (and the canary takes 8 GiB more after its own): a step, not a slope."""

    def arms(i: int, arm: ArmWindow, canary: bool) -> ArmWindow:
        anew = i == 40 and (not canary or canary_too)
        return ArmWindow(0, 0, restarts=1, memory_used=arm.memory_used) if anew else arm

    after = rollout(lambda i: 8 * GIB * (i >= 40 and canary_too), lambda i: -8 * GIB * (i >= 40), arms)
    assert after.crossing is None
    assert after.tally.restarts_stable == 1


def test_memory_of_a_side_that_is_down_is_not_compared() -> None:
    """Four windows without stable's engine, its memory free meanwhile; then it is back with what it had."""

    def arms(i: int, arm: ArmWindow, canary: bool) -> ArmWindow:
        return ArmWindow(0, 0, status="METRIC_ERROR", memory_used=arm.memory_used) if 40 <= i < 44 and not canary else arm

    assert rollout(lambda _: 0.0, lambda i: -8 * GIB * (40 <= i < 44), arms).crossing is None


def test_a_leak_goes_on_being_one_through_a_restart_of_stable() -> None:
    def arms(i: int, arm: ArmWindow, canary: bool) -> ArmWindow:
        return ArmWindow(0, 0, restarts=1, memory_used=arm.memory_used) if i == 30 and not canary else arm

    assert culprits(rollout(lambda i: i / 120 * 12 * GIB, lambda i: -8 * GIB * (i >= 30), arms).crossing) == ("memory",)
