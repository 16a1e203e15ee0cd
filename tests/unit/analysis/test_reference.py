"""The reference histogram as a curve: margins in time become odds ratios and back."""

import itertools
import math
from statistics import NormalDist

import pytest

from rollout.analysis.reference import Reference
from rollout.analysis.samples import Histogram, common_edges

EDGES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
NORMAL = NormalDist()


def above(seconds: float, median: float = 0.3, sigma: float = 0.5) -> float:
    return 1.0 - NORMAL.cdf(math.log(seconds / median) / sigma)


def lognormal(edges: tuple[float, ...] = EDGES, total: int = 1_000_000, median: float = 0.3) -> Histogram:
    bounds = [1.0, *(above(e, median) for e in edges), 0.0]
    return Histogram(edges, tuple(round(total * (a - b)) for a, b in itertools.pairwise(bounds)))


def test_at_an_edge_the_curve_is_the_observed_log_odds() -> None:
    assert Reference(lognormal()).logit(0.5) == pytest.approx(math.log(above(0.5) / (1 - above(0.5))), abs=1e-3)


def test_a_slow_down_and_its_odds_ratio_translate_back_and_forth() -> None:
    reference = Reference(lognormal())
    for slowdown in (-0.3, 0.05, 0.2, 1.0):
        assert reference.slowdown(0.5, reference.shift(0.5, slowdown)) == pytest.approx(slowdown, abs=1e-6)


@pytest.mark.parametrize("median", [0.12, 0.17, 0.22, 0.3, 0.42, 0.6, 0.9])
@pytest.mark.parametrize("slowdown", [0.2, 0.5])
def test_the_margin_to_disprove_never_exceeds_the_true_shift_of_a_lognormal(median: float, slowdown: float) -> None:
    reference = Reference(lognormal(median=median))
    for edge in reference.body_edges(slowdown):
        odds = [p / (1 - p) for p in (above(edge / (1 + slowdown), median), above(edge, median))]
        assert 0 < reference.shift_to_prove(edge, slowdown) <= math.log(odds[0] / odds[1]) + 0.01


def test_body_edges_lie_in_the_middle_of_the_reference() -> None:
    reference = Reference(lognormal(median=0.22))
    assert reference.body_edges(0.2) == tuple(e for e in EDGES if 0.2 <= above(e, 0.22) <= 0.6) == (0.25,)


def test_coarse_buckets_borrow_the_edge_nearest_to_the_body() -> None:
    assert Reference(lognormal(edges=(0.1, 0.5, 2.5))).body_edges(0.2) == (0.5,)


def test_a_body_inside_one_bucket_cannot_be_proved_at_all() -> None:
    assert Reference(Histogram((1.0, 60.0), (0, 1000, 0))).body_edges(0.2) == ()


def test_ordinal_buckets_are_never_thin() -> None:
    reference = Reference(lognormal())
    kept = [1.0, *(above(e) for e in reference.ordinal_edges()), 0.0]
    assert all(a - b >= 0.0025 for a, b in itertools.pairwise(kept))


def test_no_slow_down_has_no_reverse_hazard_shift() -> None:
    reference = Reference(lognormal())
    edges = reference.ordinal_edges()
    assert abs(reference.reverse_hazard_shift(edges, 0.0)).max() == 0.0
    assert (reference.reverse_hazard_shift(edges, 0.2) > 0).all()


@pytest.mark.parametrize("histogram", [Histogram((0.1,), (0, 0)), Histogram((), (5,)), Histogram((0.0,), (5, 5))])
def test_an_empty_reference_is_refused(histogram: Histogram) -> None:
    with pytest.raises(ValueError, match="reference histogram is empty"):
        Reference(histogram)


def test_rebinning_keeps_every_request_and_refuses_to_split() -> None:
    fine = Histogram((0.1, 0.2, 0.4), (1, 2, 3, 4))
    assert fine.rebin((0.2,)) == Histogram((0.2,), (3, 7))
    assert common_edges(fine, Histogram((0.2, 0.3), (1, 1, 1))) == (0.2,)
    with pytest.raises(ValueError, match="cannot split"):
        fine.rebin((0.3,))


@pytest.mark.parametrize(
    ("edges", "counts", "why"), [((0.1,), (1,), "need 2 counts"), ((0.2, 0.1), (1, 1, 1), "increase"), ((0.1,), (1, -1), "at least 0")]
)
def test_a_malformed_histogram_is_refused(edges: tuple[float, ...], counts: tuple[int, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Histogram(edges, counts)
