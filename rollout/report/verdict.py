"""The verdict in words, with the evidence it rests on and what it does not know. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.state import RolloutState
from rollout.plan.model import Plan

Json = Any


class VerdictView(BaseModel):
    """`word`: pass | fail | inconclusive | error | none. `v`, `phi`: the assumed noise of a single replica (variance, correlation a window)."""

    model_config = ConfigDict(frozen=True)

    word: str
    sentence: str
    mode: str | None
    alpha: float | None
    beta: float | None
    v: float | None
    phi: float | None


def verdict_of(state: RolloutState, plan: Plan | None) -> VerdictView | None:
    """The last verdict on the current target; None before anything was judged."""
    raw = state.fact(f"{state.target}.verdict")
    mode = state.fact("mode")
    if raw is None and mode is None:
        return None
    raw = raw or {}
    noise = raw.get("noise") or {}
    return VerdictView(
        word=str(raw.get("word", "none")),
        sentence=str(raw.get("sentence", "no verdict yet")),
        mode=raw.get("mode") or mode,
        alpha=plan.evidence.alpha if plan else None,
        beta=plan.evidence.beta if plan else None,
        v=noise.get("v"),
        phi=noise.get("phi"),
    )
