"""`rollout adopt`: go on with a canary that a person made by hand, at the rung that its weight means."""

from __future__ import annotations

from typing import Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.cli.run import EXITS, lasting

File = Annotated[str, typer.Argument(metavar="PLAN", help="The plan file (YAML): the change that the canary was made for.")]
Canary = Annotated[str, typer.Option("--canary", metavar="NAME", help="The hand-made deployment; it has a target on the plan's route.")]
Delete = Annotated[bool, typer.Option("--delete-canary", help="A rollback also deletes the hand-made deployment; else it stays.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show where it would go on, and every call; change nothing.")]


@verb(
    examples=(
        "rollout adopt plan.yaml --canary chat-new --dry-run",
        'rollout adopt plan.yaml --canary chat-new --reason "begun by hand on Friday"',
    ),
    exits=EXITS,
)
def adopt(
    plan: File,
    canary: Canary,
    reason: options.MaybeReason = None,
    delete_canary: Delete = False,
    dry_run: DryRun = False,
    until: options.Until = "promoted",
    patience: options.Patience = "10m",
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Go on with a canary that was begun by hand.

    Takes it over as it stands and goes on as `run` does. The canary must be the plan's first stable deployment plus exactly the
    plan's change; where it runs and how large it is may differ. It goes on at the rung that the weights mean; between two rungs it is
    lowered to the lower one, since only a judged share is raised. A rollback takes the canary's target off the route. The hand-made
    deployment stays then, unless --delete-canary says otherwise.
    """
    from rollout.plan.load import load_plan

    loaded = load_plan(plan)
    if dry_run:
        from rollout.cli.plan import show
        from rollout.engine.taking import adopting

        names = [*(target.deployment for target in loaded.plan.stable), canary]
        return show(loaded, {"adopt": adopting(canary, delete=delete_canary), "names": names}, json=json)
    from rollout.cli.desk import opened
    from rollout.cli.driving import drive
    from rollout.cli.durations import seconds
    from rollout.report.goal import goal_of

    why, goal, limit = options.needed(reason), goal_of(until), seconds("--patience", patience)
    with opened(store, actor, create=True) as desk:
        lasting(desk.settings)
        rollout_id = desk.service().adopt(loaded, canary, delete=delete_canary, actor=desk.actor, reason=why).state.id
        output.progress(f"rollout {rollout_id} in {desk.store.where} adopts {canary}; Ctrl-C detaches")
        return drive(desk, rollout_id, goal, limit, json=json)
