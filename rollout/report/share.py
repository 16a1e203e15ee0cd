"""The three shares that are never mixed: what the plan asks, what the weights express, what the counters show. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.receipts import receipts_of
from rollout.domain.state import RolloutState, StepName
from rollout.domain.weights import Rung, rungs

Json = Any


class RungView(BaseModel):
    """The rung that was written last; numbers count from 1, shares are 0..1 of the pair."""

    model_config = ConfigDict(frozen=True)

    number: int
    of: int
    ladder: tuple[float, ...]


class Shares(BaseModel):
    """Shares in 0..1. `pair`: canary and the stable target it replaces; `route`: all targets. `observed` is of `requests` own requests."""

    model_config = ConfigDict(frozen=True)

    requested_pair: float
    effective_pair: float
    effective_route: float
    weight: int | None
    """the canary's weight; None once stable's target is removed"""
    stable_weight: int
    observed_route: float | None
    requests: int
    proved: bool


def ladder_of(state: RolloutState) -> tuple[Rung, ...]:
    """The rungs of the current target as fixed at declare; empty before."""
    receipts, shares = receipts_of(state), state.fact("ladder")
    if receipts is None or not shares or state.target >= len(receipts.pairs):
        return ()
    pair = receipts.pairs[state.target]
    return rungs([float(s) for s in shares], pair.scaled, receipts.siblings_weight(pair))


def current_rung(state: RolloutState) -> Rung | None:
    """The highest rung of the current target that was written; None while the canary is dark or the step has none."""
    written = [r for r in ladder_of(state) if state.fact(_key(state, r, "written")) or state.fact(_key(state, r, "proved"))]
    return written[-1] if written else None


def rung_of(state: RolloutState) -> RungView | None:
    """The current rung's place in the ladder."""
    rung, ladder = current_rung(state), ladder_of(state)
    if rung is None or state.step not in (StepName.CANARY, StepName.SHIFT):
        return None
    return RungView(number=rung.index + 1, of=len(ladder), ladder=tuple(r.asked for r in ladder))


def shares_of(state: RolloutState) -> Shares | None:
    """The three shares at the current rung."""
    rung, receipts = current_rung(state), receipts_of(state)
    if rung is None or receipts is None:
        return None
    seen = state.fact(_key(state, rung, "proved")) or state.fact(_key(state, rung, "verified")) or {}
    total = int(seen.get("n") or 0)
    return Shares(
        requested_pair=rung.asked,
        effective_pair=rung.pair_share,
        effective_route=rung.route_share,
        weight=rung.weight,
        stable_weight=receipts.pairs[state.target].scaled,
        observed_route=int(seen.get("hits") or 0) / total if total else None,
        requests=total,
        proved=state.fact(_key(state, rung, "proved")) is not None,
    )


def _key(state: RolloutState, rung: Rung, word: str) -> str:
    return f"{state.target}.rung.{rung.index}.{word}"
