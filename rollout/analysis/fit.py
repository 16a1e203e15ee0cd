"""How noisy is a replica by itself? (v, phi) from windows in which both sides ran the same thing.

Input is an A/A history: one stable replica against the rest, or a staging comparison of stable's spec with itself. Runs before a rollout,
never during one.
"""

from collections.abc import Sequence

import numpy as np

from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import Noise, chain
from rollout.analysis.reference import reference_of
from rollout.analysis.samples import Histogram

VARIANCES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
CORRELATIONS = (0.0, 0.3, 0.6, 0.8, 0.9)
_PLAUSIBLE = 1.0  # log units below the best that still count


def fit_noise(reference: Histogram, history: Sequence[tuple[Histogram, Histogram]]) -> tuple[float, float]:
    """(v, phi) for `config_for(noise=...)` from `history`: one (this replica, the others) pair of histograms a window, oldest first.

    Of all pairs on the grid whose null marginal likelihood at the body edge is within one log unit of the best, the one with the largest
    long-run variance v (1 + phi) / (1 - phi): noise is never guessed small. ValueError on an empty history.
    """
    if not history:
        raise ValueError("no A/A history: use the defaults for one replica")
    test = LatencyTest("history", reference_of(reference), 0.0, 0.2, None, Noise(max(VARIANCES)))
    if not test.headlines:
        raise ValueError("the reference has no usable bucket edge: use the defaults for one replica")
    likelihood = np.stack([test.effect(ours, theirs)[0, 0] for ours, theirs in history])
    scored = [(_log_marginal(likelihood, noise), noise) for noise in _candidates()]
    best = max(score for score, _ in scored)
    chosen = max((noise for score, noise in scored if score >= best - _PLAUSIBLE), key=lambda n: n.long_run_variance)
    return chosen.v, chosen.phi


def _candidates() -> list[Noise]:
    return [Noise(), *(Noise(v, phi) for v in VARIANCES for phi in CORRELATIONS)]


def _log_marginal(likelihood: Floats, noise: Noise) -> float:
    """Null log likelihood of the history under `noise`. `likelihood`: (windows, widest grid) in logs."""
    law, move = chain(noise)
    spare = (likelihood.shape[1] - len(law)) // 2
    total = 0.0
    for row in likelihood[:, spare : spare + len(law)]:
        top = row.max()
        joint = (law @ move) * np.exp(row - top)
        mass = joint.sum()
        total += float(np.log(mass) + top)
        law = joint / mass
    return total
