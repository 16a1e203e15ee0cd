"""What is looked at once, before a rollout starts: who owns the route, which policies it has, who else is called so. Reads only.

These are a few more calls than a tick makes, and nothing a running rollout decides from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Model, Route
from rollout.domain.world import RouteView
from rollout.errors import BadAnswer, Refused, Unreachable

POLICIES = ("decision-service", "least-load", "session-affinity")
"""plugins of a route that choose an instance where no weights do"""


async def surveyed(client: GPUStack, routes: Sequence[Route], view: RouteView) -> RouteView:
    """`view` with its owner, its policies and its namesakes. Raises Unreachable, BadAnswer, Refused."""
    route = await client.route(view.id)
    owner = await _organisation(client, route.owner_principal_id)
    same = sum(1 for r in routes if r.name == view.name and r.id != view.id)
    plugins = route.plugins or {}
    policies = tuple(name for name in POLICIES if isinstance(plugins.get(name), dict) and plugins[name].get("enabled", True))
    return replace(view, organisation=owner, policies=policies, namesakes=same)


async def rates(client: GPUStack, models: Sequence[Model], now: datetime) -> dict[str, float]:
    """Requests an hour by deployment: what the server counted yesterday and today (UTC) over the hours since then, or since the
    deployment was made, at least one minute. One call each. A deployment that the server does not count has none, nor one
    whose usage cannot be read.
    """
    found = {}
    now = now.astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    for model in models:
        try:
            count = await client.requests(model.id, midnight.date(), now.date())
        except (Refused, BadAnswer, Unreachable):  # no right, no such call, a sick dashboard: the engines' own counters are left
            continue
        began = max(midnight, _utc(model.created_at)) if model.created_at else midnight
        found[model.name] = count / max(60.0, (now - began).total_seconds()) * 3600
    return found


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


async def _organisation(client: GPUStack, owner: int | None) -> str | None:
    """The organisation's name; None for the platform's own, and on servers without organisations (before 2.2) or without a word."""
    if owner is None:
        return None
    try:
        found = next((o for o in await client.organizations() if o.id == owner), None)
    except Refused:  # only an administrator may list them: then the server itself refuses what does not belong together
        return None
    return None if found is None or found.is_platform else found.name
