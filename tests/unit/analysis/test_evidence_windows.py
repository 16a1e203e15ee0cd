"""Windows split, merged, empty, doubled, saved and read again: the same evidence, once.

Splitting: a window's requests judged as two windows give the product of two e-values, which is an e-value whatever the halves were.
Merging: what a missed scrape adds together is one window with the sums, and its requests count once.
"""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis import ArmWindow, Histogram, JudgeConfig, JudgeState, Window, absorb, absorb_many, config_for, new_state, verdict
from rollout.analysis.asks import answer
from rollout.analysis.design import design_of, log_fail, log_pass
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.recorded import window_from_json, window_to_json
from rollout.analysis.reference import Reference
from tests.unit.analysis.exact import deals
from tests.unit.analysis.random_windows import EDGES, REFERENCE, rollouts

QUIET = Noise()
SMALL = 1e-9
THREE = (0.1, 0.25)
TEST = LatencyTest("ttft", Reference(Histogram(THREE, (400, 300, 300))), 0.0, 0.2, 2.0, QUIET)
V1 = json.loads((Path(__file__).parent / "data" / "state_v1.json").read_text("utf-8"))
NOISES = [(0.0, 0.0), (0.2, 0.8)]


def asked(noise: tuple[float, float] = (0.0, 0.0), mode: Any = "rich", rungs: int = 2) -> JudgeConfig:
    told = {"reference_ttft": REFERENCE, "reference_e2e": REFERENCE, "reference_tpot": REFERENCE}
    more: dict[str, Any] = {"quality": "graded", "memory_noise": (3e8, 0.9), "memory_floor": 1 << 30, "probe_slo": 0.5}
    return config_for(mode, rungs=rungs, noise=noise, **told, **more)


def saved(state: JudgeState) -> str:
    return json.dumps(state.to_json(), allow_nan=False)


def through_json(state: JudgeState) -> JudgeState:
    return JudgeState.from_json(json.loads(saved(state)))


def evidence(banks: tuple[Bank, Bank]) -> float:
    return float(np.exp(TEST.log_fail(*banks)))


def after(banks: tuple[Bank, Bank], canary: Histogram, stable: Histogram) -> tuple[Bank, Bank]:
    profile = TEST.ordinal(canary, stable)
    assert profile
    edges, whole = answer([TEST.thresholds(canary, stable), profile])
    return banks[0].step(edges, QUIET), banks[1].step(whole, QUIET)


def test_the_product_over_split_windows_is_an_e_value_whatever_load_the_halves_had() -> None:
    """Two requests a side in each half, equal arms, calm and crowded: every outcome of both halves."""
    halves = []
    for law in ([0.7, 0.2, 0.1], [0.1, 0.3, 0.6]):
        dealt = [(Histogram(THREE, counts), p) for counts, p in deals(2, law)]
        halves.append([(a, b, p * q) for (a, p), (b, q) in itertools.product(dealt, dealt)])
    expected = 0.0
    for a, b, p in halves[0]:
        first = after(TEST.fresh_fail(), a, b)
        expected += sum(p * q * evidence(after(first, c, d)) for c, d, q in halves[1])
    assert 0.9 < expected <= 1 + SMALL


def test_windows_merged_by_a_missed_scrape_are_an_e_value_and_count_once() -> None:
    """One table with the sums; at one load E <= 1, and it is not the evidence of both halves on top of that."""
    law = [0.5, 0.3, 0.2]
    dealt = [(Histogram(THREE, counts), p) for counts, p in deals(4, law)]
    expected = sum(p * q * evidence(after(TEST.fresh_fail(), a, b)) for (a, p), (b, q) in itertools.product(dealt, dealt))
    assert 0.9 < expected <= 1 + SMALL
    slow, fast = Histogram(THREE, (0, 1, 3)), Histogram(THREE, (3, 1, 0))
    merged = after(TEST.fresh_fail(), slow.plus(slow), fast.plus(fast))
    split = after(after(TEST.fresh_fail(), slow, fast), slow, fast)
    assert evidence(split) == pytest.approx(evidence(merged), rel=0.35)  # the same requests, counted once either way


def test_cutting_a_window_where_its_outcome_says_so_is_what_the_judge_never_does() -> None:
    """Why windows come from a clock: requests sorted into "good" and "bad" windows say nothing, as they should."""
    bad, good = Histogram(THREE, (0, 0, 4)), Histogram(THREE, (4, 0, 0))
    assert evidence(after(after(TEST.fresh_fail(), bad, bad), good, good)) == pytest.approx(1.0)


@pytest.mark.parametrize("noise", NOISES)
@settings(max_examples=25, deadline=None)
@given(seen=rollouts(most=6))
def test_saved_and_restored_at_every_window_everything_later_is_bit_equal(noise: tuple[float, float], seen: list[Window]) -> None:
    told = asked(noise)
    straight = stored = new_state(told)
    for window in seen:
        told_again = JudgeConfig.from_json(json.loads(json.dumps(told.to_json(), allow_nan=False)))
        read = window_from_json(json.loads(json.dumps(window_to_json(window), allow_nan=False)))
        assert told_again == told
        assert read == window
        straight, stored = absorb(told, straight, window), absorb(told_again, through_json(stored), read)
        assert saved(stored) == saved(straight)
        assert verdict(told_again, stored) == verdict(told, straight)


