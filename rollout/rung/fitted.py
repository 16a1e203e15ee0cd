"""What a plan says beyond the mode's defaults, in the judge's own terms: margins of single metrics, and its own noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rollout.analysis import Histogram, Margin, MetricNoise, Window, window_from_json
from rollout.analysis.config import METRICS
from rollout.analysis.fit import fit_noise
from rollout.domain.context import Ctx


def margins(ctx: Ctx) -> tuple[Margin, ...]:
    """Those that the plan writes."""
    said = ctx.the_plan.evidence.margins
    rows = [(m, getattr(said, m).tolerated, getattr(getattr(said, m), "unacceptable", None)) for m in METRICS]
    return tuple(Margin(m, None if low is None else float(low), high) for m, low, high in rows if low is not None or high is not None)


def history(ctx: Ctx) -> tuple[Window, ...]:
    """The windows of stable against itself that came with the plan; their shape was checked when it was read."""
    return tuple(window_from_json(row) for row in (ctx.the_plan.evidence.history or ())[1:])


def noises(windows: tuple[Window, ...], references: Mapping[str, Histogram | None]) -> tuple[MetricNoise, ...]:
    """(v, phi) of each latency that both the history and the reference show; what cannot be fitted keeps the largest that can."""
    quiet = [w for w in windows if not (w.weight_changed or w.stable.restarts or w.canary.restarts)]
    found = []
    for metric, reference in references.items():
        sides = [(w.canary.histogram(metric), w.stable.histogram(metric)) for w in quiet]
        both = [(ours, theirs) for ours, theirs in sides if ours and theirs and ours.total and theirs.total]
        if reference is None or not reference.total or not both:
            continue
        try:
            found.append(MetricNoise(metric, *fit_noise(reference, both)))
        except ValueError:
            continue  # no edge on which anything could be seen
    return tuple(found)
