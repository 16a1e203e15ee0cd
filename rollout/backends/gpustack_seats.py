"""The targets of one route as just read, and the comparison that proves nobody else's target was touched. Reads only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rollout.backends.gpustack_views import extra_of
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Route, Target
from rollout.errors import BadAnswer, Refused

Json = Any


@dataclass(frozen=True)
class Seats:
    """The targets of one route, as just read; `mine` are those of one deployment."""

    route: Route
    deployment: str
    model_id: int | None
    targets: tuple[Target, ...]

    @property
    def mine(self) -> tuple[Target, ...]:
        """Targets of the deployment, oldest first."""
        return tuple(t for t in self.targets if t.model_id is not None and t.model_id == self.model_id)

    @property
    def others(self) -> tuple[Target, ...]:
        """Everybody else's targets."""
        return tuple(t for t in self.targets if t not in self.mine)

    @property
    def weighted(self) -> bool:
        """Somebody else's target has a weight, so that none may have 0. Fallbacks are beside that rule."""
        return any(t.weight for t in self.others if not t.fallback_status_codes)

    @property
    def others_serve(self) -> bool:
        """Another target takes requests; a fallback only takes errors, and a provider takes none while the gateway is off."""
        return any(t.state == "active" and t.model_id is not None and not t.fallback_status_codes for t in self.others)


Look = Callable[[], Awaitable[Seats]]


async def seats_of(client: GPUStack, args: Mapping[str, Json], *, need_model: bool) -> tuple[Look, Seats]:
    """A look that reads the route's targets each time, and its first result. The names are resolved once.

    Raises Refused when the route, or a deployment that is needed, does not exist.
    """
    async with Together() as together:
        routes, models, targets = together.start(client.routes()), together.start(client.models()), together.start(client.targets())
    route = named(routes.result(), args["route"])
    model = next((m for m in models.result() if m.name == args["deployment"]), None)
    if model is None and need_model:
        raise Refused(f"No deployment is named {args['deployment']}.", hint="It was deleted: see `rollout journal`.")
    own = tuple(t for t in targets.result() if t.route_id == route.id)
    first = Seats(route, args["deployment"], model.id if model else None, own)
    fresh = [first]

    async def look() -> Seats:
        if fresh:
            return fresh.pop()
        return replace(first, targets=tuple(await client.targets(route.id)))

    return look, first


def named(routes: list[Route], name: str) -> Route:
    found = next((r for r in routes if r.name == name), None)
    if found is None:
        raise Refused(f"No route is named {name}.", hint="It was deleted or renamed on the server.")
    return found


def same_siblings(before: Seats, after: Seats) -> None:
    """Raises BadAnswer naming the target of somebody else that changed while ours was written."""
    was = {t.id: (t.model_id, t.weight, extra_of(t)) for t in before.others}
    now = {t.id: (t.model_id, t.weight, extra_of(t)) for t in after.others}
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            raise BadAnswer(
                f"sibling target {key} on the route {after.route.name} changed while another one was written.",
                why=f"before: {_words(was.get(key))}; after: {_words(now.get(key))}",
                hint="Another writer is at work on this route: nothing more is written until a person has looked.",
            )


def _words(entry: tuple[int | None, int, dict[str, Json]] | None) -> str:
    if entry is None:
        return "absent"
    return f"deployment id {entry[0]}, weight {entry[1]}" + (f", {entry[2]}" if entry[2] else "")
