"""The whole judge by listing every outcome: two windows with a new rung in between, two latencies, errors, probes, replayed answers.

How the metrics of a window hang together does not matter, so the time per token is the time to first token again.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from rollout.analysis import ArmWindow, Histogram, JudgeConfig, ProbePair, QualityPair, Window, absorb_many, config_for, new_state
from rollout.analysis.design import design_of, log_fail, log_pass
from rollout.analysis.state import JudgeState
from tests.unit.analysis.exact import expit, logit

EDGES = (0.1, 0.25)
REFERENCE = Histogram(EDGES, (400, 300, 300))
ASKED = config_for("thin", rungs=2, reference_ttft=REFERENCE, reference_tpot=REFERENCE, noise=(0.0, 0.0), quality="binary", probe_slo=1.5)
SMALL = 1e-9
Arm = list[tuple[ArmWindow, float]]


def arms(above: tuple[float, float], errors: float) -> Arm:
    """One request: which bucket, and whether it failed (a failed request of this world has a first token)."""
    found = []
    for bucket, p in enumerate((1 - above[0], above[0] - above[1], above[1])):
        for failed, q in ((0, 1 - errors), (1, errors)):
            counts = tuple(int(i == bucket) for i in range(3))
            seen = Histogram(EDGES, counts)
            found.append((ArmWindow(1, failed, seen, tpot=seen), p * q))
    return found


def shifted(above: tuple[float, float], by: list[float]) -> tuple[float, float]:
    one, two = (expit(logit(p) + d) for p, d in zip(above, by, strict=True))
    return one, min(one, two)


def worlds(index: int, rung: int, stable: Arm, canary: Arm, lost: float) -> Iterator[tuple[Window, float]]:
    """Every window of one request a side; from the second on with a pair of probes, a coin that says who was the slower, and a replayed
    prompt that only one side answers rightly, `lost` being the chance that it is stable.
    """
    coins = [(((), ()), 1.0)]
    if index:
        probes = [(ProbePair(*pair, True, True),) for pair in ((1.0, 2.0), (2.0, 1.0))]
        answers = [((QualityPair(1.0, 0.0),), lost), ((QualityPair(0.0, 1.0),), 1 - lost)]
        coins = [((pair, answer), r / 2) for pair, (answer, r) in itertools.product(probes, answers)]
    for (theirs, p), (ours, q), ((pairs, quality), r) in itertools.product(stable, canary, coins):
        yield Window(index, rung, 30.0, theirs, ours, pairs, 1.0, 0.5, (1, 2), quality=quality), p * q * r


def expected(windows: list[list[tuple[Window, float]]], read: Callable[[JudgeState], dict[str, float]]) -> dict[str, float]:
    """The expectation of every e-value after the last window."""
    total: dict[str, float] = {}
    states = [(new_state(ASKED), 1.0)]
    for window in windows:
        paths = [(state, seen, p * q) for (state, p), (seen, q) in itertools.product(states, window) if q]
        after = absorb_many([ASKED] * len(paths), [state for state, _, _ in paths], [seen for _, seen, _ in paths])
        states = [(state, p) for state, (_, _, p) in zip(after, paths, strict=True)]
    assert sum(p for _, p in states) == pytest.approx(1.0)
    for state, p in states:
        for name, value in read(state).items():
            total[name] = total.get(name, 0.0) + p * value
    return total


def rollback(state: JudgeState) -> dict[str, float]:
    return {"all": math.exp(log_fail(design_of(ASKED), state)[0])}


def promotion(state: JudgeState) -> dict[str, float]:
    return {claim: math.exp(log) for claim, log in log_pass(design_of(ASKED), state).items()}


def shifts(asked: JudgeConfig, slowdown: float) -> list[float]:
    test = design_of(asked).latency[0]
    return [test.reference.shift(e, slowdown) for e in EDGES]


def tolerable(above: tuple[float, float], part: float) -> tuple[float, float]:
    """Exceedances as much worse as both nulls of the latency allow at once, times `part`: every edge and every bucket."""
    test = design_of(ASKED).latency[0]
    edges = shifts(ASKED, part * test.tolerated)
    hazards = test.reference.reverse_hazard_shift(EDGES, part * test.tolerated)
    top = min(expit(logit(above[1]) + edges[1]), expit(logit(above[1]) + float(hazards[1])))
    inside = expit(logit((above[0] - above[1]) / (1 - above[1])) + float(hazards[0]))
    return min(expit(logit(above[0]) + edges[0]), top + (1 - top) * inside), top


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_the_combined_rollback_evidence_expects_at_most_one_over_two_rungs(part: float) -> None:
    """Two rungs at different loads, none fail on the first; the canary equal, or as slow and failing as is tolerated."""
    windows = []
    for index, (above, errors) in enumerate((((0.6, 0.3), 0.0), ((0.8, 0.1), 0.4))):
        failing = expit(logit(errors) + part * math.log(ASKED.tolerated("errors"))) if errors else 0.0
        windows.append(list(worlds(index, index, arms(above, errors), arms(tolerable(above, part), failing), 0.5)))
    assert 0.9 < expected(windows, rollback)["all"] <= 1 + SMALL


def test_each_promotion_claim_expects_at_most_one_where_it_is_false() -> None:
    """The canary stands exactly at every unacceptable margin; the second window has another load, errors of stable, probes, replays."""
    test = design_of(ASKED).latency[0]
    margins = dict(zip((*test.body, *test.tail), test.pass_margins, strict=True))
    moved = [margins.get(e, 0.0) for e in EDGES]
    lost = (1 + ASKED.unacceptable("quality")) / 2
    windows = []
    for index, (above, errors) in enumerate((((0.6, 0.3), 0.0), ((0.5, 0.2), 0.4))):
        failing = errors + ASKED.unacceptable("errors")
        windows.append(list(worlds(index, 0, arms(above, errors), arms(shifted(above, moved), failing), lost)))
    after = expected(windows, promotion)
    assert after
    assert all(value <= 1 + SMALL for value in after.values()), after


def test_everything_at_once_stays_a_weighted_average() -> None:
    """The metrics' shares of the evidence sum to one, and what has not begun counts one."""
    assert sum(ASKED.weights().values()) == pytest.approx(1.0)
    assert log_fail(design_of(ASKED), new_state(ASKED))[0] == pytest.approx(0.0)
    assert np.isclose(design_of(ASKED).omega * ASKED.rungs, 1.0)
