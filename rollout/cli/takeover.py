"""`rollout takeover`: claim a route whose owner is gone, then go on with its plan, or wait for a person's word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import options, output, place
from rollout.cli.lazy import verb
from rollout.cli.run import EXITS, lasting
from rollout.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rollout.domain.state import RolloutState
    from rollout.plan.load import LoadedPlan

Route = Annotated[str, typer.Argument(metavar="ROUTE", help="The route; its marker says what was going on.")]
File = Annotated[str | None, typer.Option("--plan", metavar="PLAN", help="The plan it was started with: go on with it.")]


@verb(
    examples=(
        'rollout takeover chat --server http://gpustack.lan:30080 --reason "the CI runner is gone"',
        'rollout takeover chat --plan plan.yaml --reason "laptop lost; goes on from here"',
    ),
    exits=EXITS,
)
def takeover(
    route: Route,
    reason: options.Reason,
    plan: File = None,
    server: place.Server = None,
    inference: place.Inference = None,
    management_key: place.Key = place.MANAGEMENT_KEY,
    inference_key: place.InferenceKey = place.INFERENCE_KEY,
    until: options.Until = "promoted",
    patience: options.Patience = "10m",
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Claim a route whose owner is gone; then go on with it, or back.

    Needs nothing of the former owner's store: the marker on the route says what was going on. Our marker is written over it, and
    should the former owner be alive after all, it writes nothing more and ends with 31. Without --plan the rollout is held then, with
    0: `rollout rollback ID` goes back. With --plan it goes on from what the server shows, and ends as `run` does; judging begins anew.
    """
    why = options.said(reason)
    loaded = _loaded(plan, route, server)
    at = loaded.plan.gpustack if loaded else place.at(server, inference, management_key, inference_key)

    import asyncio

    from rollout.cli.desk import opened
    from rollout.cli.driving import DETACHED, drive, tell, turn
    from rollout.cli.durations import seconds
    from rollout.report.goal import goal_of

    goal, limit = goal_of(until), seconds("--patience", patience)
    with opened(store, actor, create=True) as desk:
        lasting(desk.settings)
        service = desk.service()
        rollout_id = asyncio.run(service.takeover(at, route, loaded, actor=desk.actor, reason=why)).state.id
        output.progress(f"rollout {rollout_id} in {desk.store.where} takes route {route} over; Ctrl-C detaches")
        if loaded is not None:
            return drive(desk, rollout_id, goal, limit, json=json)
        state = turn(desk, rollout_id, lambda s: s.terminal or _waits(s))
        if state is None:
            return DETACHED
        tell(desk, rollout_id, json=json)
        return _code(state)


def _loaded(plan: str | None, route: str, server: str | None) -> LoadedPlan | None:
    if plan is None:
        return None
    from rollout.plan.load import load_plan

    loaded = load_plan(plan)
    if loaded.plan.route.name != route:
        raise UsageError(
            f"the plan is about route {loaded.plan.route.name}", why=f"asked for is {route}", hint="Name the route of the plan."
        )
    if server is not None and server.rstrip("/") != loaded.plan.gpustack.server.rstrip("/"):
        raise UsageError(f"the plan is about {loaded.plan.gpustack.server}", why=f"asked for is {server}", hint="Leave --server out.")
    return loaded


def _waits(state: RolloutState) -> bool:
    from rollout.report.view import needs_person

    return needs_person(state)


def _code(state: RolloutState) -> int:
    """0 when the route is ours and waits for a word, which is what was asked for."""
    from rollout.report.view import exit_code_for

    claimed = state.hold is not None and state.hold.reason == "taken_over"
    return int(ExitCode.DONE if claimed else exit_code_for(state))
