"""What a run would do, from the real decisions on the world as it is. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rollout.domain.context import Ctx
from rollout.domain.preflight import holder
from rollout.domain.receipts import Receipts
from rollout.domain.weights import Rung
from rollout.errors import PlanError
from rollout.steps.declare import check, declaration

Json = Any


@dataclass(frozen=True)
class Preview:
    """Findings that refuse the plan, and, when there are none, what each pair will go through."""

    findings: list[str]
    holder: str | None
    mode: str | None = None
    rate: float | None = None
    """stable's requests an hour, None = unknown"""
    rate_source: str = ""
    """where the rate comes from, in words"""
    receipts: Receipts | None = None
    ladders: dict[str, tuple[Rung, ...]] = field(default_factory=dict)
    """canary deployment -> its rungs"""
    diff: dict[str, list[list[Json]]] = field(default_factory=dict)
    """canary deployment -> rows of (field, stable, canary)"""
    shared: dict[str, list[str]] = field(default_factory=dict)
    """stable deployment -> other routes that use it"""
    declared: Ctx | None = None
    """the rollout as it would stand once declared"""
    standing: str | None = None
    """where an adopted canary goes on, and why there"""
    begin: int = 0
    """index of the rung it goes on with"""


def preview(ctx: Ctx) -> Preview:
    """The preview for the plan in `ctx`. PlanError findings of the backend are shown beside the others."""
    held = holder(ctx.world)
    try:
        found = check(ctx)
        if found:
            return Preview(found, held)
        facts = declaration(ctx)
    except PlanError as error:
        return Preview([f"{error.message} {error.why}".strip()], held)
    receipts = Receipts.model_validate(facts["receipts"])
    then = Ctx(ctx.plan, ctx.state.model_copy(update={"facts": {**ctx.state.facts, **facts}}), ctx.world, ctx.derive, ctx.diff)
    ladders = {p.canary: then.ladder(p) for p in receipts.pairs}
    views = {p.stable: ctx.world.deployments.get(p.stable) for p in receipts.pairs}
    shared = {n: [r for r in v.routes if r != receipts.route] for n, v in views.items() if v is not None}
    return Preview(
        [],
        held,
        mode=facts["mode"],
        rate=facts["rate"],
        rate_source=facts["rate_source"],
        receipts=receipts,
        ladders=ladders,
        diff=facts["diff"],
        shared={k: v for k, v in shared.items() if v},
        declared=then,
        standing=(facts.get("standing") or {}).get("why"),
        begin=int((facts.get("0.found") or {}).get("rung", 0)),
    )
