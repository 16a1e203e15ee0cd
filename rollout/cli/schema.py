"""`rollout schema`: the JSON Schema of plans, for editors and checks."""

from __future__ import annotations

from typing import Annotated

import typer

from rollout.cli import output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode

Json = Annotated[bool, typer.Option("--json", help="For symmetry: a schema is JSON in any case.")]


@verb(examples=("rollout schema > plan.schema.json",), exits=(ExitCode.DONE,))
def schema(json: Json = True) -> int:
    """Print the JSON Schema of plans.

    Point an editor at it with a first line such as `# yaml-language-server: $schema=plan.schema.json`.
    """
    from rollout.plan.schema import schema_text

    output.result(schema_text().rstrip())
    return int(ExitCode.DONE)
