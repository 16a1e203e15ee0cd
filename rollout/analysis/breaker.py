"""The circuit breaker: the one fast rule that may roll back without a statistical verdict, with its own false alarm bound.

Counts in, state out. It has no view on latency; slow is for the evidence, broken is for the breaker.
"""

import math
from dataclasses import dataclass, replace

FAILURES, OF_LAST = 8, 20  # canary requests
STABLE_BELOW = 0.10  # with stable failing too, the canary is not what broke
_STABLE_AT_LEAST, _STABLE_KEPT = 8, 100  # requests needed to call stable healthy; requests remembered
RESTARTS, WITHIN_SECONDS = 2, 600.0

Ring = tuple[tuple[int, int], ...]  # (requests, failures) of recent windows, oldest first


@dataclass(frozen=True)
class Breaker:
    """What the breaker remembers. `restarts`: (seconds since start, how many). `tripped`: why, once it has; it never closes again."""

    canary: Ring = ()
    stable: Ring = ()
    restarts: tuple[tuple[float, int], ...] = ()
    tripped: str | None = None

    def requests(self, canary: tuple[int, int], stable: tuple[int, int]) -> "Breaker":
        """After one more window of (requests, failures) by arm."""
        return replace(self, canary=_pushed(self.canary, canary, OF_LAST), stable=_pushed(self.stable, stable, _STABLE_KEPT))

    def restarted(self, count: int, elapsed: float) -> "Breaker":
        """After `count` canary restarts that stable had not as well, `elapsed` seconds after the start; ten minutes are remembered."""
        kept = tuple((t, c) for t, c in self.restarts if elapsed - t < WITHIN_SECONDS)
        return replace(self, restarts=(*kept, (elapsed, count)) if count else kept)

    def judged(self, memory_available: int | None, memory_floor: int | None) -> "Breaker":
        """Trips when a rule holds. A memory reading of 0 or None is unknown, never a breach."""
        if self.tripped:
            return self
        failures, size = last_failures(self.canary)
        if failures >= FAILURES and _healthy(self.stable):
            return replace(self, tripped=f"{failures} failures in the last {size} canary requests while stable fails under 10 %")
        restarts = sum(count for _, count in self.restarts)
        if restarts >= RESTARTS:
            return replace(self, tripped=f"{restarts} canary restarts within ten minutes")
        if memory_floor and memory_available and memory_available < memory_floor:
            gib = 1 << 30
            return replace(self, tripped=f"{memory_available / gib:.1f} GiB memory available, floor {memory_floor / gib:.1f} GiB")
        return self


def last_failures(ring: Ring) -> tuple[int, int]:
    """Failures among the last 20 requests, and how many requests that is.

    The order inside a window is unknown. The oldest window that is used only in part counts in proportion, rounded down: a burst is never
    assumed, so a false alarm is rarer than with the true order.
    """
    failures, left = 0, OF_LAST
    for requests, bad in reversed(ring):
        take = min(requests, left)
        failures += take * bad // requests
        left -= take
        if not left:
            break
    return failures, OF_LAST - left


def breaker_alpha(error_rate: float, requests: int, restarts_per_hour: float, seconds: float) -> float:
    """Bound on a false alarm over a whole rollout of a healthy canary: a union over its runs of 20 requests (Binomial, independent
    failures at `error_rate`) and over pairs of restarts within ten minutes (Poisson). The memory floor is a limit, not an estimate.
    """
    runs = max(1, requests - OF_LAST + 1)
    tail = sum(math.comb(OF_LAST, i) * error_rate**i * (1 - error_rate) ** (OF_LAST - i) for i in range(FAILURES, OF_LAST + 1))
    rate = restarts_per_hour / 3600.0
    return min(1.0, runs * tail + rate * seconds * rate * WITHIN_SECONDS)


def _healthy(ring: Ring) -> bool:
    requests = sum(n for n, _ in ring)
    return requests >= _STABLE_AT_LEAST and sum(bad for _, bad in ring) < STABLE_BELOW * requests


def _pushed(ring: Ring, window: tuple[int, int], enough: int) -> Ring:
    """The ring with one more window, trimmed to the newest windows that hold `enough` requests."""
    if not window[0]:
        return ring
    kept: list[tuple[int, int]] = [window]
    held = window[0]
    for older in reversed(ring):
        if held >= enough:
            break
        kept.append(older)
        held += older[0]
    return tuple(reversed(kept))
