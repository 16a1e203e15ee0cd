"""Kill the engine at every journal point: the same end, nothing twice, nothing lost."""

from datetime import timedelta
from pathlib import Path

import pytest

from rollout.domain.state import Phase
from tests.integration.engine.harness import PLAN, Case, CrashError

SHORT = (
    PLAN.replace("min_time_before_full: 5m", "min_time_before_full: 1m")
    .replace("duration: 2m", "duration: 1m")
    .replace("ladder: [10, 50, 100]", "ladder: [50, 100]")
)


def _points(folder: Path, text: str) -> list[str]:
    """Every journal point one undisturbed rollout passes, in order."""
    folder.mkdir()
    points: list[str] = []
    case = Case(folder, text)
    case.run(case.start().state.id, checkpoint=points.append)
    return points


@pytest.mark.parametrize(("image", "phase"), [("sim/vllm:2", Phase.COMPLETED), ("sim/vllm:slow", Phase.ROLLED_BACK)])
def test_a_crash_at_every_point_of_one_rollout_changes_nothing(tmp_path: Path, image: str, phase: Phase) -> None:
    """Die at point 1, resume, die at the next one, and so on to the end: each effect is carried out once."""
    case = Case(tmp_path, SHORT.replace("sim/vllm:2", image))
    rollout_id = case.start().state.id
    crashes, alive = 0, True
    while alive and crashes < 3000:
        passed = 0

        def die(_name: str, allowed: int = crashes % 7 + 1) -> None:
            nonlocal passed
            passed += 1
            if passed == allowed:  # now sooner, now later, so that every point is met by some life
                raise CrashError

        try:
            state = case.run(rollout_id, checkpoint=die, limit=100000)
            alive = False
        except CrashError:
            crashes += 1
            case.clock.time += timedelta(seconds=3)  # somebody starts it again
            state = case.store.load(rollout_id).state
            alive = not state.terminal
    assert crashes > 20
    assert state.phase is phase
    _nothing_twice(case)


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_one_crash_at_each_point_and_then_a_resume(tmp_path: Path, part: int) -> None:
    """The generated list, one rollout per point (a quarter of the list in each test; three of them in `make accept`)."""
    points = _points(tmp_path / "reference", SHORT)
    writing = [n for n, name in enumerate(points, 1) if name in ("intent", "acted", "outcome")]
    assert len(writing) > 40
    for number in writing[part::4]:
        folder = tmp_path / str(number)
        folder.mkdir()
        case = Case(folder, SHORT)
        rollout_id = case.start().state.id
        passed = 0

        def die(_name: str, wanted: int = number) -> None:
            nonlocal passed
            passed += 1
            if passed == wanted:
                raise CrashError

        with pytest.raises(CrashError):
            case.run(rollout_id, checkpoint=die)
        state = case.run(rollout_id)
        assert state.phase is Phase.COMPLETED, (number, points[number - 1], case.events[-1][0].text)
        _nothing_twice(case)
        case.store.close()


def _nothing_twice(case: Case) -> None:
    """No deployment or private route was created twice, no target joined twice, and every intent has its outcome."""
    created = [args["name"] for verb, args in case.platform.writes if verb in ("create_deployment", "create_probe_route")]
    assert sorted(created) == sorted(set(created))
    for route in case.platform.routes.values():
        names = [t.deployment for t in route.targets]
        assert sorted(names) == sorted(set(names))
    rollout_id = case.store.list()[0].state.id
    journal = case.store.journal(rollout_id)
    open_intents = 0
    for row in journal:
        open_intents += {"intent": 1, "outcome": -1}.get(row.kind, 0)
        assert open_intents in (0, 1)
    assert open_intents == 0
    assert case.store.verify(rollout_id) == len(journal)
