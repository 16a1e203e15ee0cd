"""`rollout abort` and `rollout rollback`: say it, then see it through here, or watch its owner do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import options, output, place
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rollout.cli.desk import Desk
    from rollout.domain.state import RolloutState

OWNER_SECONDS = 45.0
"""how long the owner may leave the word unheard before this process takes the rollout over and fences it off"""
POLL = 0.25
STANDS_BACK = 1.0
"""seconds for which a process that was heard by an owner leaves the machine to it"""
EXITS = (
    ExitCode.DONE,
    ExitCode.USAGE,
    ExitCode.HOLDING,
    ExitCode.HALTED,
    ExitCode.UNREACHABLE,
    ExitCode.ROLLBACK_INCOMPLETE,
    ExitCode.ROLLBACK_IMPOSSIBLE,
)
MaybeId = Annotated[str | None, typer.Argument(metavar="[ID]", help="The rollout; or --route and --server.")]
Route = Annotated[
    str | None, typer.Option("--route", metavar="NAME", help="Roll back whatever holds this route, from the marker on the server.")
]

Print = Annotated[bool, typer.Option("--print", help="Print the calls a person can make instead, as a script for bash and curl.")]


@verb(examples=('rollout abort 3f2a --reason "wrong image"',), exits=EXITS)
def abort(
    rollout_id: options.RolloutId,
    reason: options.Reason,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Stop before promotion and undo what was done.

    Works in every phase that has not ended, ahead of everything else. When nobody ticks the rollout, this command carries the
    undo out itself. It ends with 0 once everything is as it was found.
    """
    return _go_back("abort", rollout_id, options.said(reason), store, actor, json=json)


