"""The ladder in whole weights. Pure arithmetic.

A rung `p` is the canary's share of the *pair* (canary + the stable target it replaces). Stable's weight S stays as it was
found, the canary gets round(S * p / (1 - p)); targets that are not ours keep theirs, so the share of the whole route follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ABSOLUTE_TOLERANCE = 0.005
RELATIVE_TOLERANCE = 0.10
SCALES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
LADDERS: dict[str, tuple[float, ...]] = {"rich": (5, 10, 25, 50, 100), "thin": (10, 50, 100), "sparse": (50, 100)}
BALANCED = (0.8, 1.25)


@dataclass(frozen=True)
class Rung:
    """One entry of the ladder: what the plan asks (shares in 0..1) and what the weights can express."""

    index: int
    asked: float
    weight: int | None
    """the canary's weight; None at 100 % (stable's target is removed instead)"""
    pair_share: float
    route_share: float

    @property
    def full(self) -> bool:
        return self.weight is None


def canary_weight(stable: int, share: float) -> int:
    """The whole weight nearest to `share` of the pair beside a stable weight of `stable`."""
    return round(stable * share / (1 - share))


def pair_share(stable: int, canary: int) -> float:
    """The canary's share of the pair."""
    return canary / (stable + canary)


def expressible(stable: int, share: float) -> bool:
    """Whether `share` of the pair can be written within max(0.5 pp, 10 % relative)."""
    weight = canary_weight(stable, share)
    return weight > 0 and abs(pair_share(stable, weight) - share) <= max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * share)


def nearest(stable: int, share: float) -> float:
    """The expressible share nearest to `share`."""
    return pair_share(stable, max(1, canary_weight(stable, share)))


def scale_for(stable: int, shares: Sequence[float]) -> int | None:
    """The smallest weight stable's target needs so that every rung below 100 % can be written; None when none does."""
    below = [s for s in shares if s < 1]
    return next((stable * k for k in SCALES if stable > 0 and all(expressible(stable * k, s) for s in below)), None)


def weight_during(stable: int, shares: Sequence[float], *, siblings: bool) -> int:
    """Stable's weight while the ladder is climbed: as found, or as fine as needed where it is the route's only target."""
    return stable if siblings else scale_for(stable, shares) or stable


def rungs(shares: Sequence[float], stable: int, others: int) -> tuple[Rung, ...]:
    """The ladder for one pair. `shares` in 0..1, the last one 1; `stable` its weight, `others` the summed weight of all other targets."""
    ladder: list[Rung] = []
    for index, share in enumerate(shares):
        weight = None if share >= 1 else canary_weight(stable, share)
        if weight is None:
            last = ladder[-1].weight or 1
            ladder.append(Rung(index, 1.0, None, 1.0, last / (last + others)))
        else:
            ladder.append(Rung(index, share, weight, pair_share(stable, weight), weight / (stable + weight + others)))
    return tuple(ladder)


def load_ratio(share: float, stable_share: float, canary_replicas: int, stable_replicas: int) -> float | None:
    """Requests per ready replica, canary over stable (product rule: < 0.8 may FAIL, 0.8-1.25 both, > 1.25 may PASS)."""
    if canary_replicas <= 0 or stable_replicas <= 0 or stable_share <= 0:
        return None
    return (share / canary_replicas) / (stable_share / stable_replicas)


def ladder_shares(
    asked: Sequence[float] | None, mode: str, canary_replicas: int, stable_replicas: int, *, siblings: bool
) -> tuple[float, ...]:
    """Shares in 0..1. `asked` in percent, or None for the mode's own ladder, to which a balanced rung is added when it has none."""
    percents = list(asked if asked is not None else LADDERS[mode])
    shares = [p / 100 for p in percents]
    balanced = canary_replicas / (canary_replicas + stable_replicas)
    ratios = [load_ratio(s, 1 - s, canary_replicas, stable_replicas) for s in shares if s < 1]
    if asked is None and not any(r is not None and BALANCED[0] <= r <= BALANCED[1] for r in ratios):
        shares = sorted({*shares, balanced})
    if siblings:
        shares = [s for s in shares if s <= 0.5 or s >= 1]
    return tuple(shares)


def choose_mode(requests_per_hour: float | None) -> str:
    """The evidence mode for a traffic rate; an unknown rate counts as sparse."""
    if requests_per_hour is None or requests_per_hour < 60:
        return "sparse"
    return "rich" if requests_per_hour >= 3600 else "thin"
