"""What a tick may decide. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rollout.domain.effects import Effect
from rollout.domain.state import Phase, StepName

Json = Any


@dataclass(frozen=True)
class Act:
    """Do this one thing."""

    effect: Effect


@dataclass(frozen=True)
class Record:
    """Write these facts (None removes a key), and decide again."""

    facts: dict[str, Json]
    why: str
    note: dict[str, Json] | None = None
    """what the journal keeps instead of the facts, where those are large and the state holds them anyway"""


@dataclass(frozen=True)
class Wait:
    """Nothing to do before `until`; at `deadline` the step itself will decide otherwise."""

    until: datetime
    why: str
    deadline: datetime | None = None


@dataclass(frozen=True)
class HoldOn:
    """Wait for a person, or for the cause to go away."""

    reason: str
    detail: str
    clears: tuple[str, ...] = ()
    """facts that `resume` removes, so that the cause is looked at afresh"""
    verbs: tuple[str, ...] = ("resume", "rollback", "abort")


@dataclass(frozen=True)
class Advance:
    """Enter another step (or the same one for the next target)."""

    step: StepName
    target: int
    why: str


@dataclass(frozen=True)
class TakeBack:
    """Undo what was done: a FAIL, the breaker or a broken floor."""

    cause: str
    detail: str


@dataclass(frozen=True)
class Halt:
    """Touch nothing more; a person is needed now."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Finish:
    """Enter a phase for good (or `promoted`)."""

    phase: Phase
    why: str
    exit_code: int | None = None
    facts: dict[str, Json] = field(default_factory=dict)


Decision = Act | Record | Wait | HoldOn | Advance | TakeBack | Halt | Finish
