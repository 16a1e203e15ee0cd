"""One write of a whole route: every named target gets its weight, or loses it, at once. Used to convert a route and to give it back.

The server takes all weights or none, so this cannot be done one target at a time. With the gateway off every target is
unavailable for a moment; whoever calls this has been told. Ids and every other field of every target stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.backends.gpustack_hand import End, Hand
from rollout.backends.gpustack_seats import named as route_named
from rollout.backends.gpustack_views import body_of, extra_of, names_of, target_view
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Target
from rollout.domain.world import named
from rollout.errors import BadAnswer, Refused

Json = Any
Seen = tuple[Target, ...]


class Reweigh:
    """The effect `reweigh`."""

    def __init__(self, client: GPUStack, hand: Hand) -> None:
        self._client = client
        self._hand = hand

    async def reweigh(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, weights: {target: weight}}: these targets have these weights, by the names of `domain.world.named`.

        The receipt's `active` is False while a target that served before does not serve yet. Refused when a name fits no target
        or two, BadAnswer when anything but the weights has changed.
        """
        wanted = {str(name): _weight(weight) for name, weight in args["weights"].items()}
        async with Together() as together:
            routes, models = together.start(self._client.routes()), together.start(self._client.models())
        route, names = route_named(routes.result(), args["route"]), names_of(models.result())

        def name(target: Target) -> str:
            return named(target_view(target, names))

        async def look() -> Seen:
            seen = tuple(await self._client.targets(route.id))
            found = [name(t) for t in seen]
            lost = [n for n in wanted if found.count(n) != 1]
            if lost:
                raise Refused(
                    f"The route {route.name} has not exactly one target for {', '.join(lost)}.", hint="Somebody else changed the route."
                )
            return seen

        async def write(seen: Seen) -> None:
            entries = [{"id": t.id, **body_of(t.model_id, wanted.get(name(t), t.weight), extra_of(t))} for t in seen]
            await self._client.put_route(route.id, {"name": route.name, "targets": entries})

        first = await look()
        served = {t.id for t in first if t.state == "active"}

        def settled(seen: Seen) -> bool:
            return all(t.state == "active" for t in seen if t.id in served)

        what = f"weights of the route {route.name}"
        end = End(what, look, lambda seen: all(wanted.get(name(t), t.weight) == t.weight for t in seen), write, settled)
        done = await self._hand.bring(end)
        if not done.already:
            _only_weights(route.name, first, done.seen)
            await self._client.drop_cache(route.id, route.name)
        return done.receipt(id=route.id, active=done.settled)


def _only_weights(route: str, before: Seen, after: Seen) -> None:
    was, now = ({t.id: (t.model_id, extra_of(t)) for t in seen} for seen in (before, after))
    if was != now:
        changed = ", ".join(str(key) for key in sorted(was.keys() | now.keys()) if was.get(key) != now.get(key))
        raise BadAnswer(
            f"The targets {changed} of the route {route} changed while its weights were written.",
            hint="Another writer is at work on this route: nothing more is written until a person has looked.",
        )


def _weight(weight: Json) -> int:
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise Refused(f"Weight {weight!r} is not written.", why="weights are whole numbers from 0 on", hint="Correct the weight.")
    return weight
