"""Creating and deleting deployments. Names are derived by the caller, so a lost answer never makes a second one.

A deployment that any route of users still references is not deleted: the reference is looked for immediately before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollout.backends.gpustack_fields import SETTABLE
from rollout.backends.gpustack_hand import Brought, End, Hand
from rollout.backends.gpustack_probe_routes import is_probe_route
from rollout.backends.gpustack_spec import covers, derive_spec, spec_of
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Model
from rollout.domain.receipts import spec_digest
from rollout.errors import Refused, ServerError
from rollout.plan.hidden import without

Json = Any
_MAY_DIFFER = frozenset({"replicas", "categories", "description"})
"""fields that may have moved since creation without making it another deployment"""


@dataclass(frozen=True)
class Use:
    """A deployment and the routes of users that send to it."""

    model: Model | None
    routes: tuple[str, ...] = ()


class Deployments:
    """All effects on deployments."""

    def __init__(self, client: GPUStack, hand: Hand) -> None:
        self._client = client
        self._hand = hand

    async def create(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{name, base, change, sizing, digest}: a deployment of that name exists, derived from `base` as it is now, without a route.

        The spec is derived here and not handed in, so that secrets in an environment are never stored on the way. Refused when
        `base` is no longer what was declared, or when the name belongs to a deployment with another spec; the fields are named.
        """
        name = str(args["name"])
        spec = await self._derived(name, args)

        async def look() -> Model | None:
            model = await self._model(name)
            if model is not None:
                _same(name, spec_of(model.raw), spec)
            return model

        async def write(_seen: Model | None) -> None:
            try:
                await self._client.create_model({**spec, "name": name, "enable_model_route": False})
            except ServerError as error:
                error.why = without(error.why, spec)  # an answer may repeat what it refuses
                raise

        done: Brought[Model | None] = await self._hand.bring(End(f"deployment {name}", look, lambda m: m is not None, write))
        return done.receipt(id=done.seen.id if done.seen else None)

    async def _derived(self, name: str, args: Mapping[str, Json]) -> dict[str, Json]:
        base = await self._model(str(args["base"]))
        if base is None:
            raise Refused(
                f"{args['base']}, which {name} is derived from, does not exist.", hint="It was deleted since the plan was declared."
            )
        change = args["change"]
        spec = derive_spec(spec_of(base.raw), change.get("unit", "parameters"), change.get("to", {}), args["sizing"], name)
        if spec_digest(spec) != args["digest"]:
            raise Refused(
                f"{args['base']} was changed since the plan was declared: {name} would differ in more than one unit.",
                hint="Roll back, and start again from what runs now.",
            )
        return {k: v for k, v in spec.items() if k in SETTABLE and v is not None}

    async def delete(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{name}: no deployment of that name. Its instances stop at once, so the caller has drained it."""
        name = str(args["name"])

        async def look() -> Use:
            return await self._use(name)

        async def write(seen: Use) -> None:
            if seen.routes:
                raise Refused(
                    f"{name} is not deleted: {', '.join(seen.routes)} still sends to it.",
                    hint="Remove its target from that route first, or leave the deployment.",
                )
            if seen.model is not None:
                await self._client.delete_model(seen.model.id)

        done: Brought[Use] = await self._hand.bring(End(f"deployment {name} goes", look, lambda u: u.model is None, write))
        return done.receipt()

    async def _model(self, name: str) -> Model | None:
        return next((m for m in await self._client.models() if m.name == name), None)

    async def _use(self, name: str) -> Use:
        async with Together() as together:
            found, targets = together.start(self._model(name)), together.start(self._client.targets())
            routes = together.start(self._client.routes())
        model = found.result()
        if model is None:
            return Use(None)
        ours = {r.id for r in routes.result() if is_probe_route(r)}
        users = {t.route_name for t in targets.result() if t.model_id == model.id and t.route_id not in ours}
        return Use(model, tuple(sorted(users)))


def _same(name: str, found: Mapping[str, Json], wanted: Mapping[str, Json]) -> None:
    """The server adds defaults, so what it shows must cover what is wanted."""
    differ = [k for k, v in sorted(wanted.items()) if k not in _MAY_DIFFER and v not in ({}, []) and not covers(found.get(k), v)]
    if differ:
        raise Refused(
            f"A deployment named {name} exists with another spec.",
            why=f"it differs in {', '.join(differ)}",
            hint="Rename or remove it; nothing was changed.",
        )
