"""E[e] <= 1, by listing every outcome: thresholds, ordinal part and failed requests, on both sides, at every null we can name."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis.asks import Ask, answer
from rollout.analysis.errors import ALTERNATIVES, harmless_gain, worse
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.reference import Reference
from rollout.analysis.samples import Histogram
from tests.unit.analysis.exact import binomial, buckets, deals, exceeding, expit, logit

EDGES = (0.1, 0.25, 0.5)
QUIET = Noise()
TEST = LatencyTest("ttft", Reference(Histogram(EDGES, (400, 300, 200, 100))), 0.05, 0.2, 2.0, QUIET)
SMALL = 1e-9

laws = st.lists(st.floats(0.03, 1.0), min_size=4, max_size=4).map(lambda w: [x / sum(w) for x in w])
slacks = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 3.0)), min_size=3, max_size=3)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))


def table(ask: Ask) -> Floats:
    return answer([ask])[0]


def mixtures(ask: Ask) -> Floats:
    """The e-value of each row after one window."""
    rows = table(ask)
    count, hypotheses, _ = rows.shape
    return np.exp(Bank.fresh(count, hypotheses - 1, QUIET).step(rows, QUIET).log_mixture())


def histograms(size: tuple[int, int], canary: list[float], stable: list[float]) -> list[tuple[Histogram, Histogram, float]]:
    """Every pair of (canary, stable) windows with its probability."""
    return [
        (Histogram(EDGES, a), Histogram(EDGES, b), p * q)
        for (a, p), (b, q) in itertools.product(deals(size[0], canary), deals(size[1], stable))
    ]


@settings(max_examples=30, deadline=None)
@given(sizes, laws, slacks)
def test_thresholds_expect_at_most_one_while_no_edge_is_worse_than_tolerated(
    size: tuple[int, int], stable: list[float], slack: list[float]
) -> None:
    assert TEST.edges == EDGES
    worst = [TEST.reference.shift(e, TEST.tolerated) for e in EDGES]
    above = [expit(logit(p) + w - s) for p, w, s in zip(exceeding(stable), worst, slack, strict=True)]
    canary = buckets(list(np.minimum.accumulate(above)))  # a law: no later edge is exceeded more often
    expected = sum(p * mixtures(TEST.thresholds(ours, theirs)) for ours, theirs, p in histograms(size, canary, stable))
    assert np.all(expected <= 1 + SMALL)
    if not any(slack) and above == sorted(above, reverse=True):
        np.testing.assert_allclose(expected, 1.0, atol=SMALL)  # nothing is given away at the margin itself


@settings(max_examples=30, deadline=None)
@given(sizes, laws, slacks)
def test_harmless_expects_at_most_one_on_every_edge_at_its_unacceptable_margin_or_beyond(
    size: tuple[int, int], stable: list[float], slack: list[float]
) -> None:
    proved = (*TEST.body, *TEST.tail)
    margins = dict(zip(proved, TEST.pass_margins, strict=True))
    assert proved
    above = [expit(logit(p) + margins.get(e, 0.0) + s) for e, p, s in zip(EDGES, exceeding(stable), slack, strict=True)]
    canary = buckets(list(np.maximum.accumulate(above[::-1])[::-1]))
    expected = sum(p * mixtures(TEST.harmless(ours, theirs)) for ours, theirs, p in histograms(size, canary, stable))
    assert np.all(expected <= 1 + SMALL)


def reversed_hazards(law: list[float], change: list[float]) -> list[float]:
    """The law whose log odds "in bucket b, given b or below" differ by `change` for b = 2..B."""
    below, out = 1.0, []
    for b in range(len(law) - 1, 0, -1):
        inside = expit(logit(law[b] / sum(law[: b + 1])) + change[b - 1])
        out.append(below * inside)
        below *= 1 - inside
    return [below, *out[::-1]]


@pytest.mark.parametrize("tolerated", [0.05, 0.5])
@settings(max_examples=20, deadline=None)
@given(size=sizes, stable=laws, slack=slacks)
def test_the_ordinal_part_expects_at_most_one_while_no_bucket_is_worse_than_tolerated(
    tolerated: float, size: tuple[int, int], stable: list[float], slack: list[float]
) -> None:
    """At a tolerance beyond some of the bets too: those must not bet on the canary being better than it."""
    test = LatencyTest("ttft", TEST.reference, tolerated, 0.6, 2.0, QUIET)
    null = test.reference.reverse_hazard_shift(EDGES, tolerated)
    canary = reversed_hazards(stable, [float(n) - s for n, s in zip(null, slack, strict=True)])
    assert sum(canary) == pytest.approx(1.0)
    expected = 0.0
    for ours, theirs, p in histograms(size, canary, stable):
        ask = test.ordinal(ours, theirs)
        assert ask
        expected += p * float(mixtures(ask)[0])
    assert expected <= 1 + SMALL
    assert any(slack) or expected == pytest.approx(1.0, abs=SMALL)


@pytest.mark.parametrize("shared", [(0.1, 0.5), (0.25, 0.5)])
def test_the_ordinal_part_over_the_edges_both_sides_have_expects_at_most_one(shared: tuple[float, ...]) -> None:
    stable = [0.4, 0.3, 0.2, 0.1]
    expected = 0.0
    for ours, theirs, p in histograms((3, 3), stable, stable):
        ask = TEST.ordinal(ours.rebin(shared), theirs)
        assert ask
        expected += p * float(mixtures(ask)[0])
    assert 0.9 < expected <= 1 + SMALL


def test_windows_whose_size_and_load_follow_from_what_was_seen_expect_at_most_one() -> None:
    """The second window is large after a bad first one, and its base rate is another: still a fair bet."""
    first, second = [0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]
    expected = np.zeros(len(EDGES))
    for ours, theirs, p in histograms((2, 2), first, first):
        bank = TEST.fresh_fail()[0].step(table(TEST.thresholds(ours, theirs)), QUIET)
        size = (2, 1) if ours.counts[0] == 0 else (1, 1)
        for a, b, q in histograms(size, second, second):
            expected += p * q * np.exp(bank.step(table(TEST.thresholds(a, b)), QUIET).log_mixture())
    assert np.all(expected <= 1 + SMALL)


strata = st.tuples(st.integers(0, 4), st.integers(0, 4), st.floats(0.001, 0.99), st.one_of(st.just(0.0), st.floats(0.0, 3.0)))


@settings(max_examples=40, deadline=None)
@given(strata, strata, st.sampled_from([1.0, 1.25, 3.0]))
def test_failed_requests_expect_at_most_one_at_every_odds_ratio_that_is_tolerated(
    served: tuple[int, int, float, float], probed: tuple[int, int, float, float], tolerated: float
) -> None:
    """Two strata of one window, each with its own base rate and its own odds ratio at or below the margin."""
    expected = 0.0
    rows = []
    for n, m, stable, below in (served, probed):
        canary = expit(logit(stable) + math.log(tolerated) - below)
        rows.append([(n, m, a, b, binomial(n, a, canary) * binomial(m, b, stable)) for a in range(n + 1) for b in range(m + 1)])
    for one, two in itertools.product(*rows):
        expected += one[4] * two[4] * float(mixtures(worse([one[:4], two[:4]], tolerated))[0])
    assert expected <= 1 + SMALL
    assert served[3] or probed[3] or expected == pytest.approx(1.0, abs=SMALL)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=9), st.floats(0.1, 0.9), st.sampled_from([1.0, 1.25]))
def test_coin_flip_routing_of_whatever_happens_expects_at_most_one(fates: list[bool], share: float, tolerated: float) -> None:
    """The requests' fates are fixed and as dependent as one likes; only who serves them is chance."""
    expected = 0.0
    for sides in itertools.product((False, True), repeat=len(fates)):
        n, a = sum(sides), sum(f and s for f, s in zip(fates, sides, strict=True))
        row = (n, len(fates) - n, a, sum(fates) - a)
        expected += share**n * (1 - share) ** (len(fates) - n) * float(mixtures(worse([row], tolerated))[0])
    assert expected <= 1 + SMALL


