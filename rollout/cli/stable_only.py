"""`rollout stable-only`: the emergency without a plan. Only the named deployments serve the route; what was there is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollout.cli import options, output, place
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.domain.state import RolloutState
    from rollout.plan.model import GPUStack

Route = Annotated[str, typer.Argument(metavar="ROUTE", help="The route whose other targets go.")]
Stable = Annotated[
    list[str], typer.Option("--stable", metavar="DEPLOYMENT", help="A deployment that serves on; may be said more than once.")
]
EXITS = (
    ExitCode.DONE,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.HOLDING,
    ExitCode.HALTED,
    ExitCode.UNREACHABLE,
    ExitCode.ROUTE_TAKEN,
    ExitCode.FENCED_OFF,
)


@verb(
    examples=('rollout stable-only chat --stable chat-spark-01 --server http://gpustack.lan:30080 --reason "users get errors"',),
    exits=EXITS,
)
def stable_only(
    route: Route,
    stable: Stable,
    server: place.TheServer,
    reason: options.Reason,
    inference: place.Inference = None,
    management_key: place.Key = place.MANAGEMENT_KEY,
    inference_key: place.InferenceKey = place.INFERENCE_KEY,
    json: options.Json = False,
    store: options.Store = None,
    actor: options.Actor = None,
) -> int:
    """Emergency without a plan: only these deployments serve the route.

    Needs no plan and no rollout. They must be active and have answered own requests, else it ends with 13 and the route is as it was.
    One that has left the route comes back first; then every other target leaves, one at a time, never the last active one. A rollout
    that holds the route is fenced off. No deployment is stopped or deleted. What was there is printed, with the call that puts it
    back. Cut off or halted on the way, the same command goes on.
    """
    why = options.said(reason)
    at = place.at(server, inference, management_key, inference_key)

    import asyncio

    from rollout.cli.desk import opened
    from rollout.cli.driving import DETACHED, turn
    from rollout.domain.state import Phase

    with opened(store, actor, create=True) as desk:
        work = desk.service().stable_only(at, route, list(dict.fromkeys(stable)), actor=desk.actor, reason=why)
        rollout_id = asyncio.run(work).state.id
        output.progress(f"{rollout_id} in {desk.store.where}: only {', '.join(stable)} shall serve {route}")
        state = turn(desk, rollout_id, lambda s: s.terminal or s.phase in (Phase.HALTED, Phase.HOLDING))
        if state is None:
            return DETACHED
        view = desk.view(desk.store.load(rollout_id))
    before = _before(state, at)
    if json:
        output.as_json({**view.model_dump(mode="json"), "before": before})
    else:
        output.result(f"{view.phase.value}  {view.id}  {view.summary}")
        _tell(before)
    return _code(state)


def _before(state: RolloutState, at: GPUStack) -> dict[str, Any] | None:
    from rollout.cli.wiring import put_back

    found = state.fact("before")
    if found is None or state.fact("claimed") is None:
        return None
    kept = [t["deployment"] for t in found["targets"] if not state.fact(f"left.{t['deployment']}")]
    return {
        "targets": found["targets"],
        "rollout": found["former"],
        "rest": state.fact("rest") or [],
        "put_back": put_back(at, state.route, found, kept) if found["targets"] else None,
        "gap": not kept,
    }


def _tell(before: dict[str, Any] | None) -> None:
    if before is None:
        return
    if before["put_back"] is None:
        output.result("\nbefore, the route had no target: there is nothing to put back")
        return
    output.result("\nbefore it stood there:")
    for target in before["targets"]:
        extra = f"  {target['extra']}" if target["extra"] else ""
        output.result(f"  {target['deployment']}  weight {target['weight']}{extra}")
    gap = "; up to a second passes in which nobody serves the route" if before["gap"] else ""
    output.result(f"\nto put it back (bash; read it first{gap}):\n  {before['put_back']}")


def _code(state: RolloutState) -> int:
    from rollout.report.view import exit_code_for

    return int(exit_code_for(state))
