"""When may `run` or `wait` stop? A word becomes a question to the state. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.errors import ExitCode, UsageError
from rollout.report.view import exit_code_for, needs_person

REPEATED = (StepName.ATTACH, StepName.CANARY, StepName.SHIFT)
"""steps that come again for each stable target"""
ORDER = tuple(StepName)
WORDS = (*(p.value for p in Phase), *(s.value for s in StepName))


@dataclass(frozen=True)
class Goal:
    """A phase or a step that somebody waits for."""

    word: str

    def reached(self, state: RolloutState) -> bool:
        """Whether the rollout is there, or is past it."""
        if self.word == Phase.PROMOTED:
            return promoted(state)
        if self.word in set(StepName):
            return _entered(StepName(self.word), state)
        return state.phase == self.word

    def missed(self, state: RolloutState) -> bool:
        """The rollout ended elsewhere: the goal cannot be reached any more."""
        return state.terminal and not self.reached(state)

    def stops(self, state: RolloutState, now: datetime, patience: float) -> bool:
        """Whether `run` has nothing more to do: there, ended, a person is needed, or a hold lasted longer than `patience` seconds."""
        held = state.hold is not None and (now - state.hold.since).total_seconds() >= patience
        return self.reached(state) or state.terminal or needs_person(state) or held


def ended_with(goal: Goal, state: RolloutState, say: Callable[[str], None]) -> ExitCode:
    """The exit code of a command that waited for `goal` and stopped in `state`; what was missed is told to `say`."""
    if goal.reached(state):
        return ExitCode.DONE
    code = exit_code_for(state)
    if not goal.missed(state):
        return code
    say(f"`{goal.word}` was not reached and cannot be any more: it ended {state.phase.value}")
    return code or ExitCode.WAIT_TIMEOUT


def goal_of(word: str) -> Goal:
    """The goal for a word of the command line. Raises UsageError that lists the words."""
    wanted = word.strip().lower().replace("-", "_")
    if wanted not in WORDS:
        raise UsageError(
            f"`--until {word}` is no phase and no step", why=f"known are {', '.join(WORDS)}", hint="`--until promoted` is the usual one."
        )
    return Goal(wanted)


def promoted(state: RolloutState) -> bool:
    """All targets are replaced and drained, and nothing is on its way back."""
    return state.undo is None and (state.phase in (Phase.PROMOTED, Phase.COMPLETED) or state.step is StepName.CLEANUP)


def _entered(step: StepName, state: RolloutState) -> bool:
    if state.target > 0 and step in REPEATED:
        return True
    return ORDER.index(state.step) >= ORDER.index(step)
