"""The three shares that are never mixed: what the plan asks, what the weights express, what the counters show. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.effective import Carrier
from rollout.domain.receipts import Pair, receipts_of
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
    others = receipts.siblings_weight(pair, fallbacks=state.fact("carrier") != Carrier.RULE)
    return rungs([float(s) for s in shares], pair.scaled, others)


def current_rung(state: RolloutState) -> Rung | None:
    """The highest rung of the current target that was written; None while the canary is dark or the step has none."""
    ladder = ladder_of(state)
    if ladder and state.fact(f"{state.target}.handed"):
        return ladder[-1]
    written = [r for r in ladder if state.fact(_key(state, r, "written")) or state.fact(_key(state, r, "proved"))]
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
    hits, total, proved = _alone(state, receipts.pairs[state.target]) if rung.full else _seen(state, rung)
    return Shares(
        requested_pair=rung.asked,
        effective_pair=rung.pair_share,
        effective_route=rung.route_share,
        weight=rung.weight,
        stable_weight=receipts.pairs[state.target].scaled,
        observed_route=hits / total if total else None,
        requests=total,
        proved=proved,
    )


def _seen(state: RolloutState, rung: Rung) -> tuple[int, int, bool]:
    """Own requests that the canary answered, of how many, and whether that proved the rung's share."""
    proved = state.fact(_key(state, rung, "proved"))
    seen = proved or state.fact(_key(state, rung, "verified")) or {}
    return int(seen.get("hits") or 0), int(seen.get("n") or 0), proved is not None


def _alone(state: RolloutState, pair: Pair) -> tuple[int, int, bool]:
    """The same at 100 %, where it is stable's absence that is proved."""
    models = (state.fact(f"{state.target}.absent") or {}).get("models") or {}
    total = sum(models.values())
    return int(models.get(pair.canary, 0)), total, total > 0 and pair.stable not in models


def _key(state: RolloutState, rung: Rung, word: str) -> str:
    return f"{state.target}.rung.{rung.index}.{word}"
