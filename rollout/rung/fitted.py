"""What a plan says beyond the mode's defaults, in the judge's own terms: margins of single metrics, and its own noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rollout.analysis import Histogram, Margin, Window, window_from_json
from rollout.analysis.config import METRICS
from rollout.analysis.fit import Fitted, fit_history
from rollout.domain.context import Ctx


def margins(ctx: Ctx) -> tuple[Margin, ...]:
    """Those that the plan writes."""
    said = ctx.the_plan.evidence.margins
    rows = [(m, getattr(said, m).tolerated, getattr(getattr(said, m), "unacceptable", None)) for m in METRICS]
    return tuple(Margin(m, None if low is None else float(low), high) for m, low, high in rows if low is not None or high is not None)


def history(ctx: Ctx) -> tuple[Window, ...]:
    """The windows of stable against itself that came with the plan; their shape was checked when it was read."""
    return tuple(window_from_json(row) for row in (ctx.the_plan.evidence.history or ())[1:])


def fit(ctx: Ctx, references: Mapping[str, Histogram | None]) -> tuple[Fitted, str]:
    """What the history tells of the noise, and the sentence about it; nothing is fitted, and it says why, when the history does not do."""
    windows = history(ctx)
    if not windows:
        return Fitted((), None, 0), ""
    try:
        found = fit_history(references, windows, seconds=ctx.the_plan.evidence.window)
    except ValueError as error:
        return Fitted((), None, 0), f"; the history is not used: {error}"
    said = ", ".join(f"{n.metric} v={n.v:g} phi={n.phi:g}" for n in found.noises)
    return found, f"; noise fitted on {found.windows} windows: {said or 'no latency was seen in them'}"
