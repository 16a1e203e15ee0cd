"""`approve`, `pause`, `resume`, `promote`: a person's word, journaled, taken up by whoever ticks. Touches no server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

EXITS = (ExitCode.DONE, ExitCode.USAGE)
Accept = Annotated[bool, typer.Option("--accept-inconclusive", help="Go on although there was no verdict within the deadline.")]


@verb(
    examples=(
        'rollout approve 3f2a --reason "change board, ticket 4711"',
        'rollout approve 3f2a --accept-inconclusive --reason "checked 30 answers by hand"',
    ),
    exits=EXITS,
)
def approve(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    accept_inconclusive: Accept = False,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Let a rollout pass the gate that it waits at.

    Also ends the wait before cleanup, and with --accept-inconclusive a hold without a verdict.
    """
    return _say("approve", rollout_id, reason, store, actor, {"accept_inconclusive": accept_inconclusive}, json=json)


@verb(examples=('rollout pause 3f2a --reason "incident on another route"',), exits=EXITS)
def pause(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Hold a rollout where it is; weights stay.

    Guards go on, and so does a rollback that is under way. `rollout resume` ends it.
    """
    return _say("pause", rollout_id, reason, store, actor, json=json)


@verb(examples=('rollout resume 3f2a --reason "incident is over"',), exits=EXITS)
def resume(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """End a pause or a hold, and look at the cause afresh.

    A cause that is still there holds again at once.
    """
    return _say("resume", rollout_id, reason, store, actor, json=json)


@verb(examples=('rollout promote 3f2a --reason "hotfix; risk taken by ana"',), exits=EXITS)
def promote(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Accept the canary now, without waiting for the rest of the ladder.

    Skips what is still to be judged; it never skips the drain or the rollback window.
    """
    return _say("promote", rollout_id, reason, store, actor, json=json)


def _say(
    word: str, rollout_id: str, reason: str, store: str | None, actor: str | None, args: dict[str, Any] | None = None, *, json: bool
) -> int:
    from rollout.cli.desk import opened
    from rollout.domain.taken import goes_on

    with opened(store, actor) as desk:
        desk.say(rollout_id, word, options.said(reason), args)
        stored = desk.store.load(rollout_id)
        state = stored.state
        owner = desk.owner(stored)
        if json:
            output.as_json({"id": state.id, "said": word, "actor": desk.actor, "reason": reason.strip(), "ticked_by": owner and owner.name})
        else:
            output.result(f"{word}: said to {state.id} as {desk.actor}")
        if owner is None:
            output.progress(f"nobody ticks it now: {' or '.join(f'`{line}`' for line in goes_on(state))} takes it up")
        else:
            output.progress(f"{owner.name} takes it up at its next tick; `rollout watch {state.id}` shows it")
    return int(ExitCode.DONE)
