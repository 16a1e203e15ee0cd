"""The states with which an adoption and a takeover begin. Reads the world it is given; writes only to the store, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rollout.domain import adoption
from rollout.domain.health import marker_of
from rollout.domain.receipts import Receipts, legible, marker
from rollout.domain.state import Event, Phase, RolloutState, evolve
from rollout.domain.world import RouteView, World
from rollout.errors import ExitCode, NotFound, PreflightError, UsageError
from rollout.plan.model import GPUStack, Plan
from rollout.steps.declare import MARKER_LIFE

if TYPE_CHECKING:
    from rollout.domain.ports import Backend
    from rollout.store import Owner, Store, StoredRollout

Json = Any
LEASE = 30.0


def adopting(canary: str, *, delete: bool) -> dict[str, Json]:
    """The wish that `declare` carries out. `delete`: a rollback also removes the canary's deployment."""
    return {"canary": canary, "delete": delete}


def found_receipts(world: World, route: str) -> tuple[str, Receipts]:
    """Id and receipts of the rollout that holds the route. NotFound when none does, RollbackImpossible when its marker cannot be read."""
    raw = marker_of(world.route)
    if world.route is None or raw is None:
        raise nothing_held(route, world.route)
    return str(raw.get("id")), legible(route, raw)


def claiming(state: RolloutState, receipts: Receipts, former: str, now: datetime, at: GPUStack | None) -> RolloutState:
    """The state that writes our marker over the other one. `at` keeps where the server is (references, no keys): there may be no plan."""
    ours = marker(receipts, str(state.fact("store")), str(state.fact("nonce")), now + MARKER_LIFE, by=state.id)
    facts = {"takeover_of": former, "receipts": receipts.model_dump(mode="json"), "marker": ours, "takeover": True}
    where = {"gpustack": at.model_dump(mode="json")} if at is not None else {}
    return state.model_copy(update={"facts": {**state.facts, **facts, **where}})


def fits(plan: Plan, receipts: Receipts, world: World, backend: Backend) -> None:
    """PreflightError when the plan is not the one that the recorded rollout was made with, as far as the server shows it."""
    wrong = []
    named, replaced = [t.deployment for t in plan.stable], [p.stable for p in receipts.pairs]
    if named != replaced:
        wrong.append(f"the plan's stable is {', '.join(named)}, recorded is {', '.join(replaced)}")
    for index, pair in enumerate(receipts.pairs):
        if not wrong and pair.stable not in world.deployments:
            wrong.append(f"{pair.stable} is gone: the old side was being removed, and there is nothing to go on with")
        elif not wrong and pair.canary in world.deployments:
            differ = adoption.unlike(plan, world, index, pair.canary, backend.derive, backend.diff)
            wrong += [f"{pair.canary} is not the canary of this plan: {one}" for one in differ]
    if wrong:
        raise PreflightError(
            "the plan does not fit the rollout on the server; nothing was written",
            why="; ".join(wrong),
            hint="Give the plan it was started with, or take it over without --plan and roll it back.",
        )


def holding(held: StoredRollout, route: str) -> UsageError:
    """Our own store holds the route: nothing to take over."""
    msg = f"rollout {held.state.id} of this very store holds route {route}: nothing to take over"
    hint = f"`rollout run {held.state.id}` goes on with it, `rollout rollback {held.state.id} --reason …` goes back; "
    return UsageError(msg, hint=hint + f"if another store took it from us, `rollout tick {held.state.id}` ends it here.")


def give_way(store: Store, held: StoredRollout, owner: Owner, now: datetime, actor: str, why: str) -> None:
    """End a rollout of our own store, so that its successor can have the route. Whoever ticks it is fenced off (31)."""
    event = Event(kind="phase", at=now, actor=actor, text=why, data={"phase": Phase.ABORTED.value, "exit_code": int(ExitCode.FENCED_OFF)})
    _note(store, held, owner, event, force=True)


def reached_by(store: Store, held: StoredRollout, owner: Owner, now: datetime, actor: str, at: GPUStack) -> StoredRollout:
    """A rollout without a plan that is gone on with, reached as it is said now: the keys named before may be why it got no further.

    RouteTaken while another live process ticks it.
    """
    where, known = at.model_dump(mode="json"), held.state.fact("gpustack")
    if known is None or known == where:
        return held
    event = Event(kind="fact", at=now, actor=actor, text="reached by the keys and addresses named now", data={"facts": {"gpustack": where}})
    _note(store, held, owner, event)
    return store.load(held.state.id)


def _note(store: Store, held: StoredRollout, owner: Owner, event: Event, *, force: bool = False) -> None:
    """One event in a rollout that this process does not go on ticking."""
    fence = store.claim(held.state.id, owner, LEASE, force=force)
    store.append(held.state.id, fence, [event], evolve(held.state, event))
    store.release(held.state.id, fence)


def nothing_held(route: str, view: RouteView | None) -> NotFound:
    """No marker, or no route."""
    why = f"route {route} does not exist on the server" if view is None else f"route {route} carries no marker: no rollout holds it"
    return NotFound(why, hint="Nothing to roll back or to take over. `rollout list` shows the rollouts of this store.")


def plan_row(plan: Plan | None) -> Mapping[str, Json]:
    """How a store keeps the plan; {} for none."""
    return plan.model_dump(mode="json", by_alias=True) if plan is not None else {}
