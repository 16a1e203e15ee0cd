"""May the inference key do what a rollout asks of it, and when is a silent side asked again? Pure: receipts of own requests in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Act

Json = Any
FACT = "reach"
FRESH = 60.0
"""seconds for which an answer about the key is believed"""
LONGEST = 15.0
"""seconds between own requests to a side that does not answer"""


def ask(ctx: Ctx) -> Act | None:
    """The one call that shows whether the inference key may use the route; None when it was just made."""
    if ctx.state.fact(FACT) is not None and ctx.since(ctx.at(FACT)) <= FRESH:
        return None
    route = ctx.the_plan.route.name
    return act("probe_key", f"may the inference key use route {route}?", FACT, model=route)


def objection(ctx: Ctx) -> str | None:
    """What speaks against the inference key, with its remedy; None when it may use the route, or nothing can be said."""
    seen: Mapping[str, Json] = ctx.state.fact(FACT) or {}
    plan = ctx.the_plan
    at, route = plan.gpustack.inference or plan.gpustack.server, plan.route.name
    if seen.get("status") in (401, 403):
        remedy = "make one with scope `inference`, and put it where the plan's `gpustack.inference_key` points"
        return f"the inference key is not accepted at {at} ({seen.get('error')}): {remedy}"
    usable = ctx.world.route is not None and all(t.active for t in ctx.world.route.targets)
    if seen.get("listed") is False and usable:
        remedy = "use a key of a user who may use it, without `allowed_model_names`"
        return f"route `{route}` is not visible to the inference key at {at}: {remedy}, or correct `gpustack.inference`"
    return None


def pause(ctx: Ctx, asked: str, silent: str) -> float:
    """Seconds left until a side that did not answer is asked again: 1, 2, 4, 8 and then 15 after each other.

    `asked` is the receipt of the last own request, `silent` the fact of when it first stayed without an answer.
    """
    first, last = ctx.at(silent), ctx.at(asked)
    if first is None or last is None:
        return 0.0
    return min(LONGEST, 1.0 + (last - first).total_seconds()) - ctx.since(last)
