"""The console script. Parses the command line, runs one verb, and turns every failure into three lines and an exit code.

Root help must stay as cheap as `import typer`: nothing else of weight is imported here.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

from rollout import __version__
from rollout.cli.lazy import WIDTH, LazyGroup
from rollout.cli.outlet import CLOSED, OutputClosedError, OutputFailed, abandon, outlets

app = typer.Typer(
    name="rollout",
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    subcommand_metavar="VERB …",
    context_settings={"max_content_width": WIDTH},
    epilog="`rollout VERB --help` has examples and exit codes. Results go to stdout, progress to stderr; NO_COLOR is obeyed.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rollout {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Progressive rollouts of self-hosted models: one change at a time, judged on real requests, always able to go back."""


def main(args: list[str] | None = None) -> int:
    """Run one command line and return its exit code. No traceback reaches the user."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # we use none, and looking for them opens every installed package
    gc.set_threshold(50_000, 20, 20)  # loading a command makes many objects and drops hardly any
    try:
        with outlets():
            done = typer.main.get_command(app).main(args=args, prog_name="rollout", standalone_mode=False)
    except OutputClosedError:
        abandon()
        return CLOSED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place before the user: every error becomes three lines
        from rollout.cli.failing import explain

        code = explain(error)
        if isinstance(error, OutputFailed):
            abandon()
        return code
    return int(done or 0)


if __name__ == "__main__":
    sys.exit(main())
