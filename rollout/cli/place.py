"""Where a verb that may have no plan finds the server and its keys: the options, written once. Opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollout.errors import UsageError

if TYPE_CHECKING:
    from rollout.plan.model import GPUStack

MANAGEMENT_KEY = "env:ROLLOUT_MANAGEMENT_KEY"
INFERENCE_KEY = "env:ROLLOUT_INFERENCE_KEY"
Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="The management URL, where no plan says it.")]
TheServer = Annotated[str, typer.Option("--server", metavar="URL", help="The management URL.")]
Inference = Annotated[str | None, typer.Option("--inference", metavar="URL", help="The inference URL, when it differs; with --server.")]
Key = Annotated[str, typer.Option("--management-key", metavar="env:NAME|file:PATH", help="Where the management key is; with --server.")]
InferenceKey = Annotated[
    str, typer.Option("--inference-key", metavar="env:NAME|file:PATH", help="Where the inference key is; with --server.")
]


def at(server: str | None, inference: str | None, management_key: str, inference_key: str) -> GPUStack:
    """The server; UsageError when none is named, or when a key is given itself instead of by reference."""
    if server is None:
        raise UsageError("`--server` is needed", why="no plan says where the route is", hint="--server http://gpustack.lan:30080")
    from rollout.cli.wiring import gpustack_at

    return gpustack_at(server, inference, management_key, inference_key)
