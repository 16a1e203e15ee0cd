"""`rollout windows` and `rollout judge`: what a rollout's judge saw, written to a file and judged again. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli import options, output
from rollout.cli.lazy import verb
from rollout.errors import ExitCode, PlanError, UsageError

if TYPE_CHECKING:
    from rollout.analysis.config import JudgeConfig
    from rollout.analysis.recording import Attempt
    from rollout.analysis.replay import Judged

MaybeId = Annotated[str | None, typer.Argument(metavar="[ID]", help="The rollout's id, or a prefix that only it has; or give --windows.")]
Windows = Annotated[
    Path | None, typer.Option("--windows", metavar="FILE", help="A recording, as `rollout windows` writes it; - is standard input.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Judge with another value; again for more. `--set help` lists the keys."),
]
Each = Annotated[bool, typer.Option("--each", help="Print what was said after every window.")]
Assumptions = Annotated[bool, typer.Option("--assumptions", help="Print what the bound rests on.")]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the evidence of the last attempt.")]
Fit = Annotated[bool, typer.Option("--fit", help="Take the windows as stable against itself and print the noise they show.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of standard output.")]
LIMIT = 64 << 20
"""bytes of a recording; some 60,000 windows"""
CODES = {"pass": ExitCode.DONE, "fail": ExitCode.ROLLED_BACK}


@verb(
    examples=("rollout windows 3f2a > seen.jsonl", "rollout windows 3f2a --out seen.jsonl && rollout judge --windows seen.jsonl"),
    exits=(ExitCode.DONE, ExitCode.USAGE),
)
def windows(rollout_id: options.RolloutId, out: Out = None, json: options.Json = False, store: options.Store = None) -> int:
    """Write down what a rollout's judge saw: one line of JSON a window.

    Counts only, no prompt and no answer. A header with the judge's margins begins each attempt. The file is what
    `rollout judge --windows` reads, and what a plan's `evidence.history` wants of a rollout whose canary was like stable.
    """
    from rollout.analysis.recording import written

    lines = list(written(_of_store(rollout_id, store)))
    if json:  # one document instead of lines
        lines = [f"[{','.join(lines)}]"]
    if out is None:
        for line in lines:
            output.result(line)
        return int(ExitCode.DONE)
    output.to_file(out, "".join(f"{line}\n" for line in lines))
    output.progress(f"wrote {len(lines)} lines to {out}")
    return int(ExitCode.DONE)


@verb(
    examples=(
        "rollout judge 3f2a",
        "rollout judge --windows seen.jsonl --set ttft.tolerated=0.1 --set alpha=0.05",
        "rollout judge --windows seen.jsonl --svg evidence.svg",
        "rollout judge --windows like-stable.jsonl --fit",
    ),
    exits=(ExitCode.DONE, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.ROLLED_BACK, ExitCode.INCONCLUSIVE),
)
def judge(
    rollout_id: MaybeId = None,
    windows: Windows = None,
    change: Changes = None,
    each: Each = False,
    assumptions: Assumptions = False,
    svg: Svg = None,
    fit: Fit = False,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Judge recorded windows again: the same verdicts, or those of other margins.

    Ends with 0 for PASS, 10 for FAIL and 12 for everything that is undecided, by the last attempt of the recording. Touches no server.
    """
    if change == ["help"]:
        from rollout.analysis.changing import settable

        output.result("\n".join(settable()))
        return int(ExitCode.DONE)
    attempts = _attempts(rollout_id, windows, store)
    if fit and (change or svg or each or len(attempts) > 1):
        why = "--set, --svg and --each ask for verdicts" if len(attempts) == 1 else f"the recording holds {len(attempts)} attempts"
        raise UsageError("--fit takes the windows of one attempt and nothing else", why=why, hint="leave the rest out.")
    if fit:
        return _fitted(attempts, json=json)
    told = [(attempt, *_judged(attempt, change or [])) for attempt in attempts]
    if svg is not None:
        if windows is not None and svg.exists() and windows.exists() and svg.samefile(windows):
            raise UsageError(f"{svg} is the recording itself", why="the picture would take its place", hint="Give another path.")
        from rollout.report.judge_picture import picture

        output.to_file(svg, picture(*told[-1]))
        output.progress(f"drew the evidence in {svg}")
    if json:
        from rollout.report.rejudge import as_json

        output.as_json([as_json(attempt, said, each=each) for attempt, _, said in told])
    else:
        for attempt, _, said in told:
            _print(attempt, said, each=each)
        if assumptions:
            from rollout.analysis.words import ASSUMPTIONS

            for text in ASSUMPTIONS:
                output.result(f"  {text}")
    said = told[-1][2]
    return int(CODES.get(said[-1].verdict.kind if said else "", ExitCode.INCONCLUSIVE))


def _attempts(rollout_id: str | None, file: Path | None, store: str | None) -> tuple[Attempt, ...]:
    if (rollout_id is None) == (file is None):
        raise UsageError("name one thing to judge", why="a rollout's id or --windows FILE, not both", hint="rollout judge ID")
    if rollout_id is not None:
        return _of_store(rollout_id, store)
    from rollout.analysis.recording import Unreadable, read
    from rollout.plan.reading import beginning

    path, name = ("/dev/stdin", "<stdin>") if str(file) == "-" else (str(file), str(file))
    try:
        data = beginning(path, LIMIT + 1)
        if len(data) > LIMIT:
            raise UsageError(f"{name} is too large", why=f"a recording has at most {LIMIT >> 20} MiB", hint="judge its attempts one by one")
        return read(data.decode("utf-8-sig").split("\n"))
    except Unreadable as error:
        key = f" {error.key}:" if error.key and f"`{error.key}`" not in error.what else ""
        raise PlanError(
            f"{name}:{error.line}:{key} {error.what}", why="it is no recording of a judge's windows", hint=error.remedy
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"{name} cannot be read", why=why, hint="name a file that `rollout windows` wrote") from None


