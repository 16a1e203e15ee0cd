"""A person's word on its way to whoever ticks. Light on purpose: who wants to go back does not wait for the whole engine to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollout.engine.refuse import refuse

if TYPE_CHECKING:
    from rollout.domain.state import RolloutState
    from rollout.store import Store

Json = Any


def say(store: Store, rollout_id: str, verb: str, actor: str, reason: str, args: dict[str, Json]) -> RolloutState:
    """Keep what a person wants; whoever ticks journals it and takes it up first. Refused where it cannot have an effect."""
    stored = store.load(rollout_id)
    state, spoken = stored.state, verb
    if verb == "approve" and args.get("accept_inconclusive"):
        spoken = "accept_inconclusive"
    elif verb == "approve" and args.get("park"):
        spoken = "approve_park"
    refuse(state, spoken, args, stored.plan)
    store.say(state.id, spoken, actor, reason, args)
    return state
