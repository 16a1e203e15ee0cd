"""Turn the crank: tick, sleep until the next is due or somebody said something, keep the lease alive meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from rollout.clock import Clock
from rollout.domain.state import RolloutState
from rollout.engine.tick import Engine, Tick
from rollout.errors import FencedOff, KeyRefused, Refused, ServerError, StoreError
from rollout.store import Store

LEASE = 30.0
"""seconds a claim lives without being renewed"""
PATIENCE = 900.0
"""seconds a server may be unreachable before `run` gives up (the rollout stays; a later `run` goes on)"""
FIRST = 30.0
"""the same while nothing was touched (an address that never answered is wrong rather than away), and going back with a refused key"""
LISTEN = 0.02
"""seconds between looks at what people said: a look costs a fifth of a millisecond, and who types `rollback` waits for it"""


@contextlib.asynccontextmanager
async def lease_kept(store: Store, rollout_id: str, fence: int) -> AsyncIterator[None]:
    """Renew the lease in the background, also while a long measurement runs."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            try:
                store.renew(rollout_id, fence, LEASE)
            except StoreError:
                continue  # busy or away for a moment; the next append meets the same fact and says so
            except FencedOff:
                return

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def crank(engine: Engine, until: Callable[[RolloutState], bool]) -> RolloutState:
    """Tick until `until(state)` or the end. Raises the server's error when it stays away for longer than PATIENCE."""
    away: datetime | None = None
    while True:
        tick = await engine.tick()
        if tick.state.terminal or until(tick.state):
            return tick.state
        away = _patience(tick, away, engine.clock)
        await sleep_until(engine, tick.wake)


def _patience(tick: Tick, away: datetime | None, clock: Clock) -> datetime | None:
    if tick.unreachable is None:
        return None
    since = away or clock.now()
    error: ServerError = tick.unreachable
    untouched = tick.state.fact("marker") is None and tick.state.undo is None
    hopeless = untouched or (tick.state.undo is not None and isinstance(error, KeyRefused))
    refused = untouched and isinstance(error, Refused)
    if refused or (clock.now() - since).total_seconds() > (FIRST if hopeless else PATIENCE):
        raise error
    return since


async def sleep_until(engine: Engine, wake: datetime) -> None:
    """Until `wake`, or until a command waits."""
    while True:
        left = (wake - engine.clock.now()).total_seconds()
        if left <= 0 or engine.store.pending(engine.rollout_id):
            return
        await engine.clock.sleep(min(left, LISTEN))
