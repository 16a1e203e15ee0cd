"""What a plan says beyond the mode's defaults, in the judge's own terms: margins of single metrics, and stable's own noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.analysis import Histogram, Margin, window_from_json
from rollout.analysis.config import METRICS
from rollout.analysis.fit import fit_history
from rollout.domain.context import Ctx


def margins(ctx: Ctx) -> tuple[Margin, ...]:
    """Those that the plan writes."""
    said = ctx.the_plan.evidence.margins
    rows = [(m, getattr(said, m).tolerated, getattr(getattr(said, m), "unacceptable", None)) for m in METRICS]
    return tuple(Margin(m, None if low is None else float(low), high) for m, low, high in rows if low is not None or high is not None)


def noise(ctx: Ctx, references: Mapping[str, Histogram | None]) -> dict[str, Any]:
    """What `config_for` is told of the noise: fitted on the history that came with the plan; nothing without one.

    The history's shape, length and windows were checked when the plan was read; one that says nothing all the same is as none, and the
    verdict names the bounds as not guaranteed.
    """
    evidence = ctx.the_plan.evidence
    if evidence.history is None:
        return {}
    history = [window_from_json(row) for row in evidence.history[1:]]
    try:
        found = fit_history(references, history, seconds=evidence.window)
    except ValueError:
        return {}
    return {"noises": found.noises, "memory_noise": found.memory_noise}