@settings(max_examples=15, deadline=None)
@given(rollouts(least=2), st.data())
def test_windows_that_come_twice_or_out_of_order_change_nothing(seen: list[Window], data: st.DataObject) -> None:
    """A crash repeats windows, a slow source hands in old ones: only an id above the last one counts."""
    told = asked()
    once = state = new_state(told)
    for i, window in enumerate(seen):
        once = state = absorb(told, once, window)
        for j in data.draw(st.lists(st.integers(0, i), max_size=3)):
            state = absorb(told, state, replace(seen[j], canary=ArmWindow(50, 50)))
            assert state is once
    assert saved(state) == saved(once)


@settings(max_examples=12, deadline=None)
@given(st.lists(rollouts(least=3, most=3), min_size=2, max_size=4))
def test_rollouts_in_lockstep_are_judged_as_each_alone(seen: list[list[Window]]) -> None:
    """Unlike configs, other windows, some of them old: what is computed together does not mix."""
    told = [asked(NOISES[i % 2], ("rich", "thin", "sparse")[i % 3], 1 + i % 2) for i in range(len(seen))]
    together = alone = [new_state(config) for config in told]
    for windows in (*zip(*seen, strict=True), [some[0] for some in seen]):
        together = absorb_many(told, together, windows)
        alone = [absorb(*one) for one in zip(told, alone, windows, strict=True)]
    for config, one, other in zip(told, together, alone, strict=True):
        assert one.banks.keys() == other.banks.keys()
        for name, bank in one.banks.items():
            np.testing.assert_allclose(bank.log, other.banks[name].log, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(bank.law.astype(float), other.banks[name].law.astype(float), rtol=2e-3, atol=1e-7)
        assert (one.tally, one.breaker, one.trend, one.last_id) == (other.tally, other.breaker, other.trend, other.last_id)
        assert verdict(config, one).kind == verdict(config, other).kind


EMPTY = Histogram(EDGES, (0,) * (len(EDGES) + 1))
SOME = Histogram(EDGES, (5, 9, 7, 2, 1, 0))
FASTEST = Histogram(EDGES, (9, 0, 0, 0, 0, 0))
SLOWEST = Histogram(EDGES, (0, 0, 0, 0, 0, 9))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("canary", "stable"), [(EMPTY, SOME), (SOME, EMPTY), (EMPTY, EMPTY), (FASTEST, FASTEST), (SLOWEST, SLOWEST), (None, SOME), (SOME, None)]
)
def test_nothing_to_compare_gives_exactly_nothing(noise: tuple[float, float], canary: Histogram | None, stable: Histogram | None) -> None:
    """n = 0, m = 0, k = 0 or k = n + m at every edge: latency evidence on both sides stays where it was."""
    told = asked(noise, rungs=1)
    arm = [ArmWindow(h.total if h else 0, 0, h, h, tpot=h) for h in (SOME, SLOWEST, canary, stable)]
    before = absorb(told, new_state(told), Window(0, 0, 30.0, arm[0], arm[1], (), 1.0))
    later = absorb(told, before, Window(1, 0, 30.0, arm[3], arm[2], (), 1.0))
    moved = 0
    for name, bank in later.banks.items():
        if any(metric in name for metric in ("ttft", "e2e", "tpot", "effect")):
            moved += bool(np.any(before.banks[name].log))
            np.testing.assert_allclose(bank.log, before.banks[name].log, rtol=0, atol=0 if noise[0] == 0 else 1e-12)
    assert moved


@pytest.mark.parametrize(("n", "m", "failed"), [(0, 50, (0, 3)), (50, 0, (3, 0)), (50, 50, (0, 0)), (4, 5, (4, 5))])
def test_failures_on_one_side_alone_or_everywhere_or_nowhere_are_exactly_no_odds(n: int, m: int, failed: tuple[int, int]) -> None:
    told = asked(rungs=1)
    state = absorb(told, new_state(told), Window(0, 0, 30.0, ArmWindow(m, failed[1]), ArmWindow(n, failed[0]), (), 1.0))
    assert not np.any(state.banks["fail/errors/0"].log)


@pytest.mark.parametrize("kind", ["quiet", "noisy"])
def test_a_state_of_the_first_release_is_read_and_goes_on(kind: str) -> None:
    """Written by release 0.1.0: its evidence by metric is kept, and another window can be taken in and saved."""
    old = V1[kind]
    told, state = JudgeConfig.from_json(old["config"]), JudgeState.from_json(old["state"])
    for claim, log in old["log_pass"].items():
        assert log_pass(design_of(told), state)[claim] == pytest.approx(log, abs=1e-9)
    assert verdict(told, state).kind == old["kind"]
    assert state.last_id == old["state"]["last_id"]
    reference = told.reference("ttft")
    assert reference
    arm = ArmWindow(reference.total, 0, reference)
    later = absorb(told, state, Window(state.last_id + 1, 1, 30.0, arm, arm, (), 1.0, 0.5))
    assert later.last_id == state.last_id + 1
    assert saved(through_json(later)) == saved(later)
    assert log_fail(design_of(told), later)[0] < log_fail(design_of(told), state)[0]
    assert log_pass(design_of(told), later)["errors"] > log_pass(design_of(told), state)["errors"]
