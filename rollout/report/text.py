"""Views as text: one screen for `status` and `watch`, one line per transition for `run`. Words carry the meaning, colour repeats it.

Is given the moment, the zone and the writer; reads no clock and no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from rollout.domain.restore import NOT
from rollout.domain.state import Phase
from rollout.report.events import EventView
from rollout.report.verdict import QualityView
from rollout.report.view import AWAY, STEPS, StatusView, WaitView
from rollout.report.words import ago, clock, percent, since, until

GOOD, BAD, CARE, QUIET = "green", "bold red", "yellow", "dim"
STYLE: dict[Phase, str] = {
    Phase.PENDING: QUIET,
    Phase.RUNNING: "bold cyan",
    Phase.HOLDING: "bold yellow",
    Phase.ROLLING_BACK: "bold yellow",
    Phase.PROMOTED: "bold green",
    Phase.COMPLETED: "bold green",
    Phase.ROLLED_BACK: "bold magenta",
    Phase.ABORTED: "bold magenta",
    Phase.HALTED: BAD,
}
LABEL = 9
LOST = 8
"""ids of lost prompts that are shown; `--json` has more"""
BRIEF = 5.0
"""seconds; a shorter wait is only the next look"""


def screen(view: StatusView, now: datetime, zone: tzinfo | None = None) -> RenderableType:
    """The status of one rollout, most important first: what, why, until when, what you can do."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL, style=QUIET, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, words in _rows(view, now, zone):
        grid.add_row(label, words)
    commands = [Text(""), Text("you can", style=QUIET), *(Text(f"  {line}") for line in view.next)] if view.next else []
    urgent = view.hold is not None or view.paused is not None
    parts: list[RenderableType] = [_title(view), *(commands if urgent else ()), Text(""), grid, *(() if urgent else commands)]
    if view.events:
        parts += [Text(""), Text("last events", style=QUIET), _events(view.events, zone)]
    return Group(*parts)


def _title(view: StatusView) -> Text:
    phase = view.phase.value.replace("_", " ").upper()
    title = Text.assemble((phase, STYLE[view.phase]), "  ", (view.name, "bold"), f"  {view.id}\n")
    title.append(view.summary, style=BAD if view.phase is Phase.HALTED else "")
    return title


def _rows(view: StatusView, now: datetime, zone: tzinfo | None) -> Iterator[tuple[str, Text]]:
    yield "route", Text(f"{view.route} on {view.server}")
    yield "step", _step(view)
    if view.target:
        beside = f" -> {view.target.canary}" if view.target.canary else ""
        yield "target", Text(f"{view.target.number} of {view.target.of}: {view.target.stable}{beside}")
    yield from _share_rows(view)
    if view.verdict:
        yield from _verdict_rows(view)
    if view.window:
        yield "window", Text(f"open until {until(view.window.ends, now, zone)}")
        yield from (("", Text(f"{side.deployment}: {side.told}", style=BAD if side.word == NOT else "")) for side in view.window.sides)
    if view.undo:
        yield "undo", Text(f"{view.undo.verb} by {view.undo.actor} {since(view.undo.at, now, zone)}: {view.undo.reason}")
    for said in view.pending:
        yield "said", Text(f"{said.verb} by {said.actor} {since(said.at, now, zone)}: {said.reason} (not yet taken up)", style=CARE)
    if view.hold:
        yield "halted" if view.phase is Phase.HALTED else "holds", Text(_hold(view, now, zone), style=CARE)
    if view.paused:
        yield "paused", Text(f"by {view.paused.actor} {since(view.paused.at, now, zone)}: {view.paused.reason}", style=CARE)
    if view.waiting and (not view.hold or view.waiting.why.startswith(AWAY)):
        why = "" if view.waiting.why in view.summary else f"{view.waiting.why}; "
        yield "waits", Text(f"{why}since {since(view.waiting.since, now, zone)}, {_end(view.waiting, now, zone)}")
    if view.ended:
        yield "ended", Text(f"{since(view.ended, now, zone)}, after {ago((view.ended - view.created).total_seconds())}")
    if view.exit_code is not None:
        yield "exit code", Text(f"{view.exit_code}: {view.exit_meaning}")
    if not view.ended:
        yield "ticked by", _owner(view, now, zone)


