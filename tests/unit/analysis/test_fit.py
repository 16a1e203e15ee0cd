"""The replica noise fitted on an A/A history covers what is there and does not invent it."""

import numpy as np
import pytest

from rollout.analysis.fit import fit_noise
from rollout.analysis.samples import Histogram
from tests.unit.analysis.cases import REFERENCE, arm


def history(sd: float, windows: int = 120) -> list[tuple[Histogram, Histogram]]:
    rng, own, pairs = np.random.default_rng(4), 0.0, []
    for _ in range(windows):
        own = 0.8 * own + sd * 0.6 * rng.normal()
        pair = arm(rng, 100, float(np.exp(own))).ttft, arm(rng, 200).ttft
        pairs.append((pair[0] or REFERENCE, pair[1] or REFERENCE))
    return pairs


def long_run(v: float, phi: float) -> float:
    return v * (1 + phi) / (1 - phi)


def test_a_noisy_replica_gets_at_least_its_true_long_run_variance() -> None:
    """15 % of latency is about 0.26 in log odds variance at this body edge."""
    assert long_run(*fit_noise(REFERENCE, history(0.15))) > long_run(0.2, 0.8) / 2


def test_a_quiet_replica_gets_little() -> None:
    assert long_run(*fit_noise(REFERENCE, history(0.0))) < long_run(0.2, 0.8) / 5


def test_no_history_and_a_reference_without_edges_are_refused() -> None:
    with pytest.raises(ValueError, match="no A/A history"):
        fit_noise(REFERENCE, [])
    flat = Histogram((60.0,), (1000, 0))
    with pytest.raises(ValueError, match="no usable bucket edge"):
        fit_noise(flat, [(flat, flat)])
