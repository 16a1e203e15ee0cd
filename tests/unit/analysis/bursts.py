"""Bursty traffic as lists of single requests, written for the tests alone: no judge in here, no numpy, a random generator of its own.

Requests come in bursts, the server's mood jumps between three states that both sides share, each request is routed by a coin. Latencies
are Weibull, failures come in spells. What a request needs of time and luck is drawn before the coin, so an equal canary is equal exactly.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

BOUNDS = (0.06, 0.12, 0.2, 0.3, 0.45, 0.7, 1.1, 1.8, 3.0, 6.0)
LOOK = 30.0
MOODS = ((0.14, 0.001), (0.22, 0.004), (0.5, 0.03))  # scale of the latency in seconds, failure rate


class Dice:
    """xorshift64*: not the generator of anything else here."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + 0x1234567) & (1 << 64) - 1 or 1
        for _ in range(8):
            self.roll()

    def roll(self) -> float:
        """Uniform in (0, 1)."""
        x = self._state
        x ^= x >> 12
        x = (x ^ x << 25) & (1 << 64) - 1
        x ^= x >> 27
        self._state = x
        return (((x * 0x2545F4914F6CDD1D) & (1 << 64) - 1) >> 11) / (1 << 53) + 1e-17

    def wait(self, mean: float) -> float:
        """Exponential with this mean."""
        return -mean * math.log(self.roll())


@dataclass(frozen=True)
class Request:
    """One request as a proxy would log it."""

    ended: float
    canary: bool
    seconds: float
    failed: bool


def traffic(seed: int, shares: tuple[float, ...], each: float, slow: float = 1.0, failing: float = 0.0) -> Iterator[Request]:
    """Requests of `len(shares)` rungs of `each` seconds. `slow`: factor on the canary's latencies; `failing`: added to its failure rate."""
    dice = Dice(seed)
    now, mood, left = 0.0, MOODS[0], 0
    while now < each * len(shares):
        if not left:
            left = 1 + int(dice.wait(6.0))
            now += dice.wait(2.4)
            if dice.roll() < 0.04:
                mood = MOODS[int(3 * dice.roll())]
        left -= 1
        now += dice.wait(0.02)
        seconds, luck = mood[0] * dice.wait(1.0) ** (1 / 1.7), dice.roll()
        canary = dice.roll() < shares[min(len(shares) - 1, int(now / each))]
        yield Request(now + seconds, canary, seconds * (slow if canary else 1.0), luck < mood[1] + (failing if canary else 0.0))


def binned(requests: list[Request]) -> tuple[int, ...]:
    """Requests by bucket, the last one for everything above the bounds."""
    counts = [0] * (len(BOUNDS) + 1)
    for request in requests:
        counts[bisect_left(BOUNDS, request.seconds)] += 1
    return tuple(counts)


def looks(requests: Iterator[Request], count: int) -> list[list[Request]]:
    """The requests by the look before which they ended; what ended after the last look was never seen."""
    found: list[list[Request]] = [[] for _ in range(count)]
    for request in requests:
        if (index := int(request.ended / LOOK)) < count:
            found[index].append(request)
    return found
