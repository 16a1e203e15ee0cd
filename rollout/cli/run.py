"""`rollout run`: start a rollout from a plan, or go on with one, and tick it in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rollout.settings import Settings

Target = Annotated[str, typer.Argument(metavar="PLAN|ID", help="A plan file, or the id of a rollout to go on with.")]
SUFFIXES = (".yaml", ".yml", ".json")
EXITS = (
    ExitCode.DONE,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.ROLLED_BACK,
    ExitCode.HOLDING,
    ExitCode.INCONCLUSIVE,
    ExitCode.HALTED,
    ExitCode.UNREACHABLE,
    ExitCode.ROLLBACK_IMPOSSIBLE,
    ExitCode.ROUTE_TAKEN,
    ExitCode.FENCED_OFF,
)


@verb(
    examples=("rollout run plan.yaml", "rollout run plan.yaml --until canary", "rollout run 3f2a --until completed"),
    exits=EXITS,
)
def run(
    target: Target,
    until: options.Until = "promoted",
    patience: options.Patience = "10m",
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Start a rollout, or go on with one, and tick it until it is promoted.

    The same plan on the same route is never started twice: `run` goes on with the rollout that is under way, and has nothing to do
    when it is completed. It returns when the
    word of --until is reached, when the rollout ended, when a person is needed, or when a hold outlasts --patience.
    Ctrl-C detaches with 130: the rollout stays as it is and goes on with whoever ticks it.
    """
    from rollout.cli.desk import opened
    from rollout.cli.driving import drive
    from rollout.cli.durations import seconds
    from rollout.report.goal import goal_of

    goal, limit = goal_of(until), seconds("--patience", patience)
    with opened(store, actor, create=is_plan(target)) as desk:
        if not is_plan(target):
            rollout_id = desk.store.load(target).state.id
        else:
            from rollout.plan.load import load_plan

            loaded = load_plan(target)
            lasting(desk.settings)
            started = desk.service().start(loaded, actor=desk.actor).state
            rollout_id = started.id
            if started.terminal:
                output.progress(
                    f"nothing to do: this plan was carried out already; `rollout retry {rollout_id} --reason …` begins it again"
                )
        output.progress(f"rollout {rollout_id} in {desk.store.where}; Ctrl-C detaches")
        return drive(desk, rollout_id, goal, limit, json=json)


def is_plan(target: str) -> bool:
    """Whether the argument names a file and not a rollout."""
    return target == "-" or target.endswith(SUFFIXES) or Path(target).is_file()


def lasting(settings: Settings) -> None:
    """Refuse a store that dies with the job: nobody could roll back then."""
    if settings.ci and not settings.store_named:
        raise UsageError(
            "under CI the store must be named",
            why=f"the default {settings.store} would be gone with this job, and with it the way back",
            hint="`--store postgresql://…` or ROLLOUT_STORE, or a path that outlives the job.",
        )
