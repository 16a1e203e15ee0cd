"""The dry run as text, in reading order: refusals, the change, the ladder, how it is judged, how long, every call. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rollout.plan.hidden import CHANGED
from rollout.report.dryrun import DryRun, Evidence, PairPlan, Replay
from rollout.report.text import BAD, CARE, GOOD, QUIET
from rollout.report.waiting import Forecast, claimed, hours, per_hour, points, slower_by
from rollout.report.words import ago, percent

LONGEST = 60
"""characters of one value in the diff"""


def screen(run: DryRun) -> RenderableType:
    """The whole forecast."""
    parts: list[RenderableType] = [
        Text(f"{run.name}: {run.unit} on route {run.route} of {run.server} ({run.server_version})", style="bold")
    ]
    if run.refusals:
        parts += [Text(""), Text(f"REFUSED: {len(run.refusals)} finding(s); nothing would be touched", style=BAD)]
        parts += [Text(f"  - {one}") for one in run.refusals]
    if run.notes:
        parts += [Text(""), *(Text(f"  {note}", style=CARE) for note in run.notes)]
    if run.adopts:
        parts += [Text(""), Text(run.adopts, style=CARE)]
    if run.pairs:
        parts += [Text(""), Text(f"traffic is split by {run.carried_by}; effective is of the whole route", style=QUIET)]
    for number, pair in enumerate(run.pairs, 1):
        parts += [Text(""), *_pair(number, len(run.pairs), pair)]
    if run.evidence:
        why = f" ({run.forecast.mode_why})" if run.forecast else ""
        parts += [Text(""), Text("judged by", style=QUIET), *(Text(f"  {line}") for line in _evidence(run.evidence, why))]
    if run.forecast:
        parts += [Text(""), *_forecast(run.forecast)]
    if run.calls:
        parts += [Text(""), Text("deadlines", style=QUIET), _deadlines(run)]
        parts += [Text(""), Text("calls that change something, in order", style=QUIET), _calls(run)]
    if run.keys:
        parts += [Text(""), Text("keys", style=QUIET), *(Text(f"  {line}") for line in run.keys)]
    if not run.refusals:
        parts += [
            Text(""),
            Text(f"ready: `rollout {'adopt' if run.adopts else 'run'}` would start this; nothing was changed now", style=GOOD),
        ]
    return Group(*parts)


def _pair(number: int, of: int, pair: PairPlan) -> Iterator[RenderableType]:
    yield Text(f"target {number} of {of}: {pair.stable} -> {pair.canary}", style="bold")
    if pair.weight != pair.weight_during:
        yield Text(
            f"  weight {pair.weight} of {pair.stable} is too coarse: {pair.weight_during} during the ladder, by a twin target", style=CARE
        )
    for change in pair.changes:
        mark = "  change  " if change.kind == "unit" else "  sizing  "
        yield Text(f"{mark}{change.field}: {_short(change.stable)} -> {_short(change.canary)}{_unseen(change.canary)}")
    if any(c.kind == "sizing" for c in pair.changes):
        yield Text("  sizing is not the change under test, but it may explain a difference", style=CARE)
    if pair.shared:
        yield Text(f"  {pair.stable} also serves {', '.join(pair.shared)}: it will be kept", style=CARE)
    yield _rungs(pair)


def _rungs(pair: PairPlan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column("  rung", no_wrap=True, justify="right")
    for name in ("weights", "of pair", "effective", "load/replica"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("decides")
    for rung in pair.rungs:
        weights = "stable leaves" if rung.weight is None else f"{rung.weight} : {pair.weight_during}"
        ratio = "-" if rung.load_ratio is None else f"x {rung.load_ratio:.2f}"
        effective = " or ".join(percent(share) for share in rung.effective)
        table.add_row(f"  {percent(rung.asked)}", weights, percent(rung.pair_share), effective, ratio, rung.may)
    return table


def _evidence(evidence: Evidence, why: str) -> Iterator[str]:
    rate = "unknown rate" if evidence.rate is None else f"{evidence.rate:,.0f} requests/h"
    yield f"mode {evidence.mode}{why}, {rate}"
    yield f"latency may be up to {evidence.tolerated_latency:+.0%}; {evidence.unacceptable_latency:+.0%} is too much"
    yield f"errors: +{evidence.unacceptable_errors * 100:g} percentage points are too much"
    if evidence.replay:
        yield from _replay(evidence.replay)
    yield f"wrong rollback α {evidence.alpha:g}, wrong promotion β {evidence.beta:g}"
    yield f"replica noise v {evidence.v:g}, φ {evidence.phi:g}: {evidence.note}"


def _forecast(found: Forecast) -> Iterator[RenderableType]:
    """What would be found, how long a PASS takes, and what nobody will see."""
    yield Text(f"what {per_hour(found.rate)} can show, found in 4 of 5 rollouts ({found.source})", style=QUIET)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column("  rung", no_wrap=True, justify="right")
    for name in ("lasts", "slow-down", "by deadline", "errors", "by deadline"):
        table.add_column(name, no_wrap=True, justify="right")
    for rung in found.rungs:
        slow = slower_by(rung.within.slowdown), slower_by(rung.by_deadline.slowdown)
        errors = points(rung.within.errors), points(rung.by_deadline.errors)
        table.add_row(f"  {percent(rung.share)}", ago(rung.seconds), *slow, *errors)
    yield table
    if found.rungs and found.rungs[0].within.quality is not None:
        yield Text(f"  answers: a loss of {found.rungs[0].within.quality * 100:.2g} points of 100")
    if found.hours is None:
        yield Text(f"  a verdict on a canary like stable is not to be expected: {claimed(found.dominates or '')} stays open", style=CARE)
    else:
        late = (
            ", but fewer than 4 of 5 do within a month" if found.late_hours is None else f", in 4 of 5 rollouts {hours(found.late_hours)}"
        )
        waits = f"; waits longest for {claimed(found.dominates)}" if found.dominates else ""
        yield Text(f"  a canary like stable passes after about {hours(found.hours)}{late}{waits}")
    deadline = hours(found.deadline_hours)
    if found.hours is None:
        yield Text(
            f"  it would hold at the deadline of {deadline} (inconclusive); in `evidence.mode: thin` paired probes decide", style=CARE
        )
    elif found.hours > found.deadline_hours:
        yield Text(f"  that is later than the deadline of {deadline}: it would hold (inconclusive)", style=CARE)
    elif found.late_hours is None or found.late_hours > found.deadline_hours:
        yield Text(f"  more than 1 in 5 would meet the deadline of {deadline} first, and hold (inconclusive)", style=CARE)
    yield from (Text(f"  {line}", style=CARE) for line in found.undetectable)
    if found.why:
        yield Text("")
        yield Text("why it waits", style=QUIET)
        yield from (Text(f"  {line}") for line in found.why)
    if found.shorter:
        yield Text("what would change that", style=QUIET)
        yield from (Text(f"  {line}") for line in found.shorter)


def _replay(replay: Replay) -> Iterator[str]:
    each = "" if replay.targets == 1 else ", for each target"
    yield (
        f"quality: {replay.requests} prompts of {replay.file} in {replay.batches} batches: {replay.requests} requests to stable and "
        f"{replay.requests} to the canary, each of at most {replay.max_tokens} tokens{each}"
    )
    enough = replay.note or f"{replay.needed} prompts can exclude it when no answer differs"
    yield f"quality: -{replay.unacceptable * 100:g} points of 100 are too much; {enough}"


def _deadlines(run: DryRun) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for row in run.deadlines:
        table.add_row(f"  {row.what}", ago(row.seconds), row.then)
    table.add_row("  first rung to promotion", ago(run.shortest), "at the very least")
    return table


def _calls(run: DryRun) -> Table:
    table = Table.grid(padding=(0, 2))
    for no_wrap in (True, True, True, False):
        table.add_column(no_wrap=no_wrap)
    for number, call in enumerate(run.calls, 1):
        place = call.step if call.target is None or len(run.pairs) == 1 else f"{call.step} {call.target}"
        table.add_row(f"  {number:>2}", place, call.verb, call.text)
    return table


def _unseen(value: Any) -> str:
    """That a hidden value changed is said also where the mark of it is cut off."""
    return " (a hidden value changed)" if CHANGED in _whole(value) and CHANGED not in _short(value) else ""


def _whole(value: Any) -> str:
    return "(unset)" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = _whole(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
