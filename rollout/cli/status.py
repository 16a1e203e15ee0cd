"""`rollout status`: one screen about one rollout. Reads the store only; asks no server."""

from __future__ import annotations

from typing import Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

AsExit = Annotated[bool, typer.Option("--exit-code", help="Exit with the rollout's own code instead of 0.")]


@verb(
    examples=("rollout status 3f2a", "rollout status 3f2a --json", "rollout status 3f2a --exit-code || page-somebody"),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.ROLLED_BACK, ExitCode.HOLDING, ExitCode.INCONCLUSIVE, ExitCode.HALTED),
)
def status(rollout_id: options.RolloutId, json: options.Json = False, exit_code: AsExit = False, store: options.Store = None) -> int:
    """Say where a rollout is, what it waits for, and which verbs end that.

    Without --exit-code the exit code is 0 for every rollout that was found.
    """
    from rollout.cli.desk import opened

    with opened(store) as desk:
        view, now = desk.view(desk.store.load(rollout_id)), desk.clock.now()
    if json:
        output.as_json(view.model_dump(mode="json"))
    else:
        from rollout.report.text import screen

        output.console().print(screen(view, now))
    return view.exit_code or 0 if exit_code else 0
