"""The latency tests: threshold and ordinal parts, harmlessness, the interval, and unequal bucket sets."""

import itertools
import math

import numpy as np
import pytest

from rollout.analysis.asks import Ask, answer
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import LatencyTest, log_odds_interval
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.reference import Reference
from rollout.analysis.samples import Histogram
from tests.unit.analysis.test_reference import EDGES, above, lognormal

QUIET = Noise()


def looked(ask: Ask | None) -> Floats | None:
    return answer([ask])[0] if ask is not None else None


def latency(tolerated: float = 0.0, noise: Noise = QUIET, reference: Histogram | None = None) -> LatencyTest:
    return LatencyTest("ttft", Reference(reference or lognormal()), tolerated, 0.2, 2.0, noise)


def draws(rng: np.random.Generator, requests: int, slow: float = 1.0) -> Histogram:
    bounds = np.array([1.0, *(above(e / slow) for e in EDGES), 0.0])
    return Histogram(EDGES, tuple(int(c) for c in rng.multinomial(requests, -np.diff(bounds))))


def follow(test: LatencyTest, pairs: list[tuple[Histogram, Histogram]]) -> tuple[float, dict[str, float], Bank]:
    """log E_FAIL, log E_PASS by claim, and the interval bank after (canary, stable) pairs."""
    (edges, ordinal), harmless, effect = test.fresh_fail(), test.fresh_pass(), test.fresh_interval()
    for canary, stable in pairs:
        edges = edges.step(looked(test.thresholds(canary, stable)), test.noise)
        ordinal = ordinal.step(looked(test.ordinal(canary, stable)), test.noise)
        harmless = harmless.step(looked(test.harmless(canary, stable)), test.noise)
        effect = effect.step(looked(test.effect(canary, stable)), test.noise)
    return test.log_fail(edges, ordinal), test.log_pass(harmless), effect


def world(slow: float, windows: int = 40, seed: int = 3) -> list[tuple[Histogram, Histogram]]:
    rng = np.random.default_rng(seed)
    return [(draws(rng, 40, slow), draws(rng, 200)) for _ in range(windows)]


def test_edges_are_chosen_by_their_exceedance_in_the_reference() -> None:
    test = latency()
    assert test.edges == tuple(e for e in EDGES if 0.003 <= above(e) <= 0.9)
    assert set(test.body) <= set(test.edges)
    assert all(0.02 <= above(e) <= 0.2 for e in test.tail)


def test_the_ordinal_factor_is_an_e_value_by_exact_enumeration() -> None:
    """All ways to deal 3 canary and 4 stable requests out of given buckets, under equal arms: the ratio averages to one."""
    edges = (0.25, 0.5)
    test = latency(reference=Histogram(edges, (300, 400, 300)))
    pooled = [0, 0, 1, 1, 1, 2, 2]
    chosen = list(itertools.combinations(range(len(pooled)), 3))
    totals = np.zeros(6)
    for canary in chosen:
        ours = [sum(pooled[i] == b for i in canary) for b in range(3)]
        theirs = [pooled.count(b) - ours[b] for b in range(3)]
        logs = looked(test.ordinal(Histogram(edges, tuple(ours)), Histogram(edges, tuple(theirs))))
        assert logs is not None
        totals += np.exp(logs[0, 1:, 0] - logs[0, 0, 0]) / len(chosen)
    np.testing.assert_allclose(totals, 1.0, atol=1e-9)


def test_a_slow_canary_raises_fail_and_lowers_pass_and_an_equal_one_the_reverse() -> None:
    slow_fail, slow_pass, _ = follow(latency(), world(1.5))
    same_fail, same_pass, _ = follow(latency(), world(1.0))
    assert slow_fail > math.log(100) > same_fail
    assert same_pass["ttft body"] > math.log(20) > slow_pass["ttft body"]


def test_both_arms_slowing_together_is_no_evidence() -> None:
    rng = np.random.default_rng(5)
    factors = np.exp(0.6 * np.sin(np.arange(60) / 5))
    together = [(draws(rng, 40, f), draws(rng, 200, f)) for f in factors]
    assert follow(latency(), together)[0] < math.log(10)


def test_a_wider_tolerance_never_gives_more_evidence() -> None:
    pairs = world(1.3)
    evidence = [follow(latency(tolerated), pairs)[0] for tolerated in (0.0, 0.05, 0.1, 0.2)]
    assert evidence == sorted(evidence, reverse=True)


def test_an_edge_that_one_side_lacks_is_left_out_and_the_rest_still_counts() -> None:
    whole = world(1.5)
    fewer = [(canary.rebin((0.25, 0.5, 1.0)), stable) for canary, stable in whole]
    none = [(canary.rebin((5.0,)), stable.rebin((2.5,))) for canary, stable in whole]
    assert math.log(20) < follow(latency(), fewer)[0] < follow(latency(), whole)[0]
    assert follow(latency(), none)[0] == pytest.approx(0.0)
    assert max(follow(latency(), none)[1].values()) == pytest.approx(0.0)


def test_the_interval_holds_the_true_odds_ratio_and_narrows() -> None:
    test = latency()
    edge = test.headlines[0]
    truth = math.log(above(edge / 1.2) / (1 - above(edge / 1.2))) - math.log(above(edge) / (1 - above(edge)))
    widths = []
    for windows in (10, 40, 160):
        effect = follow(test, world(1.2, windows))[2]
        low, high = log_odds_interval(effect, effect, 0, 0.95)
        assert low is not None
        assert high is not None
        assert low < truth < high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    effect = follow(latency(), world(1.2))[2]
    (low, high), (lower, higher) = (log_odds_interval(effect, effect, 0, c) for c in (0.9, 0.99))
    assert None not in (low, high, lower, higher)
    assert (lower or 0) < (low or 0) < (high or 0) < (higher or 0)


def test_before_any_window_the_interval_has_no_bounds() -> None:
    fresh = latency().fresh_interval()
    assert log_odds_interval(fresh, fresh, 0, 0.95) == (None, None)
