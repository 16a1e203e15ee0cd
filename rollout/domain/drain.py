"""When is a side empty? Evidence in, answer out. Pure.

In flight is decided from the engines: running + waiting gauges at zero AND flat request and token counters for the quiet
period. One scrape proves nothing: a gauge may stay up after a mass abort, and a page may be dead while the engine serves.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rollout.domain.world import DeploymentView, EngineSample

DEAD = frozenset({"error", "pending", "analyzing", "scheduled", "initializing", "downloading"})
"""instance states without a process that serves; "starting" may serve already, "unreachable" may serve still"""
STALE_AFTER = 10
"""quiet periods after which a busy gauge over flat counters is called stale"""


@dataclass(frozen=True)
class Mark:
    """The counters of a side at one instant; equality of two marks means nothing finished or was generated in between."""

    at: datetime
    requests: float
    tokens: float
    busy: bool = False
    """the gauges showed requests in flight then"""


@dataclass(frozen=True)
class Answer:
    """`empty` only after the quiet period; `known` is False when no evidence could be read. `mark` is carried to the next look."""

    empty: bool
    known: bool
    why: str
    mark: Mark | None


def mark_of(sample: EngineSample) -> Mark | None:
    """The counters of a whole side; None when any engine does not expose them."""
    rows = list(sample.instances.values())
    if sample.status != "OK" or not rows or any(r.requests is None for r in rows):
        return None
    requests = sum(r.requests or 0.0 for r in rows)
    tokens = sum(r.tokens or 0.0 for r in rows)
    return Mark(sample.at, requests, tokens)


def look(deployment: DeploymentView | None, sample: EngineSample | None, before: Mark | None, quiet: float) -> Answer:
    """Whether the side is empty, from this tick's sample and the mark since which it has been quiet."""
    told = sample is not None and sample.status == "OK"
    if deployment is None or (not told and all(i.state in DEAD for i in deployment.instances)):
        return Answer(True, True, "no instance is running", None)
    if sample is None or sample.status != "OK":
        return Answer(False, False, f"no evidence: {sample.why or sample.status if sample else 'not scraped'}", None)
    in_flight = sample.in_flight
    now = mark_of(sample)
    if in_flight is None or now is None:
        return Answer(False, False, "no evidence: the engine shows no in-flight gauge or counters", None)
    same = before is not None and (before.requests, before.tokens) == (now.requests, now.tokens)
    if in_flight > 0:
        return _busy(now, before, in_flight, quiet, same=same)
    if not same or before is None or before.busy:
        return Answer(False, True, "in flight 0, waiting for the quiet period", now)
    quiet_for = (now.at - before.at).total_seconds()
    if quiet_for < quiet:
        return Answer(False, True, f"in flight 0, quiet for {quiet_for:.0f} of {quiet:.0f} s", before)
    return Answer(True, True, f"in flight 0 and counters flat for {quiet_for:.0f} s", before)


def _busy(now: Mark, before: Mark | None, in_flight: float, quiet: float, *, same: bool) -> Answer:
    fresh = Mark(now.at, now.requests, now.tokens, busy=True)
    if before is None or not before.busy:
        return Answer(False, True, f"{in_flight:g} requests in flight", fresh)
    old = (now.at - before.at).total_seconds() >= STALE_AFTER * quiet
    note = "; its counters are flat for long: the gauge may be stale" if old and same else ""
    return Answer(False, True, f"{in_flight:g} requests in flight{note}", fresh if old and not same else before)
