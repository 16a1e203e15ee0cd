"""`rollout plan`: what a run would do, from the plan and the servers as they are. Writes nothing anywhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.analysis.config import Mode
    from rollout.plan.load import LoadedPlan
    from rollout.report.dryrun import DryRun

File = Annotated[str, typer.Argument(metavar="PLAN", help="The plan file (YAML).")]
Explain = Annotated[
    bool, typer.Option("--explain-wait", help="Also say which claim needs how many requests at what rate, and what would shorten it.")
]
UNNAMED = "????????"
"""stands for the rollout's id, which is drawn when it starts; the names of what it creates end in it"""


@verb(
    examples=("rollout plan plan.yaml", "rollout plan plan.yaml --explain-wait", "rollout plan plan.yaml --json | jq '.pairs[0].rungs'"),
    exits=(ExitCode.DONE, ExitCode.REFUSED, ExitCode.UNREACHABLE, ExitCode.ROUTE_TAKEN),
)
def plan(plan: File, explain_wait: Explain = False, json: options.Json = False) -> int:
    """Dry run: the diff, the ladder, what can be detected and when, every call in order.

    Reads the servers and changes nothing. Prints what speaks against starting, all at once; then it ends with 3.
    """
    from rollout.plan.load import load_plan

    return show(load_plan(plan), json=json, explain=explain_wait)


def show(loaded: LoadedPlan, facts: dict[str, Any] | None = None, *, json: bool, explain: bool = False) -> int:
    """Print the forecast; its exit code. `facts`: what the rollout would begin with, such as the wish to adopt a canary."""
    run, holder = asyncio.run(_look(loaded, facts or {}, explain=explain))
    if json:
        output.as_json(run.model_dump(mode="json"))
    else:
        from rollout.report.dryrun_text import screen

        output.console().print(screen(run))
    if run.refusals and not holder:
        return int(ExitCode.REFUSED)
    return int(ExitCode.ROUTE_TAKEN if holder else ExitCode.DONE)


async def _look(loaded: LoadedPlan, facts: dict[str, Any], *, explain: bool) -> tuple[DryRun, str | None]:
    """The forecast, and who holds the route."""
    from rollout.cli import wiring
    from rollout.clock import SystemClock
    from rollout.domain.access import FACT
    from rollout.domain.context import Ctx
    from rollout.domain.state import Phase, RolloutState, StepName
    from rollout.engine.preview import preview
    from rollout.engine.tick import scope_of
    from rollout.report.dryrun import Declared, dry_run
    from rollout.rung.evidence import configured

    said, clock = loaded.plan, SystemClock()
    now = clock.now()
    state = RolloutState(
        id=UNNAMED,
        name=said.metadata.name,
        server=said.gpustack.server,
        route=said.route.name,
        plan_digest=loaded.digest,
        phase=Phase.PENDING,
        step=StepName.DECLARE,
        created=now,
        entered=now,
        facts={"names": [target.deployment for target in said.stable], **facts},
    )
    connected = await wiring.connect(said, clock)
    try:
        world = await connected.backend.observe(scope_of(state))
        state.facts[FACT] = await connected.measurer.perform("probe_key", {"model": said.route.name})
        seen = preview(Ctx(said, state, world, connected.backend.derive, connected.backend.diff))
    finally:
        await connected.aclose()
    refusals = [*seen.findings, *([f"route `{said.route.name}` is taken by {seen.holder}"] if seen.holder else [])]
    if seen.receipts is None or seen.mode is None or seen.declared is None:
        return dry_run(said, world, refusals, None, None), seen.holder
    mode = cast("Mode", seen.mode)
    declared = Declared(
        mode, seen.rate, seen.receipts, seen.ladders, seen.diff, seen.shared, seen.standing, seen.begin, seen.rate_source, explain
    )
    return dry_run(said, world, refusals, declared, configured(seen.declared)[0]), seen.holder
