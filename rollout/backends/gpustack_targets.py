"""Writes to the targets of one route: join, re-weight, twin, leave, and dropping the proxy's cache.

One target changes at a time and every other one is compared afterwards. There is no "add one target" call: joining sends the
whole list, read immediately before. No write of this room leaves a route without an active target.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rollout.backends.gpustack_hand import Brought, End, Hand
from rollout.backends.gpustack_seats import Seats, named, same_siblings, seats_of
from rollout.backends.gpustack_views import OWNED, body_of, extra_of
from rollout.clients.errors import HttpRefused
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Route, Target
from rollout.errors import BadAnswer, Refused

Json = Any


class Targets:
    """All effects on targets."""

    def __init__(self, client: GPUStack, hand: Hand) -> None:
        self._client = client
        self._hand = hand

    async def join(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, deployment, weight, extra?}: one target for the deployment, with the weight; 0 on a route without weights alone."""
        weight, extra = args["weight"], dict(args.get("extra") or {})
        if type(weight) is not int or weight != 0:
            _positive(weight)

        async def write(seen: Seats) -> None:
            if seen.weighted:
                _positive(weight)
            if seen.mine:
                await self._reweight(seen, weight)
            else:
                await self._append(seen, weight, extra)

        return await self._one(args, lambda s: _weights(s) == [weight], write, active=True)

    async def set_weight(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, deployment, weight}: the deployment's only target has the weight."""
        weight = _positive(args["weight"])

        async def write(seen: Seats) -> None:
            await self._reweight(seen, weight)

        return await self._one(args, lambda s: _weights(s) == [weight], write, active=True)

    async def leave(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, deployment}: the route has no target for the deployment. Refused when nothing active would remain."""

        async def write(seen: Seats) -> None:
            if not seen.others_serve:
                raise Refused(
                    f"Removing {seen.deployment} would empty the route {seen.route.name}.",
                    why="no other target of it is active",
                    hint="Bring another target back first.",
                )
            await self._remove(seen.route, seen.mine)

        return await self._one(args, lambda s: not s.mine, write, active=False)

    async def twin(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route, deployment, weight}: re-weights a sole target without an instant in which nothing is active: the same
        deployment joins with the new weight, becomes active, and only then does the old target leave."""
        weight = _positive(args["weight"])
        began = self._hand.clock.monotonic()
        look, first = await seats_of(self._client, args, need_model=True)
        if _weights(first) == [weight]:
            return {"already": True, "seconds": 0.0, "id": first.mine[0].id, "active": first.mine[0].state == "active"}
        if not first.mine:
            raise Refused(f"{first.deployment} has no target on the route {first.route.name}.", hint="Let it join first.")

        async def add(seen: Seats) -> None:
            await self._append(seen, weight, extra_of(seen.mine[-1]))

        what = f"second target of {first.deployment} with weight {weight}"
        added = await self._hand.bring(
            End(what, look, lambda s: weight in _weights(s), add, lambda s: _newest(s, weight).state == "active")
        )
        if not added.settled:
            raise BadAnswer(
                f"{what}: it did not become active.", why="the old target stays as it was", hint="Look at the deployment's instances."
            )
        await self._client.drop_cache(first.route.id, first.route.name)

        async def remove(seen: Seats) -> None:
            keep = _newest(seen, weight)
            if keep.state != "active":
                raise Refused(f"{seen.deployment}: its new target is {keep.state}; the old one stays.")
            await self._remove(seen.route, [t for t in seen.mine if t.id != keep.id])

        done = await self._hand.bring(End(f"the old target of {first.deployment} leaves", look, lambda s: len(s.mine) == 1, remove))
        same_siblings(first, done.seen)
        return {"already": False, "seconds": round(self._hand.clock.monotonic() - began, 4), "id": done.seen.mine[0].id, "active": True}

    async def refresh(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{route}: the name-only PUT that drops the proxy's cached targets and re-renders a gateway's rule."""
        route = named(await self._client.routes(), args["route"])
        began = self._hand.clock.monotonic()
        await self._client.drop_cache(route.id, route.name)
        return {"id": route.id, "seconds": round(self._hand.clock.monotonic() - began, 4)}

    async def _one(
        self, args: Mapping[str, Json], applied: Callable[[Seats], bool], write: Callable[[Seats], Awaitable[None]], *, active: bool
    ) -> dict[str, Json]:
        """One target is written; all others must be at the end as they were at the beginning."""
        look, first = await seats_of(self._client, args, need_model=active)

        def settled(seen: Seats) -> bool:
            return not active or all(t.state == "active" for t in seen.mine)

        what = f"target of {first.deployment} on the route {first.route.name}"
        brought: Brought[Seats] = await self._hand.bring(End(what, look, applied, write, settled))
        if not brought.already:
            same_siblings(first, brought.seen)
        ids = [t.id for t in (*brought.seen.mine, *first.mine)]
        return brought.receipt(id=ids[0] if ids else None, **({"active": brought.settled} if active else {}))

    async def _append(self, seen: Seats, weight: int, extra: Mapping[str, Json]) -> None:
        new = body_of(seen.model_id, weight, {k: v for k, v in extra.items() if k not in OWNED and v is not None})
        await self._client.put_route(seen.route.id, {"name": seen.route.name, "targets": [*map(_kept, seen.targets), new]})

    async def _remove(self, route: Route, gone: Sequence[Target]) -> None:
        """Deletes one target after another.

        2.2.3 answers 404 for every single target, those that it shows included: one that is still shown leaves by a list without it.
        """
        for target in gone:
            try:
                await self._client.delete_target(target.id)
            except HttpRefused as error:
                if not error.not_found:
                    raise
                await self._leave_out(route, target)

    async def _leave_out(self, route: Route, target: Target) -> None:
        shown = await self._client.targets(route.id)
        rest = [t for t in shown if t.id != target.id]
        if len(rest) == len(shown):
            return
        if not any(t.state == "active" and not t.fallback_status_codes for t in rest):
            raise Refused(f"Removing target {target.id} would empty the route {route.name}.", why="no other target of it is active")
        await self._client.put_route(route.id, {"name": route.name, "targets": [_kept(t) for t in rest]})

    async def _reweight(self, seen: Seats, weight: int) -> None:
        if len(seen.mine) != 1:
            raise Refused(f"{seen.deployment} has {len(seen.mine)} targets on the route {seen.route.name}; expected one.")
        if not seen.others_serve:
            raise Refused(
                f"{seen.deployment} is the only active target of the route {seen.route.name}: its weight is not changed in place.",
                why="while a target is re-activated, requests would find none",
                hint="Use `twin`.",
            )
        target = seen.mine[0]
        await self._client.put_target(target.id, body_of(target.model_id, weight, extra_of(target)))


def _kept(target: Target) -> dict[str, Json]:
    """A target's entry in a list write that leaves it as it is."""
    return {"id": target.id, **body_of(target.model_id, target.weight, extra_of(target))}


def _weights(seen: Seats) -> list[int]:
    return [t.weight for t in seen.mine]


def _newest(seen: Seats, weight: int) -> Target:
    return max((t for t in seen.mine if t.weight == weight), key=lambda t: t.id)


def _positive(weight: Json) -> int:
    if not isinstance(weight, int) or isinstance(weight, bool) or weight <= 0:
        raise Refused(
            f"Weight {weight!r} is not written.",
            why="0 beside a positive weight is refused and all-zero means uniform",
            hint="Use `leave`.",
        )
    return weight
