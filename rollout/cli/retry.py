"""`rollout retry`: a new attempt with the plan of a rollout that ended. The old evidence stays with the old one."""

from __future__ import annotations

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.cli.run import EXITS


@verb(examples=('rollout retry 3f2a --reason "driver fixed on spark-02"',), exits=EXITS)
def retry(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    until: options.Until = "promoted",
    patience: options.Patience = "10m",
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Start a new attempt of a rollout that ended.

    The same plan under a new id, ticked as `run` does. Old evidence is kept and never mixed with the new.
    """
    from rollout.cli.desk import opened
    from rollout.cli.driving import drive
    from rollout.cli.durations import seconds
    from rollout.report.goal import goal_of

    goal, limit = goal_of(until), seconds("--patience", patience)
    with opened(store, actor) as desk:
        fresh = desk.service().retry(rollout_id, actor=desk.actor, reason=options.said(reason)).state.id
        output.progress(f"rollout {fresh} is a new attempt of {rollout_id}; Ctrl-C detaches")
        return drive(desk, fresh, goal, limit, json=json)
