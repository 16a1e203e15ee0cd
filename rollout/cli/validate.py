"""`rollout validate`: is the plan file right? Reads the file only; no server and no store."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, PlanError

Plan = Annotated[str, typer.Argument(metavar="PLAN", help="The plan file (YAML).")]

SET = {"evidence": {"quality": {"prompts"}}}
"""what is read from another file is not printed"""


@verb(examples=("rollout validate plan.yaml", "rollout validate plan.yaml --json"), exits=(ExitCode.DONE, ExitCode.REFUSED))
def validate(plan: Plan, json: options.Json = False) -> int:
    """Check a plan file: every finding at once, with line and remedy.

    Looks at the file alone. `rollout plan` also looks at the servers.
    """
    from rollout.plan.load import load_plan

    try:
        loaded = load_plan(plan)
    except PlanError as error:
        if not json:
            raise
        found = [_plain(one) for one in getattr(error, "findings", ())]
        output.as_json({"valid": False, "message": error.message, "findings": found})
        return int(error.exit_code)
    if json:
        output.as_json({"valid": True, "digest": loaded.digest, "plan": loaded.plan.model_dump(mode="json", by_alias=True, exclude=SET)})
    else:
        said = loaded.plan
        many = f"{len(said.stable)} target{'s' if len(said.stable) > 1 else ''}"
        quality = said.evidence.quality
        replay = f"; replays {len(quality.prompts)} prompts of {quality.file}" if quality else ""
        output.result(f"{plan}: valid; changes {said.change.unit} of {many} on route {said.route.name}{replay}")
    return int(ExitCode.DONE)


def _plain(finding: Any) -> Any:
    return dataclasses.asdict(finding) if dataclasses.is_dataclass(finding) and not isinstance(finding, type) else str(finding)
