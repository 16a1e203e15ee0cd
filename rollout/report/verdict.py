"""The verdict in words, with the evidence it rests on and what it does not know. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.analysis.words import interval
from rollout.domain.state import RolloutState

Json = Any


class QualityView(BaseModel):
    """Replayed prompts so far: `used` of `of`, sums of scores and failed answers a side, and what the canary lost: count and worst ids."""

    model_config = ConfigDict(frozen=True)

    used: int
    of: int
    stable: float
    canary: float
    stable_errors: int
    canary_errors: int
    lost: int
    worst: tuple[str, ...]


class VerdictView(BaseModel):
    """`word`: pass, fail, continue (undecided), inconclusive, error, or none yet.

    `requests`: live canary requests on this rung; `pairs`: paired probes so far; `quality`: None where no prompts are replayed.
    `v`, `phi`: assumed noise of a single replica (variance, correlation a window); `guaranteed`: α and β are claimed.
    `effect`: an interval for each latency edge that is followed, in words; `assumptions`: what the bound rests on.
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
    quality: QualityView | None = None
    effect: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def verdict_of(state: RolloutState) -> VerdictView | None:
    """What is known about the current target; None before the evidence mode was fixed."""
    judge, mode = state.fact(f"{state.target}.judge") or {}, state.fact("mode")
    if not judge and mode is None:
        return None
    config, found, seen = judge.get("config") or {}, judge.get("verdict") or {}, state.fact(f"{state.target}.seen") or {}
    word = str(found.get("kind", "none"))
    details = found.get("details") or {}
    return VerdictView(
        word=word,
        sentence=str(found.get("sentence", "nothing was judged yet")).removeprefix(f"{word.upper()}: "),
        mode=config.get("mode") or mode,
        alpha=config.get("alpha"),
        beta=config.get("beta"),
        v=config.get("v"),
        phi=config.get("phi"),
        guaranteed=bool(details.get("guaranteed", config.get("guaranteed"))),
        requests=int(seen.get("requests") or 0),
        pairs=int(seen.get("pairs") or 0),
        quality=_quality(seen.get("replay")),
        effect=tuple(interval(row) for row in details.get("effect") or ()),
        assumptions=tuple(details.get("assumptions") or ()),
    )


def _quality(known: dict[str, Json] | None) -> QualityView | None:
    if not known:
        return None
    stable, canary = known["errors"]
    rest = {key: known[key] for key in ("used", "of", "stable", "canary", "lost", "worst")}
    return QualityView(stable_errors=stable, canary_errors=canary, **rest)
