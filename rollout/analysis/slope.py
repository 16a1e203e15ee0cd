"""Evidence that the canary's memory rises against stable's: a trend in AR(1) noise around an unknown level.

y = bytes in use on the canary's side minus stable's. Whitened with the (sd, phi) that a history gave; the level is integrated out with
a flat prior on both hypotheses, which leaves the score and the information of the slope, and one likelihood ratio for each slope.
Valid only as far as the noise is not understated; the memory floor acts besides it.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rollout.analysis.hypergeometric import Floats

SLOPES = np.array([2.0**k for k in range(-2, 12)]) * (1 << 30)  # bytes an hour above the tolerated slope


LEAST_READINGS = 16
LEAST_NOISE = float(1 << 24)
"""bytes: memory comes and goes in pieces, so less is luck of a short history"""


@dataclass(frozen=True)
class Trend:
    """Sums over the whitened observations of one rung. `at`, `y`: hours and bytes of the newest; `missed`: windows without one since;
    `score`, `information`: of the slope, from the stretches before a process began anew, each with a level of its own.
    """

    seen: int = 0
    at: float = 0.0
    y: float = 0.0
    missed: int = 0
    level2: float = 0.0
    cross: float = 0.0
    slope2: float = 0.0
    level_y: float = 0.0
    slope_y: float = 0.0
    score: float = 0.0
    information: float = 0.0

    def skipped(self) -> "Trend":
        """A window passed and the memory of one side was unknown."""
        return replace(self, missed=self.missed + 1)

    def parted(self) -> "Trend":
        """A process began anew: from here on the level is another one; what was learnt of the slope stays."""
        score, information = self._slope()
        return Trend(score=score, information=information)

    def observed(self, hours: float, y: float, sd: float, phi: float) -> "Trend":
        """One more difference `y` (bytes) at `hours` since the start; `sd` in bytes, `phi` a window."""
        kept = phi ** (self.missed + 1) if self.seen else 0.0
        weight = 1.0 / (sd * sd * (1.0 - kept * kept))
        level, slope, rest = 1.0 - kept, hours - kept * self.at, y - kept * self.y
        return replace(
            self,
            seen=self.seen + 1,
            at=hours,
            y=y,
            missed=0,
            level2=self.level2 + weight * level * level,
            cross=self.cross + weight * level * slope,
            slope2=self.slope2 + weight * slope * slope,
            level_y=self.level_y + weight * level * rest,
            slope_y=self.slope_y + weight * slope * rest,
        )

    def evidence(self, tolerated: float) -> Floats:
        """log e for each of `SLOPES` against "the difference rises by at most `tolerated` bytes an hour"."""
        score, information = self._slope()
        score -= tolerated * information
        return np.asarray(SLOPES * score - SLOPES * SLOPES * (information / 2.0))

    def _slope(self) -> tuple[float, float]:
        """Score and information of the slope, the levels integrated out."""
        if self.seen < 2 or self.level2 <= 0:
            return self.score, self.information
        information = max(0.0, self.slope2 - self.cross * self.cross / self.level2)
        return self.score + self.slope_y - self.cross * self.level_y / self.level2, self.information + information


def fit_memory(series: list[float | None]) -> tuple[float, float] | None:
    """(sd in bytes, phi a window) of an A/A series, None = unknown then; None when it shows fewer than `LEAST_READINGS` readings.

    A server tells a worker's memory every half minute or so: the same value again is the same reading, not a quiet memory. Both figures
    are taken at the upper end of what the series allows (1.28 standard errors), since understated noise is a false alarm.
    """
    known = [(i, y) for i, y in enumerate(series) if y is not None]
    readings = [known[0], *(new for old, new in pairwise(known) if new[1] != old[1])] if known else []
    if len(readings) < LEAST_READINGS:
        return None
    values = [y for _, y in readings]
    mean = sum(values) / len(values)
    variance = sum((y - mean) ** 2 for y in values) / (len(values) - 1)
    count = len(values) - 1
    raw = sum((a - mean) * (b - mean) for a, b in pairwise(values)) / count / variance
    between = min(0.98, max(0.0, raw + 1.28 * math.sqrt((1 - min(raw * raw, 1.0)) / count)))
    independent = max(2.0, len(values) * (1 - between) / (1 + between))
    apart = (readings[-1][0] - readings[0][0]) / count
    return max(LEAST_NOISE, math.sqrt(variance) * (1 + 1.28 / math.sqrt(2 * independent))), between ** (1 / apart)
