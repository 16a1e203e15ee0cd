"""Options that several verbs share, written once."""

from __future__ import annotations

from typing import Annotated

import typer

from rollout.errors import UsageError
from rollout.settings import STORE

SHOWN = 200
"""characters of a reason that are repeated to whoever gave it"""
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL|PATH",
        envvar=STORE,
        show_envvar=False,
        help="Where rollouts are kept: a SQLite file or a postgresql:// URL. [$ROLLOUT_STORE, else ~/.local/state/rollout/rollout.db]",
    ),
]
Actor = Annotated[
    str | None, typer.Option("--actor", metavar="NAME", help="Who is acting, for the journal. [$ROLLOUT_ACTOR, the CI's identity, $USER]")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the journal.")]
MaybeReason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the journal. Needed, except where nothing is changed.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RolloutId = Annotated[str, typer.Argument(metavar="ID", help="The rollout's id, or a prefix that only it has.")]
Until = Annotated[
    str,
    typer.Option("--until", metavar="WORD", help="Stop when it is reached: promoted, completed, or a step (declare … cleanup)."),
]
Patience = Annotated[
    str, typer.Option("--patience", metavar="DURATION", help="How long to sit in a hold whose cause may go away by itself.")
]


def said(reason: str) -> str:
    """The reason as it is kept, and told when that is not what was written; UsageError when it says nothing."""
    from rollout.cli import output, spoken

    line = spoken.kept(reason)
    if not line:
        raise UsageError("a reason is needed", why="`--reason` is empty", hint='write why: --reason "…"; it is kept in the journal.')
    if line != " ".join(reason.split()):
        output.progress(f"the reason is kept as: {line[:SHOWN]}")
    return line


def needed(reason: str | None) -> str:
    """The same where the option may be left out, because another one of the verb only reads."""
    return said(reason or "")
