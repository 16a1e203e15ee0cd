"""The replica noise fitted on an A/A history covers what is there and does not invent it."""

from dataclasses import replace

import numpy as np
import pytest

from rollout.analysis.config import GIB
from rollout.analysis.fit import fit_noise
from rollout.analysis.samples import Histogram
from rollout.analysis.slope import fit_memory
from tests.unit.analysis.cases import REFERENCE, after, arm, config, windows


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


def readings(rng: np.random.Generator, count: int, repeated: int) -> list[float | None]:
    """Memory differences with 1 GiB of noise, each told for `repeated` windows."""
    return [float(y) for y in rng.normal(0.0, 2.0**30, count) for _ in range(repeated)]


def test_a_reading_that_is_told_for_half_a_minute_is_one_reading() -> None:
    """A server tells a worker's memory now and then: four readings in a hundred windows are no history of its noise."""
    rng = np.random.default_rng(5)
    assert fit_memory(readings(rng, 4, 25)) is None
    assert fit_memory([1e9] * 100) is None
    sd, phi = fit_memory(readings(rng, 40, 25)) or (0.0, 0.0)
    assert sd > 2.0**30 * 0.9
    assert phi**25 < 0.5  # correlation is of readings, and told by the window


def test_a_jump_between_two_readings_is_no_slope() -> None:
    """With the noise of a history, one new reading that differs by three of its deviations rolls nobody back, however often it is told."""
    sd, phi = fit_memory(readings(np.random.default_rng(6), 40, 25)) or (0.0, 0.0)
    asked = config(memory_noise=(sd, phi))
    seen = []
    for window in windows(100):
        used = 10 * GIB + (int(3 * sd) if window.id >= 50 else 0)
        stable, canary = replace(window.stable, memory_used=10 * GIB), replace(window.canary, memory_used=used)
        seen.append(replace(window, stable=stable, canary=canary))
    state = after(asked, iter(seen))
    assert state.trend.seen == 2
    assert state.crossing is None


def test_a_history_that_tells_nothing_is_no_noise_at_all() -> None:
    """All requests in one bucket: every noise explains that equally well, and the largest of the grid would only look careful."""
    one = Histogram(REFERENCE.edges, (50, *[0] * len(REFERENCE.edges)))
    with pytest.raises(ValueError, match="do not tell one noise from another"):
        fit_noise(REFERENCE, [(one, one)] * 60)
