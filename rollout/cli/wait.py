"""`rollout wait`: block until a rollout is somewhere. Reads the store only, never ticks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.cli.desk import Desk
    from rollout.domain.state import RolloutState
    from rollout.report.goal import Goal
    from rollout.store import StoredRollout

POLL = 0.5
Until = Annotated[str, typer.Option("--until", metavar="WORD", help="A phase (promoted, completed, holding, rolled_back …) or a step.")]
Timeout = Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help="Give up after this long, such as 30m. [no limit]")]


@verb(
    examples=("rollout wait 3f2a --until promoted --timeout 4h", "rollout wait 3f2a --until holding --timeout 10m --json"),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.ROLLED_BACK, ExitCode.HALTED, ExitCode.WAIT_TIMEOUT),
)
def wait(
    rollout_id: options.RolloutId, until: Until, timeout: Timeout = None, json: options.Json = False, store: options.Store = None
) -> int:
    """Block until a rollout is where you want it.

    Ends with 0 when it is there, with the rollout's own code when it ended or halted elsewhere, and with 14 when time is up or it
    ended well but elsewhere, such as completed for `--until rolled_back`; stderr says which.
    It only looks: somebody else has to tick.
    """
    from rollout.cli.desk import opened
    from rollout.cli.durations import seconds
    from rollout.report.goal import ended_with, goal_of

    goal, limit = goal_of(until), None if timeout is None else seconds("--timeout", timeout)
    with opened(store) as desk:
        stored = asyncio.run(_look(desk, rollout_id, goal, limit))
        view = desk.view(stored)
    if json:
        output.as_json(view.model_dump(mode="json"))
    else:
        output.result(f"{view.phase.value}  {view.id}  {view.summary}")
    return int(ended_with(goal, stored.state, output.progress) if _over(goal, stored.state) else ExitCode.WAIT_TIMEOUT)


def _over(goal: Goal, state: RolloutState) -> bool:
    """Nothing is left to wait for: it is there, it ended elsewhere, or only a person leads on."""
    from rollout.domain.state import Phase

    return goal.reached(state) or state.terminal or state.phase is Phase.HALTED


async def _look(desk: Desk, rollout_id: str, goal: Goal, limit: float | None) -> StoredRollout:
    from rollout.report.view import summary

    began, told = desk.clock.monotonic(), ""
    while True:
        stored = desk.store.load(rollout_id)
        if _over(goal, stored.state):
            return stored
        if limit is not None and desk.clock.monotonic() - began >= limit:
            return stored
        said = f"{stored.state.phase.value}: {summary(stored.state)}"
        if said != told:
            output.progress(said)
            told = said
        await desk.clock.sleep(POLL)
