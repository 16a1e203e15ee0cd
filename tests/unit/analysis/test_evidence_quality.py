"""E[e] <= 1 for replayed answers, by listing every outcome: graded and binary scores, both sides, prompts as different as they like."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis import QualityPair, Window, absorb, config_for, new_state
from rollout.analysis.quality import quality_kept, quality_lost
from tests.unit.analysis.cases import QUIET

SMALL = 1e-9
LEVELS = (0.0, 0.5, 1.0)
Law = dict[QualityPair, float]  # of one prompt's pair of scores; they may depend on each other in any way


def expected(laws: list[Law], margin: float, *, kept: bool, binary: bool = False) -> float:
    total = 0.0
    for pairs in itertools.product(*laws):
        gains = quality_kept(pairs, margin) if kept else quality_lost(pairs, margin, binary=binary)
        total += math.prod(law[p] for law, p in zip(laws, pairs, strict=True)) * float(np.exp(gains).mean())
    return total


def loss(law: Law) -> float:
    """The mean of stable's score minus the canary's, where both answered."""
    whole = {p: q for p, q in law.items() if p.stable is not None and p.canary is not None}
    total = sum(whole.values())
    return sum(((p.stable or 0.0) - (p.canary or 0.0)) * q for p, q in whole.items()) / total if total else 0.0


def tilted(law: Law, towards: QualityPair, wanted: float) -> Law:
    """Mixed with certainty of one outcome until the mean loss is `wanted`."""
    have, there = loss(law), (towards.stable or 0.0) - (towards.canary or 0.0)
    part = (wanted - have) / (there - have)
    mixed = {p: q * (1 - part) for p, q in law.items()}
    mixed[towards] += part
    return mixed


def laws(levels: tuple[float, ...]) -> st.SearchStrategy[Law]:
    pairs = [QualityPair(a, b) for a, b in itertools.product(levels, levels)]
    weights = st.lists(st.floats(0.01, 1.0), min_size=len(pairs), max_size=len(pairs))
    return weights.map(lambda w: {p: x / sum(w) for p, x in zip(pairs, w, strict=True)})


KEPT, LOST = QualityPair(0.0, 1.0), QualityPair(1.0, 0.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(laws(LEVELS), min_size=1, max_size=2), st.sampled_from([0.0, 0.02, 0.3]))
def test_graded_answers_expect_at_most_one_while_the_mean_loss_is_tolerated(drawn: list[Law], margin: float) -> None:
    within = [law if loss(law) <= margin else tilted(law, KEPT, margin) for law in drawn]
    assert expected(within, margin, kept=False) <= 1 + SMALL
    at_it = [tilted(law, KEPT if loss(law) > margin else LOST, margin) for law in drawn]
    assert expected(at_it, margin, kept=False) == pytest.approx(1.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(laws(LEVELS), min_size=1, max_size=2), st.sampled_from([0.01, 0.05, 0.5]))
def test_kept_quality_expects_at_most_one_while_the_mean_loss_is_unacceptable(drawn: list[Law], margin: float) -> None:
    beyond = [law if loss(law) >= margin else tilted(law, LOST, margin) for law in drawn]
    assert expected(beyond, margin, kept=True) <= 1 + SMALL


@settings(max_examples=25, deadline=None)
@given(st.lists(laws((0.0, 1.0)), min_size=1, max_size=3))
def test_right_or_wrong_answers_expect_at_most_one_while_the_canary_is_not_the_likelier_to_err(drawn: list[Law]) -> None:
    within = [law if loss(law) <= 0 else tilted(law, KEPT, 0.0) for law in drawn]
    assert expected(within, 0.0, kept=False, binary=True) <= 1 + SMALL
    equal = [tilted(law, KEPT if loss(law) > 0 else LOST, 0.0) for law in drawn]
    assert expected(equal, 0.0, kept=False, binary=True) == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(laws((0.0, 1.0)), st.floats(0.0, 0.9))
def test_an_answer_that_did_not_come_is_no_score(law: Law, broken: float) -> None:
    """Its chance may depend on anything but the scores of the pairs that came whole."""
    law = tilted(law, KEPT if loss(law) > 0.05 else LOST, 0.05)
    law = {p: q * (1 - broken) for p, q in law.items()} | {QualityPair(1.0, None): broken / 2, QualityPair(None, None): broken / 2}
    assert expected([law, law], 0.05, kept=True) == pytest.approx(1.0)
    assert not quality_lost([QualityPair(1.0, None), QualityPair(None, 0.0)], 0.0, binary=True).any()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(QualityPair, st.sampled_from(LEVELS), st.sampled_from((0.5, 1.0))), min_size=1, max_size=6), st.data())
def test_a_worse_answer_of_the_canary_is_never_less_evidence_against_it(pairs: list[QualityPair], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(pairs) - 1))
    worse = [QualityPair(p.stable, 0.0) if j == i else p for j, p in enumerate(pairs)]
    assert np.all(quality_lost(worse, 0.02, binary=False) >= quality_lost(pairs, 0.02, binary=False) - SMALL)
    assert np.all(quality_kept(worse, 0.05) <= quality_kept(pairs, 0.05) + SMALL)


@pytest.mark.parametrize("kind", ["graded", "binary"])
def test_prompts_replayed_in_one_window_or_in_many_give_the_same_evidence_once(kind: str) -> None:
    told = config_for("sparse", rungs=1, noise=(0.0, 0.0), quality=kind)
    answers = tuple(QualityPair(float(i % 3 > 0), float(i % 2)) for i in range(12))
    at_once = absorb(told, new_state(told), Window(0, 0, 0.0, QUIET, QUIET, quality=answers))
    one_by_one = new_state(told)
    for i, answer in enumerate(answers):
        window = Window(i, 0, 0.0, QUIET, QUIET, quality=(answer,))
        one_by_one = absorb(told, absorb(told, one_by_one, window), window)
    for name in ("fail/quality/0", "pass/quality"):
        assert at_once.banks[name].log.any()
        np.testing.assert_allclose(one_by_one.banks[name].log, at_once.banks[name].log)
