"""The rollback window in words: until when, and what a rollback would take now. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.restore import Restorable
from rollout.domain.state import RolloutState, StepName
from rollout.domain.window import ends

Json = Any


class RestoreView(BaseModel):
    """One old side. `word`: at_once | by_loading | not; `seconds` to load it, None = unknown; `told`: the sentence."""

    model_config = ConfigDict(frozen=True)

    deployment: str
    word: str
    seconds: float | None
    why: str
    told: str


class WindowView(BaseModel):
    """The window by the clock; sparse traffic may make it longer, which `waiting` says."""

    model_config = ConfigDict(frozen=True)

    ends: datetime
    sides: tuple[RestoreView, ...]


def window_of(state: RolloutState) -> WindowView | None:
    """None outside the window, on the way back (which looks itself, and says what it finds), and once the old side is being removed."""
    end = ends(state)
    if end is None or state.terminal or state.undo is not None or state.step is not StepName.CLEANUP or state.fact("cleanup.began"):
        return None
    return WindowView(ends=end, sides=tuple(_side(name, raw) for name, raw in sorted((state.fact("restorable") or {}).items())))


def _side(name: str, raw: Json) -> RestoreView:
    can = Restorable(**raw)
    return RestoreView(deployment=name, word=can.word, seconds=can.seconds, why=can.why, told=can.told)
