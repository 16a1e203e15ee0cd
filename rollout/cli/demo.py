"""`rollout demo`: a healthy and a bad rollout on the built-in sandbox, under live traffic. Needs no server."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, RolloutError


class Bad(StrEnum):
    """What is wrong with the second canary."""

    TTFT = "ttft"
    NONE = "none"


class Sabotage(StrEnum):
    """What is broken on purpose, to show that a loss would be seen."""

    KILL_STABLE = "kill-stable"


BadOption = Annotated[Bad, typer.Option("--bad", help="What is wrong with the second canary: a doubled time to first token, or nothing.")]
SabotageOption = Annotated[Sabotage | None, typer.Option("--sabotage", help="Break something on purpose; the demo must then fail.")]


class DemoFailed(RolloutError):
    """The demo did not end as it should."""


@verb(
    examples=("rollout demo", "rollout demo --bad none", "rollout demo --sabotage kill-stable"),
    exits=(ExitCode.DONE, ExitCode.UNEXPECTED),
)
def demo(bad: BadOption = Bad.TTFT, sabotage: SabotageOption = None, json: options.Json = False) -> int:
    """Watch a healthy and a bad rollout on a built-in sandbox.

    Both run under live streaming traffic, with the real margins and error bounds; only durations are compressed. The last line
    has the figures. It fails when a request was lost, a stream was cut, or a rollout ended otherwise than it should.
    """
    try:
        from rollout.testing.demo import run_demo
    except ImportError as error:
        raise DemoFailed(
            "the demo needs the sandbox",
            why=f"{error.name or error} is not installed",
            hint="`pip install 'rollout[sandbox]'` installs it.",
        ) from error

    from rollout.cli.progress import Progress

    progress = Progress()
    done = run_demo(bad.value, sabotage.value if sabotage else None, output.progress, progress)
    progress.end()
    if json:
        output.as_json(dataclasses.asdict(done))
    else:
        figures = f"failed_requests={done.failed_requests} cut_streams={done.cut_streams}"
        output.result(f"demo: completed={done.completed} rolled_back={done.rolled_back} {figures}")
    wanted = (2, 0) if bad is Bad.NONE else (1, 1)
    harmed = done.failed_requests > 0 or done.cut_streams > 0
    return int(ExitCode.UNEXPECTED if harmed or (done.completed, done.rolled_back) != wanted else ExitCode.DONE)
