"""Our private probe routes: made, and removed. No route of users is touched.

A probe route is private before it has a target: the create call cannot carry an access policy, so the route is born empty
(it answers nothing), becomes private, is read back, and only then gets its target.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.backends.gpustack_hand import Brought, End, Hand
from rollout.backends.gpustack_owner import owner_of
from rollout.backends.gpustack_views import body_of
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Access, Model, Route, Target
from rollout.clients.secret import Secret
from rollout.errors import BadAnswer, Refused

Json = Any
PROBE_KEY = "rollout-probe"
"""key in a route's `meta`: the deployment that this private route of ours leads to"""
PRIVATE = "allowed_principals"
PROBE_WEIGHT = 100


@dataclass(frozen=True)
class ProbeRoute:
    """A private route as just read; `route` is None while there is none."""

    route: Route | None
    targets: tuple[Target, ...] = ()
    access: Access | None = None

    @property
    def found(self) -> Route:
        if self.route is None:
            raise BadAnswer("A private route vanished while it was made.", hint="Another writer removed it; try again.")
        return self.route

    def private_to(self, user: int) -> bool:
        """Only this user may call it."""
        if self.access is None or self.access.access_policy != PRIVATE:
            return False
        return [(g.principal_type.lower(), g.principal_id) for g in self.access.principals or []] == [("user", user)]


def is_probe_route(route: Route) -> bool:
    """Whether a rollout made it."""
    return PROBE_KEY in (route.meta or {})


class ProbeRoutes:
    """All effects on private routes."""

    def __init__(self, client: GPUStack, hand: Hand, inference_key: Secret | None) -> None:
        """`inference_key` is only used to find its owner, who may then use the private routes."""
        self._client = client
        self._hand = hand
        self._inference_key = inference_key

    async def create(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{name, deployment, extra?, principal?}: a route that only the inference key's owner may call, with that one target.

        `extra` are fields of the target, such as the adapter it asks for. `principal` is a user's id or name. Refused when the name
        belongs to a route that is not ours.
        """
        name, deployment = str(args["name"]), str(args["deployment"])
        user = await owner_of(self._client, args.get("principal"), self._inference_key)
        model = next((m for m in await self._client.models() if m.name == deployment), None)
        if model is None:
            raise Refused(f"No deployment is named {deployment}.", hint="It was deleted: see `rollout journal`.")

        async def look() -> ProbeRoute:
            return await self._probe(name, deployment)

        born = await self._hand.bring(End(f"private route {name}", look, lambda p: p.route is not None, lambda _: self._bear(name, model)))
        closed = await self._hand.bring(
            End(f"access to {name}", look, lambda p: p.private_to(user), lambda p: self._client.set_private(p.found.id, [user]))
        )
        aimed = await self._hand.bring(_aim(self._client, name, model, args.get("extra") or {}, look))
        return {
            "already": born.already and closed.already and aimed.already,
            "seconds": round(born.seconds + closed.seconds + aimed.seconds, 4),
            "id": aimed.seen.found.id,
            "active": all(t.state == "active" for t in aimed.seen.targets),
            "principal": user,
        }

    async def delete(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{name}: no private route of that name. Refused for a route that no rollout made."""
        name = str(args["name"])

        async def look() -> Route | None:
            route = next((r for r in await self._client.routes() if r.name == name), None)
            if route is not None and not is_probe_route(route):
                raise Refused(f"{name} is not a private route of a rollout; it is not deleted.")
            return route

        async def write(route: Route | None) -> None:
            if route is not None:
                await self._client.delete_route(route.id)

        done: Brought[Route | None] = await self._hand.bring(End(f"private route {name} goes", look, lambda r: r is None, write))
        return done.receipt()

    async def _bear(self, name: str, model: Model) -> None:
        body = {"name": name, "categories": model.categories or [], "meta": {PROBE_KEY: model.name}, "targets": []}
        await self._client.create_route(body)

    async def _probe(self, name: str, deployment: str) -> ProbeRoute:
        route = next((r for r in await self._client.routes() if r.name == name), None)
        if route is None:
            return ProbeRoute(None)
        if (route.meta or {}).get(PROBE_KEY) != deployment:
            raise Refused(f"A route named {name} exists and is not the private route to {deployment}.", hint="Rename or remove it.")
        async with Together() as together:
            targets, access = together.start(self._client.targets(route.id)), together.start(self._client.access(route.id))
        return ProbeRoute(route, tuple(targets.result()), access.result())


def _aim(
    client: GPUStack, name: str, model: Model, extra: Mapping[str, Json], look: Callable[[], Awaitable[ProbeRoute]]
) -> End[ProbeRoute]:
    """The route's one target. It becomes active as soon as the deployment runs; until then there is nothing to wait for."""

    async def write(seen: ProbeRoute) -> None:
        if seen.access is None or seen.access.access_policy != PRIVATE:
            raise Refused(f"{name} is no longer private: it gets no target.")
        body = [body_of(model.id, PROBE_WEIGHT, extra)]
        await client.put_route(seen.found.id, {"name": name, "targets": body})

    def settled(seen: ProbeRoute) -> bool:
        return model.ready_replicas == 0 or all(t.state == "active" for t in seen.targets)

    return End(f"target of {name}", look, lambda p: [t.model_id for t in p.targets] == [model.id], write, settled)
