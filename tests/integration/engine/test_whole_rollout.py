"""The main stories, whole, in memory."""

from pathlib import Path

import pytest

from rollout.domain.state import Phase, StepName
from tests.integration.engine.harness import PLAN, Case, reached


def test_a_healthy_canary_completes_and_replaces_stable(tmp_path: Path) -> None:
    """Six steps, in order; afterwards only the new deployment is left, with the route's meta as it was."""
    case = Case(tmp_path)
    started = case.start()
    state = case.run(started.state.id)
    assert state.phase is Phase.COMPLETED, (state.phase, case.events[-1][0].text)
    assert state.exit_code == 0
    assert [t.deployment for t in case.platform.routes["chat"].targets] == [f"chat-a-r{state.id[:8]}"]
    assert set(case.platform.deployments) == {f"chat-a-r{state.id[:8]}"}
    assert set(case.platform.routes) == {"chat"}
    assert case.platform.routes["chat"].meta == {"team": "search"}
    steps = [e.data["step"] for e, _ in case.events if e.kind == "step"]
    assert steps == ["stage", "attach", "canary", "shift", "cleanup"]
    assert case.store.verify(state.id) > 20


def test_the_same_command_after_the_end_has_nothing_to_do(tmp_path: Path) -> None:
    """A job that is run again, or was killed in its last moment, begins no second rollout; another plan does."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    assert case.run(rollout_id).phase is Phase.COMPLETED
    written = len(case.platform.writes)
    assert case.start().state.id == rollout_id
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert len(case.platform.writes) == written
    case.text = case.text.replace("sim/vllm:2", "sim/vllm:3")
    assert case.start().state.id != rollout_id


@pytest.mark.parametrize("image", ["sim/vllm:slow", "sim/vllm:failing"])
def test_a_bad_canary_is_rolled_back_to_the_snapshot(tmp_path: Path, image: str) -> None:
    """TTFT x 2, or 30 % errors: a FAIL, and everything is as it was found."""
    case = Case(tmp_path, PLAN.replace("sim/vllm:2", image))
    state = case.run(case.start().state.id)
    assert state.phase is Phase.ROLLED_BACK, (state.phase, case.events[-1][0].text)
    assert state.exit_code == 10
    assert case.shape() == case.before


@pytest.mark.parametrize("verb", ["abort", "rollback"])
@pytest.mark.parametrize(
    ("step", "rung"),
    [
        ("declare", None),
        ("stage", None),
        ("attach", None),
        ("canary", None),
        ("canary", 0),
        ("shift", None),
        ("shift", 1),
        ("cleanup", None),
    ],
)
def test_going_back_from_every_step_restores_the_snapshot(tmp_path: Path, verb: str, step: str, rung: int | None) -> None:
    """Abort until promoted, rollback until the window ends: the same shape as before, and the right last word."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName(step), rung=rung))
    said = "rollback" if step == "cleanup" else verb
    case.service().say(rollout_id, said, "tester", "because")
    state = case.run(rollout_id)
    assert state.phase is (Phase.ABORTED if said == "abort" else Phase.ROLLED_BACK), case.events[-1][0].text
    assert case.shape() == case.before


def test_every_rung_is_climbed_once_and_judged_on_its_own_share(tmp_path: Path) -> None:
    """A rich ladder of five rungs: the windows' rungs only rise, and each expects the share that was written."""
    text = PLAN.replace("mode: thin", "mode: rich").replace("[10, 50, 100]", "[5, 10, 25, 50, 100]")
    case = Case(tmp_path, text)
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    windows = [row.data["window"] for row in case.store.journal(state.id) if "window" in row.data]
    rungs = [w["rung"] for w in windows]
    assert rungs == sorted(rungs)
    assert set(rungs) == {0, 1, 2, 3}
    for w in windows:
        canary, total = w["share_counts"]
        assert abs(canary / total - w["expected_share"]) < 0.05
    verdict = state.fact("0.judge")["verdict"]
    assert verdict["kind"] == "pass"
