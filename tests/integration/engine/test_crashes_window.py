"""Kill the engine at every journal point of a parked window, and of the way back from it: the same end, nothing twice, nothing lost."""

import copy
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rollout.domain.state import Phase, RolloutState
from rollout.store import Store
from tests.integration.engine.harness import PLAN, Case, CrashError

TEXT = (
    PLAN.replace("min_time_before_full: 5m", "min_time_before_full: 1m")
    .replace("ladder: [10, 50, 100]", "ladder: [50, 100]")
    .replace("{duration: 2m}", "{duration: 1h, keep: parked, warm: 10s, approval: none}")
    .replace('unit: backend_image, to: {image_name: "sim/vllm:2"}', "unit: model_revision, to: {local_path: /models/chat-2}")
    .replace("cleanup: {approval: none}", "cleanup: {approval: none, files: delete}")
)
MOMENTS = ("intent", "acted", "outcome", "written")
Until = Callable[[RolloutState], bool]


def _parked(state: RolloutState) -> bool:
    return state.fact("parked.chat-a") is not None


@pytest.fixture(autouse=True)
def longer_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody types here, and an hour passes in each life."""
    monkeypatch.setattr("rollout.engine.run.LISTEN", 60.0)


def _begun(folder: Path, way: str) -> tuple[Case, str]:
    """In the window: at its first moment, or parked."""
    folder.mkdir()
    case = Case(folder, TEXT)
    case.platform.start_delay = 20.0
    rollout_id = case.start().state.id
    case.run(rollout_id, until=_parked if way == "back" else lambda s: s.fact("window") is not None)
    return case, rollout_id


def _again(one: Case, folder: Path) -> Case:
    """The same instant of the same rollout, to live on from it differently. The first one's store is closed."""
    shutil.copytree(one.folder, folder)
    case = copy.copy(one)
    case.platform, case.clock = copy.deepcopy((one.platform, one.clock))
    case.platform.own_time = lambda: case.clock.time.timestamp()  # a copied function still reads the first one's clock
    case.platform.server_time = lambda: case.clock.time
    case.folder, case.events = folder, []
    case.store = Store.open(str(folder / "rollout.db"), now=case.clock.now)
    return case


def _forward(case: Case, rollout_id: str, checkpoint: Callable[[str], None] | None = None) -> RolloutState:
    return case.run(rollout_id, checkpoint=checkpoint, limit=100000)


def _back(case: Case, rollout_id: str, checkpoint: Callable[[str], None] | None = None) -> RolloutState:
    if case.store.load(rollout_id).state.undo is None:
        case.service().say(rollout_id, "rollback", "tester", "x")
    return _forward(case, rollout_id, checkpoint)


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_crash_at_every_point_in_turn_changes_nothing(tmp_path: Path, way: str) -> None:
    """Die at the first point, resume, die at the next one, and so on: parked, or back from it, once."""
    case, rollout_id = _begun(tmp_path / way, way)
    going, crashes, state = _forward if way == "forward" else _back, 0, None
    while state is None:
        passed = 0

        def die(_name: str, allowed: int = crashes % 7 + 1) -> None:
            nonlocal passed
            passed += 1
            if passed == allowed:
                raise CrashError

        try:
            state = going(case, rollout_id, die)
        except CrashError:
            crashes += 1
            assert crashes < 4000
            case.clock.time += timedelta(seconds=3)  # somebody starts it again
            found = case.store.load(rollout_id).state
            state = found if found.terminal else None
    assert crashes > 10
    _ended(case, rollout_id, state, way)


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("way", ["forward", "back"])
def test_one_crash_at_each_point_and_then_a_resume(tmp_path: Path, way: str, part: int) -> None:
    """The generated list, one window per point (a quarter of the list in each test; three of them in `make accept`)."""
    going = _forward if way == "forward" else _back
    one, rollout_id = _begun(tmp_path / "one", way)
    one.store.close()
    points: list[str] = []
    case = _again(one, tmp_path / "reference")
    going(case, rollout_id, points.append)
    case.store.close()
    writing = [n for n, name in enumerate(points, 1) if name in MOMENTS]
    assert len(writing) > 20
    for number in writing[part::4]:
        case = _again(one, tmp_path / f"{number}")
        passed = 0

        def die(_name: str, wanted: int = number) -> None:
            nonlocal passed
            passed += 1
            if passed == wanted:
                raise CrashError

        with pytest.raises(CrashError):
            going(case, rollout_id, die)
        _ended(case, rollout_id, going(case, rollout_id), way)
        case.store.close()


def _ended(case: Case, rollout_id: str, state: RolloutState, way: str) -> None:
    """The end that was asked for; scaled down once, up once, one file deleted; every intent has its outcome."""
    scaled = [args["replicas"] for verb, args in case.platform.writes if verb == "scale"]
    deleted = [args["paths"] for verb, args in case.platform.writes if verb == "delete_file"]
    if way == "forward":
        assert state.phase is Phase.COMPLETED, case.events[-1][0].text
        assert (scaled, deleted) == ([0], [["/models/chat"]])
    else:
        assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
        assert (scaled, deleted) == ([0, 1], [])
        assert case.shape() == case.before
    journal = case.store.journal(rollout_id)
    kinds = [row.kind for row in journal if row.kind in ("intent", "outcome")]
    assert kinds == ["intent", "outcome"] * (len(kinds) // 2)
    assert case.store.verify(rollout_id) == len(journal)