def _end(wait: WaitView, now: datetime, zone: tzinfo | None) -> str:
    if wait.until is None:
        return "no deadline: ends by its cause or by a person"
    brief = (wait.until - wait.since).total_seconds() <= BRIEF
    return "looked at again every moment" if brief else f"until {until(wait.until, now, zone)}"


def _step(view: StatusView) -> Text:
    text = Text(f"{view.step.number} of {view.step.of}  ")
    for number, name in enumerate(STEPS, 1):
        done = number < view.step.number or view.phase is Phase.COMPLETED
        here = number == view.step.number and not done
        mark, style = ("✓ ", GOOD) if done else ("▸ ", "bold") if here else ("· ", QUIET)
        text.append(f"{mark}{name.value}" + ("" if number == len(STEPS) else "  "), style=style)
    return text


def _share_rows(view: StatusView) -> Iterator[tuple[str, Text]]:
    if view.rung:
        ladder = " / ".join(f"[{percent(s)}]" if n == view.rung.number else percent(s) for n, s in enumerate(view.rung.ladder, 1))
        yield "rung", Text(f"{view.rung.number} of {view.rung.of}: {ladder}")
    shares = view.shares
    if shares is None:
        return
    beside = "stable's target is removed" if shares.weight is None else f"weight {shares.weight} beside {shares.stable_weight}"
    whole = "" if abs(shares.effective_route - shares.effective_pair) < 1e-9 else f", {percent(shares.effective_route)} of the whole route"
    yield "share", Text(f"asked {percent(shares.requested_pair)}, set {percent(shares.effective_pair)} ({beside}{whole})")
    if shares.observed_route is None:
        yield "", Text("seen: not measured yet", style=CARE)
    else:
        word = "proved" if shares.proved else "not proved yet"
        yield "", Text(f"seen {percent(shares.observed_route)} of {shares.requests} requests: {word}", style="" if shares.proved else CARE)


def _verdict_rows(view: StatusView) -> Iterator[tuple[str, Text]]:
    verdict = view.verdict
    if verdict is None:
        return
    style = {"pass": GOOD, "fail": BAD, "inconclusive": CARE, "error": CARE}.get(verdict.word, QUIET)
    word = {"none": "NONE YET", "continue": "UNDECIDED"}.get(verdict.word, verdict.word.upper())
    said = "as above" if view.hold and verdict.sentence in view.hold.detail else verdict.sentence
    yield "verdict", Text.assemble((word, style), f"  {said}")
    if verdict.quality:
        yield "quality", Text(_quality(verdict.quality))
    known = [f"evidence {verdict.mode}"] if verdict.mode else []
    known += [f"{verdict.requests} requests seen on this rung, {verdict.pairs} paired probes"] if verdict.alpha is not None else []
    known += [f"α {verdict.alpha:g}, β {verdict.beta:g}"] if verdict.alpha is not None and verdict.beta is not None else []
    if verdict.v is not None and verdict.phi is not None:
        claim = "fitted" if verdict.guaranteed else "not guaranteed: one replica"
        known += [f"replica noise v {verdict.v:g}, φ {verdict.phi:g} ({claim})"]
    if known:
        yield "", Text("; ".join(known), style=QUIET)


