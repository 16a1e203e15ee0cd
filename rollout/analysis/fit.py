"""How noisy is a replica by itself? (v, phi) from windows in which both sides ran the same thing.

Input is an A/A history: one stable replica against the rest, or a staging comparison of stable's spec with itself. Runs before a rollout,
never during one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from rollout.analysis.asks import answer
from rollout.analysis.config import MetricNoise
from rollout.analysis.design import BALANCED
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import Noise, chain
from rollout.analysis.reference import reference_of
from rollout.analysis.samples import Histogram, Window
from rollout.analysis.slope import fit_memory

VARIANCES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
CORRELATIONS = (0.0, 0.3, 0.6, 0.8, 0.9)
LEAST_WINDOWS = 40
_TELLING = 2.0  # log units between the best and the worst noise below which a history has said nothing
_PLAUSIBLE = 1.0  # log units below the best that still count


def fit_noise(reference: Histogram, history: Sequence[tuple[Histogram, Histogram]]) -> tuple[float, float]:
    """(v, phi) for `config_for(noise=...)` from `history`: one (this replica, the others) pair of histograms a window, oldest first.

    Of all pairs on the grid whose null marginal likelihood at the body edge is within one log unit of the best, the one with the largest
    long-run variance v (1 + phi) / (1 - phi): noise is never guessed small. ValueError on a history that is empty or tells nothing.
    """
    if not history:
        raise ValueError("no A/A history: use the defaults for one replica")
    test = LatencyTest("history", reference_of(reference), 0.0, 0.2, None, Noise(max(VARIANCES)))
    if not test.headlines:
        raise ValueError("the reference has no usable bucket edge: use the defaults for one replica")
    likelihood = np.stack([table[0, 0] for table in answer([test.effect(ours, theirs) for ours, theirs in history])])
    scored = [(_log_marginal(likelihood, noise), noise) for noise in _candidates()]
    best = max(score for score, _ in scored)
    if best - min(score for score, _ in scored) < _TELLING:
        raise ValueError("the windows do not tell one noise from another: too few requests on both sides of the reference's edges")
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


@dataclass(frozen=True)
class Fitted:
    """What an A/A history tells: replica noise by latency metric, noise of the memory difference, windows it rests on."""

    noises: tuple[MetricNoise, ...]
    memory_noise: tuple[float, float] | None
    windows: int


def fit_history(references: Mapping[str, Histogram | None], history: Sequence[Window], *, seconds: float | None = None) -> Fitted:
    """Noise of every latency metric that has a reference, and of memory, from A/A windows (`canary` = one replica, `stable` = the others
    or the other side of a staging comparison), oldest first. `seconds`: the length of the windows that will be judged.

    Windows with a restart, a weight change or a load ratio out of balance are left out. ValueError when fewer than 40 are left or when they
    are not as long as those to be judged: correlation is counted in windows.
    """
    used = [w for w in history if _comparable(w)]
    if len(used) < LEAST_WINDOWS:
        raise ValueError(f"{len(used)} comparable windows of {len(history)}; at least {LEAST_WINDOWS} are needed to fit the replica noise")
    typical = median(w.seconds for w in used)
    if seconds is not None and not 2 / 3 <= typical / seconds <= 3 / 2:
        raise ValueError(f"windows of the history last {typical:g} s, those to be judged {seconds:g} s; record it with the same length")
    noises = []
    for metric, reference in references.items():
        pairs = [(a, b) for w in used if (a := w.canary.histogram(metric)) and (b := w.stable.histogram(metric)) and a.total and b.total]
        if reference is not None and reference.total and len(pairs) >= LEAST_WINDOWS:
            try:
                noises.append(MetricNoise(metric, *fit_noise(reference, pairs)))
            except ValueError:
                continue  # nothing was seen or learnt of this one; the largest noise of the others stands in for it, or the defaults
    memory = fit_memory([_difference(w) for w in used])
    return Fitted(tuple(noises), memory, len(used))


def _comparable(window: Window) -> bool:
    calm = not (window.weight_changed or window.stable.restarts or window.canary.restarts)
    return calm and window.load_ratio is not None and BALANCED[0] <= window.load_ratio <= BALANCED[1]


def _difference(window: Window) -> float | None:
    ours, theirs = window.canary.memory_used, window.stable.memory_used
    return None if ours is None or theirs is None else float(ours - theirs)
