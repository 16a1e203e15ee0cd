"""`rollout list`: the rollouts of a store, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

Active = Annotated[bool, typer.Option("--active", help="Only those that have not ended.")]
Route = Annotated[str | None, typer.Option("--route", metavar="NAME", help="Only those of this route.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most so many.")]


@verb(examples=("rollout list --active", "rollout list --route chat --json | jq '.[0].phase'"), exits=(ExitCode.DONE,))
def list_(active: Active = False, route: Route = None, limit: Limit = 50, json: options.Json = False, store: options.Store = None) -> int:
    """List the rollouts of this store.

    Newest first. Each has one line; `rollout status ID` has the rest.
    """
    from rollout.cli.desk import opened

    with opened(store) as desk:
        found = desk.store.list(active_only=active, route=route, limit=limit)
        views, now = [desk.view(one, events=False) for one in found], desk.clock.now()
    if json:
        output.as_json([v.model_dump(mode="json", exclude={"events"}) for v in views])
    elif views:
        from rollout.report.text import table

        output.console().print(table(views, now))
    else:
        output.progress("no rollouts here yet; `rollout run PLAN` starts one")
    return int(ExitCode.DONE)
