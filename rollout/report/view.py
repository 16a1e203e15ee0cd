"""A rollout as one value for screens and scripts: also the JSON of `status --json`. Pure: state, plan and events in, words out.

Knows no terminal and no store; does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.receipts import receipts_of
from rollout.domain.state import Event, Phase, RolloutState, StepName
from rollout.domain.taken import by_route, goes_on, route_command
from rollout.errors import EXIT_MEANING, ExitCode
from rollout.plan.model import Plan
from rollout.report.events import EventView, told
from rollout.report.share import RungView, Shares, rung_of, shares_of
from rollout.report.verdict import VerdictView, verdict_of
from rollout.report.window import WindowView, window_of

Json = Any
STEPS = tuple(StepName)
EVENTS_SHOWN = 8
PERSON = frozenset({"approval", "in_use", "inconclusive", "operator", "refused", "rollback_impossible", "taken_over"})
"""holds that only a person ends, by a verb or by a change on the server"""
ENDED = {
    int(ExitCode.REFUSED): "refused: nothing was changed",
    int(ExitCode.ROLLBACK_INCOMPLETE): "rollback incomplete: the journal says what is left",
    int(ExitCode.ROUTE_TAKEN): "the route is held by another rollout: nothing was changed",
    int(ExitCode.FENCED_OFF): "another engine took the route over: it decides what serves",
}
"""how a rollout ended that did not put stable back, by exit code"""
HELD = {"inconclusive": ExitCode.INCONCLUSIVE, "rollback_impossible": ExitCode.ROLLBACK_IMPOSSIBLE}
"""exit codes of holds that have one of their own"""
AWAY = "server:"
"""how a wait begins whose cause is a server that does not answer"""
UNDERWAY = frozenset({Phase.PENDING, Phase.RUNNING, Phase.ROLLING_BACK})


class Part(BaseModel):
    """Base of all parts of a view."""

    model_config = ConfigDict(frozen=True)


class StepView(Part):
    """Which of the six steps, and for which stable target. Numbers count from 1."""

    name: str
    number: int
    of: int
    entered: datetime


class TargetView(Part):
    """The pair that is being worked on. Numbers count from 1; `canary` is None before the route is taken."""

    number: int
    of: int
    stable: str
    canary: str | None


class WaitView(Part):
    """What a non-terminal phase waits for. `until` None = no deadline: it ends by its cause or by a person."""

    why: str
    since: datetime
    until: datetime | None


class HoldView(Part):
    """Why it holds. `needs_person`: the cause does not go away by itself."""

    reason: str
    detail: str
    since: datetime
    needs_person: bool


class SaidView(Part):
    """A person's word (or a verdict's): pause, abort, rollback."""

    verb: str
    actor: str
    reason: str
    at: datetime


class Owner(Part):
    """Who ticks: the holder of the lease, and until when it is valid without renewal."""

    name: str
    until: datetime


class StatusView(Part):
    """Everything `status` says. `next` are commands a person can copy."""

    id: str
    name: str
    server: str
    route: str
    phase: Phase
    summary: str
    step: StepView
    target: TargetView | None
    rung: RungView | None
    shares: Shares | None
    waiting: WaitView | None
    hold: HoldView | None
    paused: SaidView | None
    undo: SaidView | None
    pending: tuple[SaidView, ...]
    """words that whoever ticks it has not taken up yet"""
    verdict: VerdictView | None
    window: WindowView | None
    verbs: tuple[str, ...]
    next: tuple[str, ...]
    owner: Owner | None
    goes_on: tuple[str, ...]
    """commands that tick it"""
    created: datetime
    ended: datetime | None
    exit_code: int | None
    """None while it is under way"""
    exit_meaning: str | None
    events: tuple[EventView, ...]


def view_of(
    state: RolloutState, plan: Plan | None, events: Sequence[Event] = (), owner: Owner | None = None, pending: Sequence[SaidView] = ()
) -> StatusView:
    """The view of one rollout. `plan` may be missing when only the marker was known; `events` and `pending` oldest first."""
    code = None if state.phase in UNDERWAY and not state.paused else exit_code_for(state)
    verbs = verbs_for(state)
    return StatusView(
        id=state.id,
        name=state.name,
        server=state.server,
        route=state.route,
        phase=state.phase,
        summary=summary(state),
        step=StepView(name=state.step.value, number=STEPS.index(state.step) + 1, of=len(STEPS), entered=state.entered),
        target=_target(state, plan),
        rung=None if state.terminal else rung_of(state),
        shares=None if state.terminal else shares_of(state),
        waiting=WaitView(**state.waiting.model_dump()) if state.waiting else None,
        hold=_hold(state),
        paused=SaidView(**state.paused.model_dump()) if state.paused else None,
        undo=SaidView(**state.undo.model_dump()) if state.undo else None,
        pending=tuple(pending),
        verdict=verdict_of(state),
        window=window_of(state),
        verbs=verbs,
        next=tuple(command(verb, state) for verb in verbs),
        owner=owner,
        goes_on=() if state.terminal else goes_on(state),
        created=state.created,
        ended=state.ended,
        exit_code=None if code is None else int(code),
        exit_meaning=None if code is None else EXIT_MEANING[code],
        events=tuple(told(events)[-EVENTS_SHOWN:]),
    )


def exit_code_for(state: RolloutState) -> ExitCode:
    """What a shell is told about a rollout in this state."""
    if state.exit_code is not None:
        return ExitCode(state.exit_code)
    match state.phase:
        case Phase.ROLLED_BACK | Phase.ABORTED:
            return ExitCode.ROLLED_BACK
        case Phase.HALTED:
            return ExitCode.HALTED
        case Phase.HOLDING:
            return HELD.get(state.hold.reason if state.hold else "", ExitCode.HOLDING)
        case _:
            return ExitCode.HOLDING if state.paused else ExitCode.DONE


def needs_person(state: RolloutState) -> bool:
    """Nothing more happens until a person says something."""
    held = state.phase is Phase.HOLDING and for_person(state)
    serves_again = bool((state.fact("halt.probe") or {}).get("ok"))  # stable answered: the next tick goes on
    return (state.phase is Phase.HALTED and not serves_again) or held or state.paused is not None


def for_person(state: RolloutState) -> bool:
    """The cause does not go away by itself: it is a person's word, or it rests on facts that only `resume` removes.

    What somebody else changed is in the way of a way back that has done all it could; forward it is waited for as --patience says.
    """
    hold = state.hold
    return hold is not None and (bool(hold.clears) or hold.reason in PERSON or (hold.reason == "drift" and state.undo is not None))


def verbs_for(state: RolloutState) -> tuple[str, ...]:
    """The verbs that end what the rollout is in, likeliest first."""
    match state.phase:
        case Phase.COMPLETED:
            return ()
        case Phase.ROLLED_BACK | Phase.ABORTED:
            return ("retry",) if state.plan_digest else ()
        case _ if by_route(state):
            return ("rollback --route",)
        case Phase.ROLLING_BACK:
            return ("run",)
        case _ if state.paused:
            return ("resume", "rollback") if state.phase is Phase.PROMOTED else ("resume", "rollback", "abort")
        case Phase.HOLDING if state.hold and state.hold.verbs:
            return state.hold.verbs
        case Phase.HOLDING:
            return ("resume", "rollback", "abort")
        case Phase.HALTED if state.undo is not None:
            return ("run",)
        case Phase.HALTED:
            return ("rollback",) if state.step is StepName.CLEANUP else ("rollback", "abort")
        case Phase.PROMOTED:
            park = state.waiting is not None and "approve --park" in state.waiting.why
            return (*(("approve --park",) if park else ()), "rollback", "pause", "extend-window --by 12h")
        case _:
            return ("pause", "rollback", "abort")


def command(verb: str, state: RolloutState) -> str:
    """The command line for a verb, ready to be copied."""
    word, _, flags = verb.partition(" ")
    if flags == "--route":
        return route_command(state.route, state.server)
    if word == "run":
        return f"rollout run {state.id}"
    return " ".join(part for part in ("rollout", word, state.id, flags, "--reason '…'") if part)


def summary(state: RolloutState) -> str:
    """One sentence: what is going on."""
    waits = state.waiting.why if state.waiting else ""
    doing = state.intent.effect.why if state.intent else waits
    if state.intent and waits.startswith(AWAY):
        doing = f"{doing}; {waits}"
    match state.phase:
        case Phase.PENDING:
            return "declared, nothing was touched yet"
        case Phase.HOLDING if state.hold:
            return f"holds ({_words(state.hold.reason)}): {state.hold.detail}"
        case Phase.HALTED:
            halted = _hold(state)
            return f"halted ({_words(halted.reason)}): {halted.detail}" if halted else "halted: a person is needed now"
        case Phase.ROLLING_BACK:
            cause = f" because {state.undo.actor} said: {state.undo.reason}" if state.undo else ""
            return f"goes back to stable{cause}" + (f"; {doing}" if doing else "")
        case Phase.PROMOTED:
            return f"the canary is the new stable; {doing or 'the old one stays restorable until the window ends'}"
        case Phase.COMPLETED if state.fact("only"):
            rest = f"; left over: {', '.join(state.facts['rest'])}" if state.fact("rest") else ""
            return f"done: only {', '.join(state.facts['only']['stable'])} serves the route{rest}"
        case Phase.COMPLETED:
            return "done: the canary is the new stable and the old one is cleaned up"
        case Phase.ABORTED if state.fact("only") and state.fact("why"):
            return str(state.facts["why"])
        case Phase.ROLLED_BACK | Phase.ABORTED:
            said = f": {state.undo.reason}" if state.undo else "".join(f"; {one}" for one in state.fact("findings") or ())
            return ENDED.get(state.exit_code or 0, "stable serves as before") + said
        case _ if state.paused:
            return f"paused by {state.paused.actor}: {state.paused.reason}"
        case _:
            return f"step {state.step.value}: {doing}" if doing else f"in step {state.step.value}"


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def _hold(state: RolloutState) -> HoldView | None:
    """The hold, or why it halted, which the engine keeps as a fact."""
    halted = state.fact("halted") if state.phase is Phase.HALTED else None
    if halted:
        return HoldView(reason=halted["reason"], detail=halted["detail"], since=halted["at"], needs_person=True)
    if state.hold is None:
        return None
    held = state.hold
    return HoldView(reason=held.reason, detail=held.detail, since=held.since, needs_person=needs_person(state))


def _target(state: RolloutState, plan: Plan | None) -> TargetView | None:
    receipts = receipts_of(state)
    if receipts is not None and state.target < len(receipts.pairs):
        pair = receipts.pairs[state.target]
        return TargetView(number=state.target + 1, of=len(receipts.pairs), stable=pair.stable, canary=pair.canary)
    if plan is not None and state.target < len(plan.stable):
        return TargetView(number=state.target + 1, of=len(plan.stable), stable=plan.stable[state.target].deployment, canary=None)
    return None
