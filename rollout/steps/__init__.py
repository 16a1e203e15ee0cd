"""The six steps, in order. Each is one file: `decide` says the next single thing, `undo` puts back what it did.

Undo runs over all six, last first: stable's target comes back, the canary leaves, its deployment goes, staging goes, the marker goes.
Steps are pure and do not import each other.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rollout.domain.context import Ctx
from rollout.domain.decision import Decision
from rollout.domain.state import StepName
from rollout.steps import attach, canary, cleanup, declare, shift, stage

DECIDE: Mapping[StepName, Callable[[Ctx], Decision]] = MappingProxyType(
    {
        StepName.DECLARE: declare.decide,
        StepName.STAGE: stage.decide,
        StepName.ATTACH: attach.decide,
        StepName.CANARY: canary.decide,
        StepName.SHIFT: shift.decide,
        StepName.CLEANUP: cleanup.decide,
    }
)
UNDO: tuple[Callable[[Ctx], Decision | None], ...] = (cleanup.undo, shift.undo, canary.undo, attach.undo, stage.undo, declare.undo)
