"""Wall clocks that jump, and machines that boot again, in every step: no window, drain or verdict comes sooner, and nothing hangs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rollout.domain.state import Phase, StepName
from tests.integration.engine.harness import Case, SteppingClock, reached

JUMPS = {
    "minutes-back": -600,
    "day-back": -90_000,
    "years-back": -30 * 365 * 86_400,
    "hour": 3600,
    "day": 90_000,
    "century": 36_500 * 86_400,
}


class BootingClock(SteppingClock):
    """A machine that may boot: its steady clock begins again, and its wall clock says what its battery kept."""

    def __init__(self) -> None:
        super().__init__()
        self.boots, self.zero = 1, 0.0

    def boot(self) -> str:
        return f"boot-{self.boots}"

    def monotonic(self) -> float:
        return self.time.timestamp() - self.zero

    def restart(self, wrong_by: float) -> None:
        self.boots, self.zero = self.boots + 1, self.time.timestamp()
        self.jump = timedelta(seconds=wrong_by)


@pytest.mark.parametrize(
    ("jump", "step"),
    [
        ("day-back", StepName.STAGE),
        ("minutes-back", StepName.CANARY),
        ("day", StepName.CANARY),
        ("day-back", StepName.SHIFT),
        ("century", StepName.SHIFT),
        ("years-back", StepName.CLEANUP),
        ("hour", StepName.CLEANUP),
        ("century", StepName.CLEANUP),
    ],
)
def test_a_jump_in_any_step_shortens_nothing_and_hangs_nowhere(tmp_path: Path, jump: str, step: StepName) -> None:
    case = Case(tmp_path)
    began = case.clock.time
    started = case.start().state.id
    case.run(started, reached(step))
    case.clock.jump += timedelta(seconds=JUMPS[jump])
    at_jump = case.clock.time
    state = case.run(started)
    assert state.phase is Phase.COMPLETED
    if step is StepName.CLEANUP:
        assert case.clock.time - at_jump >= timedelta(minutes=1, seconds=55), "the window of 2 min"
    assert timedelta(minutes=8) < case.clock.time - began < timedelta(minutes=40)
    assert case.store.verify(started)


@pytest.mark.parametrize(
    ("wrong", "step"),
    [(0, StepName.CANARY), (-30 * 365 * 86_400, StepName.CANARY), (-30 * 365 * 86_400, StepName.CLEANUP), (90_000, StepName.CLEANUP)],
    ids=["right", "battery-empty", "battery-empty-in-the-window", "a-day-ahead"],
)
def test_after_a_reboot_it_goes_on_and_no_window_is_shorter(tmp_path: Path, wrong: int, step: StepName) -> None:
    clock = BootingClock()
    case = Case(tmp_path, clock=clock)
    started = case.start().state.id
    case.run(started, reached(step))
    clock.restart(wrong)
    at_boot = clock.time
    state = case.run(started)
    assert state.phase is Phase.COMPLETED
    if wrong <= 0 and step is StepName.CLEANUP:
        assert clock.time - at_boot >= timedelta(minutes=1, seconds=55)
    assert len([e for e, _ in case.events if "anchored" in e.text]) == 1


@pytest.mark.parametrize("jump", ["day-back", "century"])
def test_a_rollback_after_a_jump_restores_everything(tmp_path: Path, jump: str) -> None:
    case = Case(tmp_path)
    started = case.start().state.id
    case.run(started, reached(StepName.SHIFT))
    case.clock.jump += timedelta(seconds=JUMPS[jump])
    case.service().say(started, "rollback", "ana", "the clock is wrong")
    assert case.run(started).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before
