"""From weights to shares, as the thing that splits traffic carries them out. Pure arithmetic over whole numbers.

Three carriers: the server's own proxy draws by the exact weights; so does the gateway of 2.3, which leaves fallback targets out; the
gateway of 2.2 deals out 100 whole percents over all *instances* by largest remainder. Equal remainders go to the target that comes
first in the server's row order, which changes with every edit: so the prediction is a set. A target whose percents are 0 is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import lcm

from rollout.domain.weights import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE

WHOLE = 100


class Carrier(StrEnum):
    """Who splits the traffic of a route."""

    PROXY = "proxy"
    RULE = "rule"
    PERCENT = "percent"

    @property
    def words(self) -> str:
        """For people."""
        return {
            Carrier.PROXY: "the server itself, by exact weights",
            Carrier.RULE: "the gateway, by exact weights",
            Carrier.PERCENT: "the gateway of GPUStack 2.2, in whole percents over all instances",
        }[self]


@dataclass(frozen=True)
class Seat:
    """One target of a route: its weight, how many instances serve it, and whether it only takes over what others failed at."""

    weight: int
    instances: int = 1
    fallback: bool = False


def carried(seats: Sequence[Seat], mine: int, carrier: Carrier) -> frozenset[float]:
    """Every share in 0..1 of the route that seat number `mine` may get. {0} for one without weight or instances beside others."""
    if carrier is Carrier.PERCENT:
        return frozenset(n / WHOLE for n in _percents(seats, mine))
    serving = [s for s in seats if s.instances > 0 and not (carrier is Carrier.RULE and s.fallback)]
    total = sum(s.weight for s in serving)
    if seats[mine] not in serving or total == 0:
        return frozenset({1 / len(serving) if seats[mine] in serving else 0.0})
    return frozenset({seats[mine].weight / total})


def _percents(seats: Sequence[Seat], mine: int) -> set[int]:
    """Whole percents of all instances of one seat together: the floors, and what it may win of the percents that are left over."""
    scale = lcm(*(s.instances for s in seats if s.instances > 0), 1)
    each = [s.weight * scale // s.instances if s.instances > 0 else 0 for s in seats]
    total = sum(weight * s.instances for weight, s in zip(each, seats, strict=True))
    if total == 0:
        return {0}
    quotas = [Fraction(WHOLE * weight, total) for weight in each]
    floors = [int(quota) for quota in quotas]
    rest = [quota - floor for quota, floor in zip(quotas, floors, strict=True)]
    left = WHOLE - sum(floor * s.instances for floor, s in zip(floors, seats, strict=True))
    before = sum(s.instances for s, r in zip(seats, rest, strict=True) if r > rest[mine])
    tied = [s.instances for n, (s, r) in enumerate(zip(seats, rest, strict=True)) if r == rest[mine] and n != mine]
    own = seats[mine].instances
    return {floors[mine] * own + max(0, min(own, left - before - ahead)) for ahead in _sums(tied)}


def _sums(blocks: Sequence[int]) -> set[int]:
    """How many instances of equal remainder may stand in front: those of any of the other targets."""
    sums = {0}
    for block in blocks:
        sums |= {s + block for s in sums}
    return sums


def within(asked: float, shares: frozenset[float]) -> bool:
    """Whether each of them is near enough to the share that was asked: max(0.5 pp, 10 % relative), and neither nothing nor all."""
    tolerance = max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * asked) + 1e-9
    return all(abs(share - asked) <= tolerance and 0 < share < 1 for share in shares)
