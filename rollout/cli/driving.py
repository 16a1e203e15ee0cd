"""Turning the crank from a terminal: progress on stderr, the end on stdout, Ctrl-C detaches. Shared by run, retry, abort, rollback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rollout.cli import output
from rollout.cli.failing import show

if TYPE_CHECKING:
    from rollout.cli.desk import Desk
    from rollout.domain.state import RolloutState
    from rollout.report.goal import Goal

DETACHED = 130


def drive(desk: Desk, rollout_id: str, goal: Goal, patience: float, *, json: bool) -> int:
    """Tick until the goal, the end, or a person is needed; the exit code says which."""
    from rollout.report.goal import ended_with

    state = turn(desk, rollout_id, lambda s: goal.stops(s, desk.clock.now(), patience))
    if state is None:
        return DETACHED
    tell(desk, rollout_id, json=json)
    return int(ended_with(goal, state, output.progress))


def turn(desk: Desk, rollout_id: str, until: Callable[[RolloutState], bool], *, force: bool = False) -> RolloutState | None:
    """The state in which `until` held; None when the person pressed Ctrl-C. `force` fences off an owner that is alive but deaf."""
    from rollout.cli.progress import Progress
    from rollout.domain.taken import goes_on

    progress = Progress()
    try:
        return asyncio.run(desk.service().run(rollout_id, until=until, on_event=progress, force=force))
    except KeyboardInterrupt:
        progress.end()
        detached(rollout_id, goes_on(desk.store.load(rollout_id).state)[0])
        return None
    finally:
        progress.end()


def detached(rollout_id: str, again: str) -> None:
    """What Ctrl-C means here."""
    show(
        f"detached from {rollout_id}: nothing was undone, the rollout goes on with whoever ticks it",
        "Ctrl-C ends this command, not the rollout; until somebody ticks, everything stays as it is",
        f"`{again}` goes on" + ("." if "--route" in again else f"; `rollout rollback {rollout_id} --reason '…'` goes back."),
        word="note",
    )


def tell(desk: Desk, rollout_id: str, *, json: bool) -> None:
    """The result on stdout, and on stderr what a person can do from here."""
    view = desk.view(desk.store.load(rollout_id))
    if json:
        output.as_json(view.model_dump(mode="json"))
        return
    output.result(f"{view.phase.value}  {view.id}  {view.summary}")
    if view.next:
        output.progress("you can: " + "\n         ".join(view.next))
    if not view.ended:
        cron = f"`rollout tick --all` from cron does, or `rollout run {view.id} --until completed`"
        output.progress(f"nobody ticks it from here: {f'`{view.goes_on[0]}` goes on' if len(view.goes_on) == 1 else cron}")
