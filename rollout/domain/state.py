"""Where a rollout is. Frozen values; `evolve(state, event)` returns a new one. Pure: no I/O, no clock.

Rows, not replay: the state is stored whole beside each journal entry, so a newer release can go on with it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rollout.domain.effects import Effect

Json = Any


class Phase(StrEnum):
    """Where a rollout is, in one word."""

    PENDING = "pending"
    RUNNING = "running"
    HOLDING = "holding"
    ROLLING_BACK = "rolling_back"
    PROMOTED = "promoted"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    HALTED = "halted"


TERMINAL = frozenset({Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABORTED})


class StepName(StrEnum):
    """The six steps, in order."""

    DECLARE = "declare"
    STAGE = "stage"
    ATTACH = "attach"
    CANARY = "canary"
    SHIFT = "shift"
    CLEANUP = "cleanup"


class Frozen(BaseModel):
    """Base of all state values: frozen, and tolerant of keys a newer release wrote."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Said(Frozen):
    """What a person (or a verdict) said: the word, who, why, when."""

    verb: str
    actor: str
    reason: str
    at: datetime


class Hold(Frozen):
    """A reason to wait. It ends when its cause is gone or by one of its verbs."""

    reason: str
    """approval, inconclusive, operator, drift, weight_not_effective, share_alarm, drain_timeout, not_ready, memory, refused, ..."""
    detail: str
    since: datetime
    clears: tuple[str, ...] = ()
    """facts that `resume` removes"""
    verbs: tuple[str, ...] = ()
    """verbs that end it"""


class Waiting(Frozen):
    """What a non-terminal phase waits for, since when, and until when."""

    why: str
    since: datetime
    until: datetime | None


class OpenIntent(Frozen):
    """An effect that was announced in the journal and has no outcome yet."""

    number: int
    effect: Effect
    at: datetime


class Event(Frozen):
    """One journal entry. `kind`: created | intent | outcome | fact | step | hold | phase | command | wait."""

    kind: str
    at: datetime
    actor: str
    text: str
    data: dict[str, Json] = Field(default_factory=dict)


class RolloutState(Frozen):
    """Everything a tick needs to know besides the plan and the world."""

    id: str
    name: str
    server: str
    route: str
    plan_digest: str
    phase: Phase
    step: StepName
    target: int = 0
    """index of the stable target that is being replaced"""
    created: datetime
    entered: datetime
    """when this step of this target was entered"""
    facts: dict[str, Json] = Field(default_factory=dict)
    """what was done or measured and the world cannot show: receipts by key"""
    intents: int = 0
    intent: OpenIntent | None = None
    hold: Hold | None = None
    waiting: Waiting | None = None
    paused: Said | None = None
    undo: Said | None = None
    """abort | rollback: undo of the steps done, last first"""
    ended: datetime | None = None
    exit_code: int | None = None

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL

    def fact(self, key: str) -> Json:
        """The receipt under `key`, or None."""
        return self.facts.get(key)


def evolve(state: RolloutState, event: Event) -> RolloutState:
    """The state after `event`. Total: an event that changes nothing returns the state as it was."""
    data = event.data
    match event.kind:
        case "intent":
            number = state.intents + 1
            opened = OpenIntent(number=number, effect=Effect.model_validate(data["effect"]), at=event.at)
            return state.model_copy(update={"intent": opened, "intents": number, "waiting": None})
        case "outcome":
            facts = {**state.facts, **data.get("facts", {})}
            return state.model_copy(update={"intent": None, "facts": facts})
        case "fact":
            kept = {k: v for k, v in {**state.facts, **data["facts"]}.items() if v is not None}
            return state.model_copy(update={"facts": kept})
        case "step":
            update = {"step": StepName(data["step"]), "target": data["target"], "entered": event.at, "hold": None, "waiting": None}
            return state.model_copy(update=update)
        case "hold":
            held = Hold.model_validate(data["hold"]) if data.get("hold") else None
            return state.model_copy(update={"hold": held})
        case "wait":
            waiting = Waiting.model_validate(data["waiting"]) if data.get("waiting") else None
            return state.model_copy(update={"waiting": waiting})
        case "phase":
            return _enter_phase(state, Phase(data["phase"]), event, data.get("exit_code"))
        case "command":
            return _say(state, Said.model_validate(data["said"]))
        case _:
            return state


def _enter_phase(state: RolloutState, phase: Phase, event: Event, exit_code: int | None) -> RolloutState:
    update: dict[str, Json] = {"phase": phase}
    if phase is not Phase.HOLDING:
        update |= {"hold": None}
    if phase in TERMINAL:
        update |= {"ended": event.at, "exit_code": exit_code, "waiting": None, "paused": None}
    return state.model_copy(update=update)


def _say(state: RolloutState, said: Said) -> RolloutState:
    match said.verb:
        case "pause":
            return state.model_copy(update={"paused": said})
        case "resume":
            return state.model_copy(update={"paused": None, "hold": None, "facts": _without_held(state)})
        case "abort" | "rollback" if state.hold is not None and state.hold.reason == "rollback_impossible":
            return state.model_copy(update={"facts": {**state.facts, "given_up": state.hold.detail}, "hold": None})
        case "abort" | "rollback":
            already = state.undo is not None and state.undo.verb == said.verb
            return state if already else state.model_copy(update={"undo": said, "paused": None, "hold": None, "waiting": None})
        case "approve" if not _awaits_approval(state):
            return state
        case "accept_inconclusive" if state.hold is None or state.hold.reason != "inconclusive":
            return state
        case _:
            said_so = {**state.facts, f"said.{said.verb}": {**said.model_dump(mode="json"), "target": state.target}}
            return state.model_copy(update={"facts": said_so})


def _without_held(state: RolloutState) -> dict[str, Json]:
    """`resume` removes the facts a hold rests on, so that its cause is looked at afresh."""
    cleared = set(state.hold.clears) if state.hold else set()
    return {k: v for k, v in state.facts.items() if k not in cleared}


def _awaits_approval(state: RolloutState) -> bool:
    """An approval counts where one is asked for, or for the removal that the window leads to; it is not kept for later."""
    return state.step is StepName.CLEANUP or (state.hold is not None and state.hold.reason == "approval")
