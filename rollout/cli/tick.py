"""`rollout tick`: one idempotent tick, for cron, CI schedules and any workflow engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.cli.run import EXITS
from rollout.errors import ExitCode, RolloutError, RouteTaken, UsageError

if TYPE_CHECKING:
    from rollout.cli.desk import Desk

Target = Annotated[str | None, typer.Argument(metavar="[ID]", help="The rollout; or --all.")]
All = Annotated[bool, typer.Option("--all", help="Every rollout of this store that is due.")]


@verb(examples=("rollout tick 3f2a", "* * * * *  rollout tick --all   # cron"), exits=EXITS)
def tick(
    rollout_id: Target = None, all_: All = False, json: options.Json = False, store: options.Store = None, actor: options.Actor = None
) -> int:
    """Do one idempotent tick, for cron and CI schedules.

    Safe to repeat and to run beside others: a rollout that somebody else is ticking is left alone. The exit code is the
    rollout's own (0 while it is under way); with --all the one that needs a person most.
    """
    from rollout.cli.desk import opened

    if (rollout_id is None) != all_:
        raise UsageError("`rollout tick` needs an ID or --all", why="it got both or none", hint="`rollout tick --all` ticks what is due.")
    with opened(store, actor) as desk:
        ids = [desk.store.load(rollout_id).state.id] if rollout_id else _due(desk)
        rows = [_one(desk, one, alone=not all_) for one in ids]
    if json:
        output.as_json(rows)
    elif not rows:
        output.progress("nothing is due")
    else:
        for row in rows:
            output.result(f"{row['phase'] or '-':<12}  {row['id']}  {row['summary']}")
    return max((row["exit_code"] for row in rows), key=_urgency, default=int(ExitCode.DONE))


def _due(desk: Desk) -> list[str]:
    now = desk.clock.now()
    active = desk.store.list(active_only=True, limit=1000)
    return [one.state.id for one in active if one.next_wake is None or one.next_wake <= now or desk.store.pending(one.state.id)]


def _one(desk: Desk, rollout_id: str, *, alone: bool) -> dict[str, Any]:
    """One tick; what failed is a row too, so that one rollout does not stop the others."""
    from rollout.cli.progress import Progress
    from rollout.domain.taken import by_route, goes_on
    from rollout.report.view import exit_code_for, summary

    known = desk.store.load(rollout_id).state
    if by_route(known) and not known.terminal:
        said = f"left alone, it holds no plan: `{goes_on(known)[0]}` goes on"
        return {"id": rollout_id, "phase": known.phase.value, "summary": said, "exit_code": int(ExitCode.USAGE if alone else ExitCode.DONE)}
    progress = Progress(live=False)
    try:
        state = asyncio.run(desk.service().tick(rollout_id, progress))
    except RouteTaken as error:
        return {"id": rollout_id, "phase": None, "summary": f"left alone: {error.why or error.message}", "exit_code": int(ExitCode.DONE)}
    except RolloutError as error:
        return {"id": rollout_id, "phase": None, "summary": f"{error.message} {error.why}".strip(), "exit_code": int(error.exit_code)}
    return {"id": rollout_id, "phase": state.phase.value, "summary": summary(state), "exit_code": int(exit_code_for(state))}


URGENT = (ExitCode.HALTED, ExitCode.ROLLBACK_INCOMPLETE, ExitCode.ROLLBACK_IMPOSSIBLE, ExitCode.INCONCLUSIVE, ExitCode.HOLDING)


def _urgency(code: int) -> tuple[int, int]:
    """0 is least; what a person must end is most."""
    if code in URGENT:
        return 2, len(URGENT) - URGENT.index(ExitCode(code))
    return (1, code) if code else (0, 0)
