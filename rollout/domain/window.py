"""When the rollback window ends: the plan's time, a person's extension, and on sparse traffic enough live requests. Pure.

Counted on the rollout's own time (`ctx.now`), which no wall clock moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rollout.domain.context import Ctx
from rollout.domain.restore import kept
from rollout.domain.state import RolloutState
from rollout.domain.world import EngineSample

Json = Any
FACT = "window"
DAY, LONGEST = 86400.0, 3 * 86400.0
LIVE_REQUESTS = 50
"""users' requests that the new side answers before a window of the default length ends on sparse traffic"""


@dataclass(frozen=True)
class Left:
    """How long it stays open: until when at least, at most, and what is still missing, in words."""

    until: datetime
    latest: datetime
    missing: str | None


def opening(ctx: Ctx) -> dict[str, Json]:
    """What is fixed when the window begins: its length, the counters it begins with, and what each stable side needs to come back."""
    said = ctx.the_plan.window.duration
    waits = said is None and ctx.state.fact("mode") == "sparse"
    return {
        "at": ctx.state.entered.isoformat(),
        "duration": DAY if said is None else said,
        "live": LIVE_REQUESTS if waits else None,
        "base": {pair.canary: _counts(ctx.world.samples.get(pair.canary)) for pair in ctx.receipts.pairs},
        "kept": {pair.stable: kept(ctx, index, pair) for index, pair in enumerate(ctx.receipts.pairs)},
    }


def ends(state: RolloutState) -> datetime | None:
    """When the window ends by the clock; None before it began."""
    opened = state.fact(FACT)
    if opened is None:
        return None
    end = datetime.fromisoformat(opened["at"]) + timedelta(seconds=opened["duration"] + float(state.fact("window.extra") or 0.0))
    until = state.fact("window.until")
    return max(end, datetime.fromisoformat(until)) if until else end


def left(ctx: Ctx) -> Left | None:
    """How long the window stays open; None when it is over."""
    end, opened = ends(ctx.state), ctx.state.fact(FACT)
    if end is None or ctx.now < end:
        return Left(end or ctx.now, end or ctx.now, None)
    limit = datetime.fromisoformat(opened["at"]) + timedelta(seconds=LONGEST)
    if opened["live"] is None or ctx.now >= limit:
        return None
    seen = live(ctx, opened["base"])
    if seen is not None and seen >= opened["live"]:
        return None
    told = "unknown" if seen is None else str(seen)
    return Left(limit, limit, f"{told} of {opened['live']} live requests so far")


def live(ctx: Ctx, base: Mapping[str, Json]) -> int | None:
    """Requests that the new sides ended since the window began; None when no engine says so. A restart loses what came before it."""
    total, known = 0.0, False
    for name, before in base.items():
        now = _counts(ctx.world.samples.get(name))
        known = known or now is not None
        for engine, count in (now or {}).items():
            was = (before or {}).get(engine, 0.0)
            total += count - was if count >= was else count
    return int(total) if known else None


def _counts(sample: EngineSample | None) -> dict[str, float] | None:
    """Ended requests by engine; None when they cannot be read."""
    if sample is None or sample.status != "OK":
        return None
    return {key: row.requests for key, row in sample.instances.items() if row.requests is not None}
