"""A command group that imports a verb's module only when that verb is used. No verb's logic is here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from rollout.cli.verbs import VERBS
from rollout.errors import EXIT_MEANING, ExitCode

F = TypeVar("F", bound=Callable[..., Any])
WIDTH = 100


def verb(*, examples: tuple[str, ...], exits: tuple[ExitCode, ...]) -> Callable[[F], F]:
    """Append examples and exit codes to a verb's help, so that both always look the same."""

    def add(function: F) -> F:
        told = "\n".join(f"  {line}" for line in examples)
        codes = "\n".join(f"  {code.value:>3}  {EXIT_MEANING[code]}" for code in exits)
        text = "\n".join(line.strip() for line in (function.__doc__ or "").strip().splitlines())
        function.__doc__ = f"{text}\n\n\b\nExamples:\n{told}\n\n\b\nExit codes:\n{codes}"
        return function

    return add


def load(name: str) -> Any:
    """The command behind a verb, as a typer command object."""
    module = importlib.import_module(f"rollout.cli.{VERBS[name].module}")
    word = name.replace("-", "_")
    function = getattr(module, f"{word}_", None) or getattr(module, word)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, short_help=VERBS[name].summary)(function)
    return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """Knows the verbs by name and summary, and each of them only on demand."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's own context, under its public name
        return list(VERBS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        return load(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        with formatter.section("Verbs"):
            formatter.write_dl([(name, row.summary) for name, row in VERBS.items()])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        if args[0] not in VERBS and not args[0].startswith("-"):
            close = get_close_matches(args[0], VERBS, n=1)
            ctx.fail(f"No such verb '{args[0]}'." + (f" Did you mean '{close[0]}'?" if close else ""))
        return super().resolve_command(ctx, args)
