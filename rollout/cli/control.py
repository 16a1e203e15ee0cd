"""`approve`, `pause`, `resume`, `promote`, `extend-window`: a person's word, journaled, taken up by whoever ticks. Touches no server."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, UsageError

FARTHEST = timedelta(days=366)
EXITS = (ExitCode.DONE, ExitCode.USAGE)
Park = Annotated[bool, typer.Option("--park", help="Let the old side be scaled to 0 in the window; a rollback then takes its load time.")]
By = Annotated[str | None, typer.Option("--by", metavar="DURATION", help="How much longer, such as 12h.")]
Moment = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when, such as 2026-12-04T18:00Z; UTC without a zone.")]
Accept = Annotated[bool, typer.Option("--accept-inconclusive", help="Go on although there was no verdict within the deadline.")]


@verb(
    examples=(
        'rollout approve 3f2a --reason "change board, ticket 4711"',
        'rollout approve 3f2a --accept-inconclusive --reason "checked 30 answers by hand"',
        'rollout approve 3f2a --park --reason "a load time of 2 minutes is fine"',
    ),
    exits=EXITS,
)
def approve(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    accept_inconclusive: Accept = False,
    park: Park = False,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Let a rollout pass the gate that it waits at.

    Also lets the cleanup begin when the window is over, with --accept-inconclusive ends a hold without a verdict, and with --park
    lets the old side be scaled to 0 inside the window.
    """
    if accept_inconclusive and park:
        raise UsageError("two things are approved at once", why="--accept-inconclusive and --park", hint="Approve one after the other.")
    args = {"accept_inconclusive": accept_inconclusive, **({"park": True} if park else {})}
    return _say("approve", rollout_id, reason, store, actor, args, json=json)


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


@verb(
    examples=(
        'rollout extend-window 3f2a --by 12h --reason "the batch job runs at night"',
        'rollout extend-window 3f2a --until 2026-12-04T18:00Z --reason "until Friday"',
    ),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.WINDOW_OPEN, ExitCode.ROLLBACK_IMPOSSIBLE),
)
def extend_window(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    by: By = None,
    until: Moment = None,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Keep the way back open for longer.

    --by adds to what is left, or counts from now when the window is over and nothing was removed yet. Once the cleanup has begun
    there is nothing left to keep: 23. A window is never made shorter: 22.
    """
    from rollout.cli.durations import moment, seconds

    if (by is None) == (until is None):
        why = "it got neither" if by is None else "it got both"
        raise UsageError("`rollout extend-window` needs --by or --until", why=why, hint="such as --by 12h.")
    if by is not None:
        return _say("extend_window", rollout_id, reason, store, actor, {"by": seconds("--by", by)}, json=json)
    args = {"until": _near(moment("--until", until or ""), until or "").isoformat()}
    return _say("extend_window", rollout_id, reason, store, actor, args, json=json)


def _near(until: datetime, text: str) -> datetime:
    """As far away as --by may reach, and no further."""
    from rollout.clock import SystemClock

    if until - SystemClock().now() > FARTHEST:
        hint = "say it again later; a window may be extended as often as you like."
        raise UsageError(f"`--until {text}` is too far away", why=f"expected a moment within {FARTHEST.days}d from now", hint=hint)
    return until


def _say(
    word: str, rollout_id: str, reason: str, store: str | None, actor: str | None, args: dict[str, Any] | None = None, *, json: bool
) -> int:
    from rollout.cli.desk import opened
    from rollout.domain.taken import goes_on

    with opened(store, actor) as desk:
        why = options.said(reason)
        desk.say(rollout_id, word, why, args)
        stored = desk.store.load(rollout_id)
        state = stored.state
        owner = desk.owner(stored)
        if json:
            output.as_json({"id": state.id, "said": word, "actor": desk.actor, "reason": why, "ticked_by": owner and owner.name})
        else:
            output.result(f"{word.replace('_', '-')}: said to {state.id} as {desk.actor}")
        if owner is None:
            output.progress(f"nobody ticks it now: {' or '.join(f'`{line}`' for line in goes_on(state))} takes it up")
        else:
            output.progress(f"{owner.name} takes it up at its next tick; `rollout watch {state.id}` shows it")
    return int(ExitCode.DONE)