def _of_store(rollout_id: str, store: str | None) -> tuple[Attempt, ...]:
    from rollout.cli.desk import event_of, opened
    from rollout.report.recorded import recorded

    with opened(store) as desk:
        state = desk.store.load(rollout_id).state
        rows = desk.store.journal(state.id)
    try:
        attempts = recorded(state, map(event_of, rows))
    except ValueError as error:
        hint = "use the release that began this rollout"
        raise UsageError(f"the windows of {state.id} cannot be read", why=str(error), hint=hint) from None
    if not attempts:
        raise UsageError(
            f"{state.id} has judged nothing", why="its canary has had no share of the route", hint=f"rollout status {state.id}"
        )
    return attempts


def _judged(attempt: Attempt, changes: list[str]) -> tuple[JudgeConfig, tuple[Judged, ...]]:
    from rollout.analysis.changing import changed, settable
    from rollout.analysis.replay import judged

    values = dict(_pair(one) for one in changes)
    try:
        config = changed(attempt.config, values) if values else attempt.config
    except ValueError as error:
        known = ", ".join(settable())
        raise UsageError(f"--set: {error}", why="the judge has no such setting, or not that value", hint=f"known keys: {known}") from None
    return config, judged(attempt, config)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    return key.strip(), value if equals else ""


def _print(attempt: Attempt, said: tuple[Judged, ...], *, each: bool) -> None:
    from rollout.analysis.replay import as_live
    from rollout.analysis.words import interval

    output.result(f"{attempt.title}, attempt {attempt.about.get('attempt', 1)}: {len(said)} window{'s' if len(said) != 1 else ''}")
    before = shown = None
    for one in said:
        if each or one.verdict.kind != before:
            window = one.look.window
            output.result(f"  window {window.id:>4}, rung {window.rung + 1}, {one.requests} canary requests: {one.verdict.sentence}")
            shown = one
        before = one.verdict.kind
    if not said:
        return
    last = said[-1].verdict
    if shown is not said[-1]:
        output.result(f"  in the end: {last.sentence}")
    against, supporting = last.details["evidence_against"], last.details["evidence_for"]
    for metric, log in against["by_metric"].items():
        output.result(f"    against, {metric:<8} {_bar(log, against['needed_log10'])}")
    for claim, log in supporting["log10_by_claim"].items():
        output.result(f"    for, {claim:<12} {_bar(log, supporting['needed_log10'])}")
    for row in last.details["effect"]:
        output.result(f"    {100 * row['confidence']:g} % sure: {interval(row)}")
    live = as_live(said)
    other = live.first_other
    if other is not None and other.said is not None:
        output.result(f"  window {other.window.id} was judged otherwise live: {other.said[1]}")
    elif live.told:
        reworded = live.told - live.same_words
        words = f", {reworded} in other words: another release said them" if reworded else ""
        output.result(f"  {live.told} of {live.told} verdicts are as they were given live{words}")


def _bar(log10: float, needed: float) -> str:
    """How far the evidence is on the way to what it needs, in twenty places."""
    part = min(max(log10 / needed, 0.0), 1.0)
    full = int(20 * part)
    odds = f"{10**log10:,.0f} to 1" if 0 <= log10 <= 6 else "over a million to 1" if log10 > 6 else "none"
    return f"[{'#' * full}{'.' * (20 - full)}] {odds} of {10**needed:,.0f} to 1"


def _fitted(attempts: tuple[Attempt, ...], *, json: bool) -> int:
    from rollout.analysis.config import LATENCIES
    from rollout.analysis.fit import fit_history

    attempt = attempts[-1]
    references = {metric: attempt.config.reference(metric) for metric in LATENCIES}
    try:
        found = fit_history(references, [look.window for look in attempt.looks])
    except ValueError as error:
        raise PlanError("the noise cannot be fitted", why=str(error), hint="record a longer rollout of a canary like stable") from None
    if not found.noises and found.memory_noise is None:
        raise PlanError(
            "the noise cannot be fitted",
            why="no latency and no memory was seen often enough on both sides",
            hint="record a longer rollout of a canary like stable, under traffic",
        )
    if json:
        noises = {n.metric: {"v": n.v, "phi": n.phi} for n in found.noises}
        memory = dict(zip(("sd", "phi"), found.memory_noise, strict=True)) if found.memory_noise else None
        output.as_json({"windows": found.windows, "noises": noises, "memory": memory})
        return int(ExitCode.DONE)
    output.result(f"fitted on {found.windows} windows of stable against itself")
    for noise in found.noises:
        output.result(f"  {noise.metric:<5} v={noise.v:g} phi={noise.phi:g}")
    memory_told = (
        f"sd={found.memory_noise[0] / 2**20:.0f} MiB phi={found.memory_noise[1]:.2f}" if found.memory_noise else "too few readings"
    )
    output.result(f"  memory {memory_told}")
    return int(ExitCode.DONE)
