"""The marker that says which rollout holds a route, kept where the server leaves it alone.

Usually that is the route's own `meta`. On a route that a deployment brought along, the server writes the deployment's `meta` over
the route's at every event of that deployment, so there the marker stands on a claim route beside it: without targets it answers
nothing and is listed nowhere. Readers see one marker either way. The deployment itself is never written: a full update of it
drops settings on some releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.backends.gpustack_hand import Brought, End, Hand
from rollout.backends.gpustack_seats import named
from rollout.clients.errors import HttpRefused
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Route
from rollout.domain.effects import MARKER_KEY
from rollout.errors import Refused

Json = Any
CLAIM_PREFIX = "rollout-claim-"


@dataclass(frozen=True)
class Held:
    """A route and what marks it. `route` is None when it is gone, `claim` when there is no claim route of ours."""

    route: Route | None
    claim: Route | None

    @property
    def marker(self) -> Json:
        """The marker, wherever it stands; None when there is none."""
        return next((m for r in (self.claim, self.route) if r is not None and (m := _meta(r).get(MARKER_KEY)) is not None), None)

    @property
    def meta(self) -> dict[str, Json]:
        """The route's `meta` as readers see it."""
        marker = self.marker
        found = _meta(self.route) if self.route else {}
        return found if marker is None else {**found, MARKER_KEY: marker}


def held(routes: Iterable[Route], name: str) -> Held:
    """How the route of that name is marked."""
    by_name = {r.name: r for r in sorted(routes, key=lambda r: r.id, reverse=True)}  # the oldest of a name, as everywhere
    claim = by_name.get(CLAIM_PREFIX + name)
    return Held(by_name.get(name), claim if claim is not None and MARKER_KEY in _meta(claim) else None)


class Marker:
    """Writes and removes the marker. Never touches targets."""

    def __init__(self, client: GPUStack, hand: Hand) -> None:
        self._client = client
        self._hand = hand

    async def mark(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, marker, takeover?}: the route carries the marker beside what was there. Refused over another's marker without
        `takeover`."""
        name, marker = str(args["route"]), dict(args["marker"])

        async def look() -> Held:
            routes = await self._client.routes()
            named(routes, name)
            return held(routes, name)

        async def write(seen: Held) -> None:
            if not args.get("takeover"):
                _not_anothers(name, seen.marker, marker)
            try:
                await self._put(seen, marker)
            except HttpRefused as error:
                if error.conflict:
                    _not_anothers(name, (await look()).marker, marker)
                raise

        done: Brought[Held] = await self._hand.bring(End(f"marker on the route {name}", look, lambda h: h.marker == marker, write))
        return done.receipt(id=done.seen.route.id if done.seen.route else None)

    async def unmark(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route}: no marker is left; every other key stays. A route that is gone carries none."""
        name = str(args["route"])

        async def look() -> Held:
            return held(await self._client.routes(), name)

        async def write(seen: Held) -> None:
            if seen.claim is not None:
                await self._client.delete_route(seen.claim.id)
            if seen.route is not None and MARKER_KEY in _meta(seen.route):
                kept = {k: v for k, v in _meta(seen.route).items() if k != MARKER_KEY}
                await self._client.put_route(seen.route.id, {"name": name, "meta": kept})

        done: Brought[Held] = await self._hand.bring(End(f"no marker on the route {name}", look, lambda h: h.marker is None, write))
        return done.receipt()

    async def _put(self, seen: Held, marker: Mapping[str, Json]) -> None:
        """`meta` is replaced as a whole by the server: read, merge, write. Creating a claim route is refused if one exists."""
        place = seen.claim or seen.route
        if place is None:
            return
        if seen.claim is None and place.created_model_id is not None:
            body = {"name": CLAIM_PREFIX + place.name, "categories": [], "meta": {MARKER_KEY: marker}, "targets": []}
            await self._client.create_route(body)
        else:
            await self._client.put_route(place.id, {"name": place.name, "meta": {**_meta(place), MARKER_KEY: marker}})


def _meta(route: Route) -> dict[str, Json]:
    return dict(route.meta or {})


def _not_anothers(name: str, found: Json, ours: Mapping[str, Json]) -> None:
    if found is None or (isinstance(found, Mapping) and found.get("nonce") == ours.get("nonce")):
        return
    holder = found.get("id") if isinstance(found, Mapping) else found
    raise Refused(f"Route {name} carries the marker of rollout {holder}.", hint="`rollout status` there shows it.")
