"""`rollout init`: a first plan from a live route. Reads the server; writes one file, or standard output."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rollout.cli import options, output, place
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, PreflightError, UsageError

if TYPE_CHECKING:
    from rollout.plan.fields import Unit as UnitName
    from rollout.plan.model import GPUStack
    from rollout.report.draft import Draft

Route = Annotated[str, typer.Argument(metavar="ROUTE", help="The route, as clients write it in `model`.")]
Unit = Annotated[
    str,
    typer.Option(
        "--unit", metavar="UNIT", help="What changes: backend_image, model_revision, service_image, parameters (os, driver, worker)."
    ),
]
Out = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where the plan goes; - is standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]


@verb(
    examples=(
        "rollout init chat --server http://gpustack.lan:30080 --unit backend_image -o chat.yaml",
        "rollout init chat --server http://gpustack.lan:30080 --unit parameters > chat.yaml",
    ),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.UNREACHABLE),
)
def init(
    route: Route,
    server: place.TheServer,
    unit: Unit,
    out: Out = "-",
    force: Force = False,
    inference: place.Inference = None,
    management_key: place.Key = place.MANAGEMENT_KEY,
    inference_key: place.InferenceKey = place.INFERENCE_KEY,
    json: options.Json = False,
) -> int:
    """Write a plan from a live route, with what a person must fill in.

    Stable targets, ladder, staging and canary worker are read or guessed, each with a comment; the new value of the change is yours.
    Nothing secret is copied. A route that cannot be rolled gets its plan too, says why in comments, and ends with 3. Changes nothing
    on the server.
    """
    kind, file = _unit(unit), None if out == "-" else Path(out)
    if file is not None and file.exists() and not force:
        raise UsageError(
            f"{file} exists and is not overwritten", why="a plan may hold a person's work", hint="Give another name, or --force."
        )
    made = asyncio.run(_read(route, place.at(server, inference, management_key, inference_key), kind))
    if file is not None:
        output.to_file(file, made.text)
    if json:
        output.as_json({"path": str(file) if file else None, "plan": made.text, "problems": list(made.problems), "notes": list(made.notes)})
    elif file is None:
        output.result(made.text.rstrip())
    else:
        from rollout.report.draft import MISSING

        more = f" and what says {MISSING}" if MISSING in made.text else ""
        output.result(f"{file}: fill in `change.to`{more}, then `rollout validate {file}`")
    for one in made.problems:
        output.progress(f"cannot be rolled as it is: {one}")
    return int(ExitCode.REFUSED if made.problems else ExitCode.DONE)


def _unit(word: str) -> UnitName:
    from rollout.plan.fields import Unit as Known

    try:
        return Known(word.strip().lower().replace("-", "_"))
    except ValueError:
        known = ", ".join(u.value for u in Known)
        raise UsageError(f"`--unit {word}` is no change unit", why=f"known are {known}", hint="One rollout changes one of them.") from None


async def _read(route: str, at: GPUStack, unit: UnitName) -> Draft:
    from rollout.cli import wiring
    from rollout.clock import SystemClock
    from rollout.domain.world import Scope
    from rollout.report.draft import draft

    clock = SystemClock()
    connected = await wiring.connect_to(at, clock)
    try:
        world = await connected.backend.observe(Scope(route, ()))
        if world.route is None:
            hint = "Routes are listed in GPUStack under Routes, and by GET /v2/model-routes."
            raise PreflightError(f"route {route} does not exist on {at.server}", why="no plan can be read from it", hint=hint)
        names = tuple(t.deployment for t in world.route.targets if t.deployment)
        world = await connected.backend.observe(Scope(route, names, (), names, survey=True, front=True))
        return draft(world, at, world.route or _gone(route), unit, clock.now())
    finally:
        await connected.aclose()


def _gone(route: str) -> NoReturn:
    raise PreflightError(f"route {route} was deleted while it was read")
