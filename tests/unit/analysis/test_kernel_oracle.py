"""scipy's noncentral hypergeometric law and full sums as oracles of the kernel, at the largest windows; at run time no scipy."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln
from scipy.stats import nchypergeom_fisher

import rollout
from rollout.analysis.hypergeometric import Counts, Floats

THETA = np.array([-7.0, -3.5, -1.1, -0.4, 0.0, 0.2, 0.8, 2.6, 6.0])  # alternatives and the far places of the widest noise grid
LARGE = [(2_000, 18_000, 8_000, 830), (10_000, 10_000, 9_000, 4_400)]


def ours(rows: list[tuple[int, int, int, int]], theta: Floats) -> Floats:
    n, m, k, bad = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Counts(n, m, k, bad).log_likelihood(np.broadcast_to(theta, (len(rows), len(theta))))


def in_full(row: tuple[int, int, int, int], theta: Floats) -> Floats:
    """log P(A | n, m, k; theta) with every summand, nothing cut off."""
    n, m, k, bad = row
    a = np.arange(max(0, k - m), min(n, k) + 1)
    base = gammaln(n + 1) - gammaln(a + 1) - gammaln(n - a + 1) + gammaln(m + 1) - gammaln(k - a + 1) - gammaln(m - k + a + 1)
    return np.array([base[bad - a[0]] + t * bad - np.logaddexp.reduce(base + t * a) for t in theta])


def tables(largest: int) -> st.SearchStrategy[tuple[int, int, int, int]]:
    def filled(sizes: tuple[int, int], k: float, a: float) -> tuple[int, int, int, int]:
        n, m = sizes
        bad = round(k * (n + m))
        low, high = max(0, bad - m), min(n, bad)
        return n, m, bad, low + round(a * (high - low))

    size = st.one_of(st.integers(1, min(300, largest)), st.integers(largest // 4, largest))
    return st.builds(filled, st.tuples(size, size), st.floats(0, 1), st.floats(0, 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(tables(20_000), min_size=1, max_size=3))
def test_windows_of_any_size_match_the_full_sum(rows: list[tuple[int, int, int, int]]) -> None:
    """Several rows of different length at once: the stretch around the mode is chosen for all of them together."""
    mine = ours(rows, THETA)
    for row, logs in zip(rows, mine, strict=True):
        whole = in_full(row, THETA)
        np.testing.assert_allclose(logs - logs[4], whole - whole[4], atol=1e-8, rtol=1e-10)


@settings(max_examples=40, deadline=None)
@given(tables(200))
def test_windows_of_usual_size_match_scipy(row: tuple[int, int, int, int]) -> None:
    n, m, k, a = row
    theta = np.array([-1.1, 0.0, 0.2, 1.2])
    theirs = np.array([nchypergeom_fisher.logpmf(a, n + m, k, n, math.exp(t)) for t in theta])
    mine = ours([row], theta)[0]
    known = theirs > -100  # scipy gives up (or loses digits) in the farthest tails
    if known[1]:
        np.testing.assert_allclose((mine - mine[1])[known], (theirs - theirs[1])[known], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(
    "row", [(2_000, 18_000, 8_000, 830), (10_000, 10_000, 9_000, 4_400), (1_000, 19_000, 60, 7), (6_000, 14_000, 19_000, 5_800)]
)
def test_twenty_thousand_requests_match_scipy(row: tuple[int, int, int, int]) -> None:
    n, m, k, a = row
    theta = np.array([-0.3, 0.0, 0.1, 0.3])
    theirs = np.array([nchypergeom_fisher.logpmf(a, n + m, k, n, math.exp(t)) for t in theta])
    mine = ours([row], theta)[0]
    np.testing.assert_allclose(mine - mine[1], theirs - theirs[1], atol=1e-6)


@pytest.mark.parametrize("row", [*LARGE, (9_000, 9_000, 300, 140)])
def test_cutting_the_sum_off_around_the_mode_costs_nothing_that_counts(row: tuple[int, int, int, int]) -> None:
    """Beside the full sum's own rounding nothing is seen: after 10,000 windows the error is still a few millionths."""
    theta = np.linspace(-3.0, 3.0, 61)
    n, m, k, _ = row
    support = np.arange(max(0, k - m), min(n, k) + 1)
    mine, whole = ours([row], theta)[0], in_full(row, theta)
    assert len(support) > 256  # the short sum is used
    assert float(np.ptp(mine - whole)) < 2e-10


@pytest.mark.parametrize("row", [(0, 20_000, 4_000, 0), (20_000, 0, 4_000, 4_000), (10_000, 9_000, 0, 0), (10_000, 9_000, 19_000, 10_000)])
def test_nothing_to_compare_is_exactly_nothing_however_large_and_whoever_is_beside_it(row: tuple[int, int, int, int]) -> None:
    assert np.all(ours([row], THETA) == 0.0)
    assert np.all(ours([(10_000, 10_000, 9_000, 4_400), row], THETA)[1] == 0.0)


def test_nothing_shipped_imports_scipy() -> None:
    for path in Path(rollout.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "scipy" for name in names), path
