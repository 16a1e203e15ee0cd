"""The verdict in words, with the evidence it rests on and what it does not know. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.state import RolloutState

Json = Any


class VerdictView(BaseModel):
    """`word`: pass, fail, continue (undecided), inconclusive, error, or none yet.

    `requests`: live canary requests on this rung; `pairs`: paired probes so far.
    `v`, `phi`: assumed noise of a single replica (variance, correlation a window); `guaranteed`: they were fitted, so α and β are claimed.
    """

    model_config = ConfigDict(frozen=True)

    word: str
    sentence: str
    mode: str | None
    alpha: float | None
    beta: float | None
    v: float | None
    phi: float | None
    guaranteed: bool
    requests: int
    pairs: int


def verdict_of(state: RolloutState) -> VerdictView | None:
    """What is known about the current target; None before the evidence mode was fixed."""
    judge, mode = state.fact(f"{state.target}.judge") or {}, state.fact("mode")
    if not judge and mode is None:
        return None
    config, found, seen = judge.get("config") or {}, judge.get("verdict") or {}, state.fact(f"{state.target}.seen") or {}
    word = str(found.get("kind", "none"))
    return VerdictView(
        word=word,
        sentence=str(found.get("sentence", "nothing was judged yet")).removeprefix(f"{word.upper()}: "),
        mode=config.get("mode") or mode,
        alpha=config.get("alpha"),
        beta=config.get("beta"),
        v=config.get("v"),
        phi=config.get("phi"),
        guaranteed=bool(config.get("guaranteed")),
        requests=int(seen.get("requests") or 0),
        pairs=int(seen.get("pairs") or 0),
    )
