"""`rollout journal`: the append-only record of one rollout, and whether its hash chain is unbroken."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

Verify = Annotated[bool, typer.Option("--verify", help="Check the hash chain instead of printing the entries.")]


@verb(
    examples=(
        "rollout journal 3f2a",
        "rollout journal 3f2a --verify",
        "rollout journal 3f2a --json | jq '.[] | select(.kind==\"intent\")'",
    ),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.HALTED),
)
def journal(rollout_id: options.RolloutId, verify: Verify = False, json: options.Json = False, store: options.Store = None) -> int:
    """Print what was done, by whom and why; --verify checks the chain.

    Each entry carries the hash of the one before it, so a changed entry shows. A broken chain ends with 13.
    """
    from rollout.cli.desk import opened

    with opened(store) as desk:
        found = desk.store.load(rollout_id).state.id
        if verify:
            checked = desk.store.verify(found)
            if json:
                output.as_json({"id": found, "entries": checked, "unbroken": True})
            else:
                output.result(f"journal of {found}: {checked} entries, chain unbroken")
            return int(ExitCode.DONE)
        rows = desk.store.journal(found)
    if json:
        output.as_json([dataclasses.asdict(row) for row in rows])
        return int(ExitCode.DONE)
    for row in rows:
        output.result(
            f"{row.seq:>5}  {row.at.astimezone():%Y-%m-%d %H:%M:%S}  {row.kind:<8}  {row.actor:<16}  {' '.join(row.text.splitlines())}"
        )
    return int(ExitCode.DONE)