def _quality(quality: QualityView) -> str:
    """`40 of 100 prompts: stable 38 right, canary 31; the canary lost 8: q17, q22, …`."""
    count = f"{quality.used} of {quality.of} prompts"
    if not quality.used:
        return f"{count}: none was replayed yet"
    failed = [f"{n} failed on {side}" for n, side in ((quality.stable_errors, "stable"), (quality.canary_errors, "the canary")) if n]
    named = ", ".join(quality.worst[:LOST]) + (", …" if quality.lost > min(LOST, len(quality.worst)) else "")
    lost = [f"the canary lost {quality.lost}: {named}"] if quality.lost else []
    return "; ".join([f"{count}: stable {quality.stable:g} right, canary {quality.canary:g}", *failed, *lost])


def _hold(view: StatusView, now: datetime, zone: tzinfo | None) -> str:
    if view.hold is None:
        return ""
    end = "a person must end it" if view.hold.needs_person else "ends by itself when the cause is gone"
    if view.phase is Phase.HALTED:
        end = "nothing is written until stable serves again: bring it back"
        end += ", then it goes on going back" if view.undo else "; a rollback or abort said now waits for that too"
    return f"since {since(view.hold.since, now, zone)}; {end}"


def _owner(view: StatusView, now: datetime, zone: tzinfo | None) -> Text:
    if view.owner is None or view.owner.until <= now:
        return Text(f"nobody now: {' or '.join(f'`{line}`' for line in view.goes_on)} goes on", style=CARE)
    return Text(f"{view.owner.name}, lease until {clock(view.owner.until, zone)}")


def _events(events: Sequence[EventView], zone: tzinfo | None) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style=QUIET)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for event in events:
        table.add_row(f"  {clock(event.at, zone)}", event.word, event.text)
    return table


def transition(event: EventView, step: str, zone: tzinfo | None = None) -> str:
    """`HH:MM:SS  step     word          reason`: one line for `run` and a piped `watch`."""
    return f"{clock(event.at, zone)}  {step:<7}  {event.word:<12}  {event.text}".rstrip()


WHAT = 20
"""columns below which the sentence is left out of a list"""
SHORT = 6
"""columns to which a list cuts names"""


@dataclass(frozen=True)
class Listing:
    """A line for each rollout, as wide as the terminal. The id is never cut: it is there to be copied."""

    views: Sequence[StatusView]
    now: datetime

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = ("id", "name", "route", "phase", "step", "age")
        rows = [_cells(view, self.now) for view in self.views]
        widths = [max(len(head), *(len(row[n]) for row in rows)) for n, head in enumerate(heads)]
        widths, shown = _fit(widths, options.max_width)
        what = options.max_width - sum(widths[n] + 2 for n in shown)
        grid = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
        for n in shown:
            grid.add_column(heads[n], no_wrap=True, overflow="ellipsis", width=widths[n])
        if what >= WHAT:
            grid.add_column("what", no_wrap=True, overflow="ellipsis", width=what - 2)
        for row, view in zip(rows, self.views, strict=True):
            cells = [Text(row[n], style=STYLE[view.phase] if n == 3 else "") for n in shown]
            grid.add_row(*cells, *([view.summary] if what >= WHAT else []))
        yield grid


def _cells(view: StatusView, now: datetime) -> tuple[str, ...]:
    step = f"{view.step.number}/{view.step.of} {view.step.name}"
    return view.id, view.name, view.route, view.phase.value.replace("_", " "), step, ago((now - view.created).total_seconds())


def _fit(widths: list[int], width: int) -> tuple[list[int], list[int]]:
    """Name and route are cut first, then age, step, route, name and phase are left out, until it fits."""
    shown = list(range(len(widths)))

    def over() -> int:
        return sum(widths[n] + 2 for n in shown) - width

    for n in (1, 2):
        widths[n] = max(min(widths[n], SHORT), widths[n] - max(0, over()))
    for n in (5, 4, 2, 1, 3):
        if over() > 0:
            shown.remove(n)
    return widths, shown


def table(views: Sequence[StatusView], now: datetime) -> RenderableType:
    """The list of rollouts in the given order, a line each."""
    return Listing(views, now)