@verb(
    examples=(
        'rollout rollback 3f2a --reason "users report truncated answers"',
        'rollout rollback --route chat --server http://gpustack.lan --reason "CI job is gone"',
        "rollout rollback 3f2a --print > way-back.sh",
    ),
    exits=EXITS,
)
def rollback(
    reason: options.MaybeReason = None,
    rollout_id: MaybeId = None,
    by_hand: Print = False,
    route: Route = None,
    server: place.Server = None,
    inference: place.Inference = None,
    management_key: place.Key = place.MANAGEMENT_KEY,
    inference_key: place.InferenceKey = place.INFERENCE_KEY,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Go back to stable, at any time until the window has passed.

    With --route and --server it needs neither a plan nor a store: the marker on the route holds what is needed, and the former
    owner stops. It ends with 0 once stable serves as before. With --print nothing is changed: it prints the exact calls, for the
    moment and for the day on which this tool cannot be run.
    """
    if by_hand:
        from rollout.cli.byhand import show

        return show(rollout_id, route, (server, inference, management_key, inference_key), store, json=json)
    why = options.needed(reason)
    if rollout_id is not None and route is None:
        return _go_back("rollback", rollout_id, why, store, actor, json=json)
    if rollout_id is not None or route is None or server is None:
        raise UsageError(
            "`rollout rollback` needs an ID, or --route with --server",
            why="it got " + ("both" if rollout_id is not None else "neither" if route is None else "--route without --server"),
            hint="`rollout list --active` shows the ids.",
        )
    from rollout.cli.wiring import gpustack_at

    at = gpustack_at(server, inference, management_key, inference_key)
    import asyncio

    from rollout.cli.desk import opened
    from rollout.cli.driving import DETACHED, detached, tell
    from rollout.cli.progress import Progress
    from rollout.cli.wiring import connect_to
    from rollout.domain.taken import route_command

    with opened(store, actor, create=True) as desk:
        held = desk.store.active_on(server.rstrip("/"), route)
        known = held.state.id if held is not None and held.plan else None
    if known is not None:  # this very store holds it: its owner is told, and only fenced off when it does not hear
        return _go_back("rollback", known, why, store, actor, json=json)
    progress = Progress()
    with opened(store, actor, create=True) as desk:
        try:
            work = desk.service().rollback_route(server, route, lambda: connect_to(at, desk.clock), desk.actor, why, progress)
            state = asyncio.run(work)
        except KeyboardInterrupt:
            progress.end()
            detached(f"route {route}", route_command(route, server))
            return DETACHED
        finally:
            progress.end()
        tell(desk, state.id, json=json)
    return _code(state)


def _go_back(word: str, rollout_id: str, reason: str, store: str | None, actor: str | None, *, json: bool) -> int:
    heard = _heard(word, rollout_id, reason, store, actor)

    import asyncio

    from rollout.cli.desk import opened
    from rollout.cli.driving import DETACHED, tell, turn
    from rollout.errors import RouteTaken
    from rollout.report.view import needs_person

    with opened(store, actor) as desk:
        if heard is None:
            _reachable(desk.store.load(rollout_id).state)
        state = desk.store.load(heard).state if heard else desk.say(rollout_id, word, reason)
        output.progress(f"{word}: said to {state.id} as {desk.actor}")
        while not asyncio.run(_by_owner(desk, state.id)):
            deaf = desk.owner(desk.store.load(state.id)) is not None
            try:
                gone = turn(desk, state.id, lambda s: s.terminal or (s.undo is not None and needs_person(s)), force=deaf)
            except RouteTaken:
                if desk.owner(desk.store.load(state.id)) is None:
                    raise
                continue  # somebody's `run` claimed it in this very moment, and hears the word
            if gone is None:
                return DETACHED
            break
        tell(desk, state.id, json=json)
        return _code(desk.store.load(state.id).state)


def _reachable(state: RolloutState) -> None:
    """Raise before anything is said to a rollout that this process could not tick."""
    from rollout.domain.taken import by_route, goes_on

    if by_route(state) and not state.terminal:
        msg = f"rollout {state.id} goes back already, and holds no plan that says how to reach its server"
        raise UsageError(msg, why=f"it took route {state.route} over from the marker", hint=f"`{goes_on(state)[0]}` goes on with it.")


def _heard(word: str, rollout_id: str, why: str, store: str | None, actor: str | None) -> str | None:
    """Say it before this process has loaded what it needs to see it through; the full id, None when that was not possible."""
    from rollout.cli.wiring import alive, say_at_once
    from rollout.clock import SystemClock
    from rollout.settings import Settings

    clock = SystemClock()
    heard = say_at_once(Settings.read(store=store, actor=actor), clock, rollout_id, word, why)
    if heard is None:
        return None
    if heard.owner is not None and alive(heard.owner):
        import asyncio

        # the owner is at work on it now: loading beside it would only take the processor from it
        asyncio.run(clock.sleep(STANDS_BACK))
    return heard.id


async def _by_owner(desk: Desk, rollout_id: str) -> bool:
    """Whether whoever ticks it brought it to its end. False: nobody does, or the owner did not even take the word up in OWNER_SECONDS.

    A long drain is not a stuck owner: it has taken the word up, and its lease is alive.
    """
    told, asked = False, desk.clock.monotonic()
    while True:
        stored = desk.store.load(rollout_id)
        if stored.state.terminal:
            return True
        owner = desk.owner(stored)
        deaf = desk.clock.monotonic() - asked > OWNER_SECONDS and bool(desk.store.pending(rollout_id))
        if owner is None or deaf:
            return False
        if not told:
            output.progress(f"{owner.name} ticks it and goes back; watching")
            told = True
        await desk.clock.sleep(POLL)


def _code(state: RolloutState) -> int:
    """0 when it went back as asked, else what the rollout is in."""
    from rollout.domain.state import Phase
    from rollout.report.view import exit_code_for

    code = exit_code_for(state)
    went = state.phase in (Phase.ROLLED_BACK, Phase.ABORTED) and code is ExitCode.ROLLED_BACK
    return int(ExitCode.DONE if went else code)
