"""What the judge eats: counts of one window, by arm.

Holds the frozen value types and nothing else; it must not read a clock, a file or a server.
Latencies are seconds, counts are requests.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["OK", "NO_TRAFFIC", "NO_METRIC", "METRIC_ERROR"]


@dataclass(frozen=True)
class Histogram:
    """Requests per latency bucket, **not** cumulative.

    `edges`: the finite upper bounds in seconds, strictly increasing; `counts`: one more than edges, the last is the overflow bucket.
    Raises ValueError on any other shape.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.edges) + 1:
            raise ValueError(f"{len(self.edges)} edges need {len(self.edges) + 1} counts, got {len(self.counts)}")
        if any(b <= a for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError(f"edges must increase: {self.edges}")
        if any(not _whole(c) for c in self.counts):
            raise ValueError(f"counts are whole numbers, at least 0: {self.counts}")

    @property
    def total(self) -> int:
        """All requests in the histogram."""
        return sum(self.counts)

    def rebin(self, edges: Iterable[float]) -> "Histogram":
        """The same requests in fewer buckets. ValueError when an edge is not one of ours: a bucket cannot be split."""
        keep = tuple(edges)
        if keep == self.edges:
            return self
        missing = [e for e in keep if e not in self.edges]
        if missing:
            raise ValueError(f"cannot split buckets at {missing}; known edges: {self.edges}")
        counts = [0] * (len(keep) + 1)
        for i, count in enumerate(self.counts):
            bound = self.edges[i] if i < len(self.edges) else float("inf")
            counts[bisect_left(keep, bound)] += count
        return Histogram(keep, tuple(counts))

    def plus(self, other: "Histogram") -> "Histogram":
        """Both histograms added, over the edges they share."""
        edges = common_edges(self, other)
        a, b = self.rebin(edges), other.rebin(edges)
        return Histogram(edges, tuple(x + y for x, y in zip(a.counts, b.counts, strict=True)))


def is_number(value: object) -> bool:
    """A number as JSON has them; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, int) and is_number(value) and 0 <= value < 1 << 53


def _amount(value: object) -> bool:
    return isinstance(value, int | float) and is_number(value) and 0 <= value < math.inf


def common_edges(*histograms: Histogram) -> tuple[float, ...]:
    """The bounds that every histogram has: the only places where counts of different bucket sets can be compared."""
    shared = set(histograms[0].edges).intersection(*(h.edges for h in histograms[1:]))
    return tuple(sorted(shared))


def added(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """All of them in one, over the edges they share; None when there is none."""
    total: Histogram | None = None
    for histogram in histograms:
        if histogram is not None:
            total = histogram if total is None else total.plus(histogram)
    return total


@dataclass(frozen=True)
class ArmWindow:
    """One arm's requests that ended in a window.

    `requests` counts all of them, the `errors` among them included. `ttft`, `e2e`: seconds; `tpot`: mean seconds per output token of a
    request, one count a request (never one a token). `restarts`: engine processes of this arm that began anew. `memory_used`: bytes in use
    on the worker of this arm that has most in use; None = unknown.
    `status` keeps four things apart: OK, no requests, the metric is not exposed, the metric could not be read.
    """

    requests: int
    errors: int
    ttft: Histogram | None = None
    e2e: Histogram | None = None
    restarts: int = 0
    status: Status = "OK"
    tpot: Histogram | None = None
    memory_used: int | None = None

    def histogram(self, metric: str) -> Histogram | None:
        """The histogram of a latency metric."""
        found: Histogram | None = getattr(self, metric)
        return found

    def __post_init__(self) -> None:
        for name in ("requests", "errors", "restarts"):
            if not _whole(getattr(self, name)):
                raise ValueError(f"{name} are a whole number, at least 0, got {getattr(self, name)!r}")
        if self.errors > self.requests:
            raise ValueError(f"{self.errors} errors among {self.requests} requests")
        if self.memory_used is not None and not _whole(self.memory_used):
            raise ValueError(f"memory_used is bytes, got {self.memory_used!r}")


@dataclass(frozen=True)
class ProbePair:
    """The same prompt sent to both arms at once, one in flight a side. `*_ttft` is None when no first token came."""

    stable_ttft: float | None
    canary_ttft: float | None
    stable_ok: bool
    canary_ok: bool

    def __post_init__(self) -> None:
        if not (isinstance(self.stable_ok, bool) and isinstance(self.canary_ok, bool)):
            raise ValueError("stable_ok and canary_ok are true or false")
        if any(t is not None and not _amount(t) for t in (self.stable_ttft, self.canary_ttft)):
            raise ValueError(f"times are seconds, at least 0, got {self.stable_ttft!r} and {self.canary_ttft!r}")


@dataclass(frozen=True)
class QualityPair:
    """Scores (0..1, higher is better) of both arms' answers to the same prompt. None: that arm gave no whole answer, which is an error."""

    stable: float | None
    canary: float | None

    def __post_init__(self) -> None:
        if any(score is not None and not 0 <= score <= 1 for score in (self.stable, self.canary)):
            raise ValueError(f"scores lie between 0 and 1, got {self.stable} and {self.canary}")


@dataclass(frozen=True)
class Window:
    """What was seen between two looks. The caller gives out `id`s that rise; a window is used exactly once.

    `rung`: index of the ladder's rung, rising; the judge opens a fresh copy of its evidence at each new one.
    `load_ratio`: (canary share / ready canary replicas) over the same of stable; None = no live comparison (dark, or 100 %).
    `expected_share`, `share_counts` (canary, total): for the share test. `weight_changed`: the split moved inside this window.
    A window with pairs or quality, no requests and no load ratio is a batch of our own requests: it says nothing about live traffic, not
    even its absence.
    `memory_available`: bytes of MemAvailable on the canary's node; None = unknown. `pairs` must come from probes at matched concurrency.
    `quality`: replayed prompts, each prompt once in a rollout and in an order that chance decided.
    """

    id: int
    rung: int
    seconds: float
    stable: ArmWindow
    canary: ArmWindow
    pairs: tuple[ProbePair, ...] = ()
    load_ratio: float | None = None
    expected_share: float | None = None
    share_counts: tuple[int, int] | None = None
    weight_changed: bool = False
    memory_available: int | None = None
    quality: tuple[QualityPair, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "rung"):
            if not _whole(getattr(self, name)):
                raise ValueError(f"{name} is a whole number, at least 0, got {getattr(self, name)!r}")
        for name in ("seconds", "load_ratio"):
            value = getattr(self, name)
            if not (_amount(value) or (value is None and name == "load_ratio")):
                raise ValueError(f"{name} is a number, at least 0, got {value!r}")
        if self.expected_share is not None and not (_amount(self.expected_share) and self.expected_share <= 1):
            raise ValueError(f"expected_share lies between 0 and 1, got {self.expected_share!r}")
        if self.share_counts is not None:
            canary, total = self.share_counts
            if not (_whole(canary) and _whole(total) and canary <= total):
                raise ValueError(f"share_counts are the canary's and all requests, got {self.share_counts!r}")
        if not isinstance(self.weight_changed, bool):
            raise ValueError("weight_changed is true or false")
        if self.memory_available is not None and not _whole(self.memory_available):
            raise ValueError(f"memory_available is bytes, got {self.memory_available!r}")
