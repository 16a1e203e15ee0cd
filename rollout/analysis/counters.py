"""Cumulative counters in, the requests of one window out. Pure hygiene: whatever cannot be trusted is left out and said so.

Counters and histograms are Prometheus-like: they only rise while an engine process lives and begin at zero with the next one. The caller
keeps the last good sample of each side as the next `before`, so a missed scrape makes one longer window and loses nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from rollout.analysis.samples import ArmWindow, Histogram, added

_STARTED_SLACK = 1.0  # seconds a reported start time may wander without meaning a new process


@dataclass(frozen=True)
class InstanceCounters:
    """One engine process since it started.

    `requests`: ended requests, failed ones included; `errors`: the failed ones; `ttft`, `e2e`, `tpot`: cumulative buckets {upper bound
    in seconds: count} with math.inf for all, None = not exposed; `started`: its start in Unix seconds where known.
    """

    requests: int
    errors: int
    ttft: Mapping[float, int] | None = None
    e2e: Mapping[float, int] | None = None
    started: float | None = None
    tpot: Mapping[float, int] | None = None


CounterSample = Mapping[str, InstanceCounters]  # by instance


def window_delta(before: CounterSample, after: CounterSample | None) -> ArmWindow:
    """What one arm served between two samples.

    Only instances seen at both ends count: a new one has no beginning, a vanished one no end. `after` None = the scrape failed
    (METRIC_ERROR); no instance at both ends: NO_METRIC; an engine process that began anew: `restarts`, and the counts of the whole
    window are left out (the judge leaves out the other arm's too); buckets that contradict each other: METRIC_ERROR.
    """
    if after is None:
        return ArmWindow(0, 0, status="METRIC_ERROR")
    both = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    if not both:
        return ArmWindow(0, 0, status="NO_METRIC")
    restarts = sum(_began_anew(old, new) for old, new in both)
    if restarts:
        return ArmWindow(0, 0, restarts=restarts)
    try:
        ttft = added(_histogram(old.ttft, new.ttft) for old, new in both)
        e2e = added(_histogram(old.e2e, new.e2e) for old, new in both)
        tpot = added(_histogram(old.tpot, new.tpot) for old, new in both)
    except ValueError:
        return ArmWindow(0, 0, status="METRIC_ERROR")
    errors = sum(new.errors - old.errors for old, new in both)
    requests = max(errors, sum(new.requests - old.requests for old, new in both))
    served = requests or (ttft and ttft.total) or (e2e and e2e.total)
    return ArmWindow(requests, errors, ttft, e2e, status="OK" if served else "NO_TRAFFIC", tpot=tpot)


def _began_anew(old: InstanceCounters, new: InstanceCounters) -> bool:
    if old.started is not None and new.started is not None and new.started > old.started + _STARTED_SLACK:
        return True
    fell = new.requests < old.requests or new.errors < old.errors
    return fell or _any_fell(old.ttft, new.ttft) or _any_fell(old.e2e, new.e2e) or _any_fell(old.tpot, new.tpot)


def _any_fell(old: Mapping[float, int] | None, new: Mapping[float, int] | None) -> bool:
    return bool(old and new) and any(new[le] < count for le, count in (old or {}).items() if new and le in new)


def _histogram(old: Mapping[float, int] | None, new: Mapping[float, int] | None) -> Histogram | None:
    """The requests between two cumulative histograms over the bounds both have. ValueError when a bucket would be negative."""
    if old is None or new is None or math.inf not in old or math.inf not in new:
        return None
    bounds = sorted(old.keys() & new.keys())
    risen = [new[le] - old[le] for le in bounds]
    counts = [risen[0], *(b - a for a, b in pairwise(risen))]
    return Histogram(tuple(bounds[:-1]), tuple(counts))
