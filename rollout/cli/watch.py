"""`rollout watch`: the status, kept fresh until the rollout ends. Reads the store only, never ticks."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

if TYPE_CHECKING:
    from rollout.cli.desk import Desk

EVERY = 1.0


@verb(
    examples=("rollout watch 3f2a", "rollout watch 3f2a 2>&1 | tee rollout.log"),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.ROLLED_BACK),
)
def watch(rollout_id: options.RolloutId, json: options.Json = False, store: options.Store = None) -> int:
    """Show the status and keep it fresh until the rollout ends.

    On a terminal one screen is redrawn; in a pipe, and under NO_COLOR, each journal entry is one line. With --json each
    entry is one line of JSON, and the last line is the status. Ctrl-C ends the watching and nothing else.
    """
    from rollout.cli.desk import opened

    with opened(store) as desk:
        found = desk.store.load(rollout_id).state.id
        try:
            redrawn = sys.stdout.isatty() and not json and not output.plain()
            return asyncio.run(_screen(desk, found) if redrawn else _lines(desk, found, json=json))
        except KeyboardInterrupt:
            output.progress(f"stopped watching; the rollout is not touched. `rollout watch {found}` comes back")
            return 130


async def _screen(desk: Desk, rollout_id: str) -> int:
    from rich.live import Live

    from rollout.report.text import screen

    with Live(console=output.console(), auto_refresh=False) as live:
        while True:
            view = desk.view(desk.store.load(rollout_id))
            live.update(screen(view, desk.clock.now()), refresh=True)
            if view.ended:
                return view.exit_code or 0
            await desk.clock.sleep(EVERY)


async def _lines(desk: Desk, rollout_id: str, *, json: bool) -> int:
    from rollout.cli.desk import event_of
    from rollout.cli.progress import Progress
    from rollout.domain.state import StepName
    from rollout.report.events import event_view

    progress, seen, step = Progress(sys.stdout, live=False), 0, "declare"
    while True:
        stored = desk.store.load(rollout_id)
        for row in desk.store.journal(rollout_id, after=seen):
            seen, step = row.seq, row.data["step"] if row.kind == "step" else step
            if json:
                output.json_line({**event_view(event_of(row)).model_dump(mode="json"), "seq": row.seq, "step": step})
                continue
            progress(event_of(row), stored.state.model_copy(update={"step": StepName(step)}))
        if stored.state.terminal:
            view = desk.view(stored, events=False)
            if json:
                output.json_line(view.model_dump(mode="json"))
                return view.exit_code or 0
            output.result(f"{view.phase.value}  {view.id}  {view.summary}")
            return view.exit_code or 0
        await desk.clock.sleep(EVERY)