seen = st.sampled_from([(0, 0), (3, 400), (30, 60), (0, 100_000)])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 0.95), st.floats(0, 1), st.sampled_from([0.01, 0.05, 0.3]), seen)
def test_harmless_errors_expect_at_most_one_at_every_difference_that_is_unacceptable(
    n: int, m: int, stable: float, beyond: float, margin: float, past: tuple[int, int]
) -> None:
    stable = min(stable, 1 - margin)
    canary = stable + margin + beyond * (1 - stable - margin)
    expected = np.zeros(len(ALTERNATIVES))
    for a, b in itertools.product(range(n + 1), range(m + 1)):
        expected += binomial(n, a, canary) * binomial(m, b, stable) * np.exp(harmless_gain((n, m, a, b), past, margin))
    assert np.all(expected <= 1 + SMALL)


rates = st.lists(st.floats(0, 1), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(rates, rates, st.sampled_from([0.01, 0.05, 0.3]), seen)
def test_requests_of_one_window_may_fail_at_different_rates(
    stable: list[float], canary: list[float], margin: float, past: tuple[int, int]
) -> None:
    """Only the averages have to satisfy "the canary fails at least `margin` more often"."""
    short = margin - (sum(canary) / len(canary) - sum(stable) / len(stable))
    if short > 0:  # squeeze towards 0 and 1 until the averages are far enough apart
        gap = sum(canary) / len(canary) + 1 - sum(stable) / len(stable)
        part = short / (2 - gap)
        canary = [r + part * (1 - r) for r in canary]
        stable = [r * (1 - part) for r in stable]
    assert sum(canary) / len(canary) - sum(stable) / len(stable) >= margin - SMALL
    expected = np.zeros(len(ALTERNATIVES))
    for bits in itertools.product((0, 1), repeat=len(stable) + len(canary)):
        p = math.prod(r if bit else 1 - r for r, bit in zip((*stable, *canary), bits, strict=True))
        if p:
            a, b = sum(bits[len(stable) :]), sum(bits[: len(stable)])
            expected += p * np.exp(harmless_gain((len(canary), len(stable), a, b), past, margin))
    assert np.all(expected <= 1 + 1e-7)


part = st.floats(0, 1)
causes = st.lists(st.tuples(part, part, part), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(causes, st.sampled_from([1.0, 1.25]))
def test_pairs_of_our_own_requests_may_fail_together(prompts: list[tuple[float, float, float]], tolerated: float) -> None:
    """A cause that both sides share (a hard prompt, a moment of overload) is there or not; given it, each side fails by its own chance."""
    margin = 0.05

    def law(more: float) -> list[list[float]]:
        """By prompt: the chances of (stable, canary) failing = (0, 0), (0, 1), (1, 0), (1, 1)."""
        found = []
        for there, hard, easy in prompts:
            states = [(there, hard * (1 - more)), (1 - there, easy * (1 - more))]
            sides = [(w, (1 - s, s), (1 - s - more, s + more)) for w, s in states]
            found.append([sum(w * stable[i] * canary[j] for w, stable, canary in sides) for i in (0, 1) for j in (0, 1)])
        return found

    equal, unacceptable = law(0.0), law(margin)
    against, kept = 0.0, np.zeros(len(ALTERNATIVES))
    for fates in itertools.product(range(4), repeat=len(prompts)):
        n, a, b = len(prompts), sum(f % 2 for f in fates), sum(f // 2 for f in fates)
        same, worst = (math.prod(one[f] for one, f in zip(each, fates, strict=True)) for each in (equal, unacceptable))
        against += same * float(mixtures(worse([(n, n, a, b)], tolerated))[0])
        kept += worst * np.exp(harmless_gain((n, n, a, b), (3, 400), margin))
    assert against <= 1 + SMALL
    assert np.all(kept <= 1 + SMALL)


counts = st.lists(st.integers(0, 30), min_size=4, max_size=4)


@settings(max_examples=60, deadline=None)
@given(counts, counts, st.integers(0, 2))
def test_a_canary_request_that_took_longer_is_never_less_evidence(ours: list[int], theirs: list[int], bucket: int) -> None:
    ours[bucket] += 1
    slower = [c - (i == bucket) + (i == bucket + 1) for i, c in enumerate(ours)]
    before, after = (mixtures(TEST.thresholds(Histogram(EDGES, tuple(h)), Histogram(EDGES, tuple(theirs)))) for h in (ours, slower))
    assert np.all(after >= before * (1 - SMALL))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_one_more_failure_on_the_canary_is_never_less_evidence_and_one_more_on_stable_never_more(
    n: int, m: int, data: st.DataObject
) -> None:
    a, b = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, m - 1))
    base, more, less = (float(mixtures(worse([row], 1.25))[0]) for row in ((n, m, a, b), (n, m, a + 1, b), (n, m, a, b + 1)))
    assert less <= base * (1 + SMALL)
    assert more >= base * (1 - SMALL)
    kept, lost = harmless_gain((n, m, a, b), (3, 400), 0.02), harmless_gain((n, m, a + 1, b), (3, 400), 0.02)
    assert np.all(lost <= kept + SMALL)
