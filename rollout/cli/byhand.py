"""`rollout rollback … --print`: the way back as calls for a person. Reads store and server; changes nothing anywhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rollout.cli import output, place
from rollout.clock import SystemClock
from rollout.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rollout.domain.receipts import Receipts
    from rollout.domain.state import RolloutState
    from rollout.plan.model import GPUStack
    from rollout.store import StoredRollout

Where = tuple[str | None, str | None, str, str]
"""--server, --inference, --management-key, --inference-key as they were given"""


def show(rollout_id: str | None, route: str | None, where: Where, store: str | None, *, json: bool) -> int:
    """Print the way back of a rollout of the store (ID), or of whatever holds `route`, from its marker."""
    from rollout.cli import wiring
    from rollout.report import byhand

    if (rollout_id is None) is (route is None):
        raise UsageError("`rollout rollback --print` needs an ID, or --route with --server", why="one of both, and not both")
    if rollout_id is not None:
        at, route, receipts = _stored(rollout_id, where, store)
    else:
        at, receipts = place.at(*where), None
    clock = SystemClock()
    way = asyncio.run(wiring.way_back(at, str(route), receipts, clock))
    if json:
        output.as_json(byhand.as_json(way, at, clock.now()))
    else:
        output.result(byhand.script(way, at, clock.now()).rstrip())
        output.progress(f"{len(way.calls)} calls, for bash; they hold as long as the rollout does not go on")
    return int(ExitCode.DONE)


def _stored(rollout_id: str, where: Where, store: str | None) -> tuple[GPUStack, str, Receipts]:
    from rollout.cli.desk import opened
    from rollout.domain.receipts import receipts_of
    from rollout.engine.refuse import refuse

    with opened(store) as desk:
        stored = desk.store.load(rollout_id)
    state = stored.state
    refuse(state, "rollback")
    receipts = receipts_of(state)
    if receipts is None:
        raise UsageError(f"rollout {state.id} has changed nothing that could be undone", why=f"it is {state.phase.value}")
    return _server_of(stored, state, where), state.route, receipts


def _server_of(stored: StoredRollout, state: RolloutState, where: Where) -> GPUStack:
    from rollout.cli.wiring import plan_of
    from rollout.plan.model import GPUStack

    plan = plan_of(stored)
    if plan is not None:
        return plan.gpustack
    known = state.fact("gpustack")
    return GPUStack.model_validate(known) if known else place.at(where[0] or state.server, *where[1:])
