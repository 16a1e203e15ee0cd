"""A canary that a person made by hand is taken over at the rung that its weight means, and left alone on the way back."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.errors import ExitCode, RouteTaken
from tests.integration.engine.harness import PLAN, Case, CrashError, reached

HAND = "chat-by-hand"
QUICK = PLAN.replace("min_time_before_full: 5m", "min_time_before_full: 1m").replace("duration: 2m", "duration: 1m")


def case_of(folder: Path, weight: int = 100, image: str = "sim/vllm:2", text: str = QUICK, stable: int = 100) -> Case:
    """A route with stable, and beside it a canary by hand with `weight`."""
    case = Case(folder, text)
    case.platform.deploy(HAND, image)
    case.platform.route("chat", {"chat-a": stable, HAND: weight}, {"team": "search"})
    case.before = case.shape()
    return case


def adopt(case: Case, *, delete: bool = False, canary: str = HAND) -> str:
    return case.service().adopt(case.loaded(), canary, delete=delete, actor="ana", reason="begun by hand").state.id


def weights(case: Case) -> dict[str, int]:
    return {t.deployment: t.weight for t in case.platform.routes["chat"].targets}


def writes(case: Case) -> list[tuple[str, Any]]:
    return [(verb, args.get("weight")) for verb, args in case.platform.writes if verb in ("join", "set_weight", "leave", "twin")]


def test_a_canary_that_asks_for_another_adapter_is_refused(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    case.platform.routes["chat"].targets[0].extra = {"overridden_model_name": "chat-a:poet"}
    state = case.run(adopt(case))
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.REFUSED)
    assert f"target `{HAND}` does not ask for the same adapter as `chat-a`: correct its `overridden_model_name`" in state.fact("findings")


@pytest.mark.parametrize(
    ("weight", "rung", "becomes"),
    [
        pytest.param(11, 0, 11, id="on the first rung"),
        pytest.param(100, 1, 100, id="on the second rung"),
        pytest.param(40, 0, 11, id="between two rungs: lowered"),
        pytest.param(300, 1, 100, id="above the ladder: lowered"),
        pytest.param(2, 0, 11, id="below the ladder: the first rung"),
    ],
)
def test_it_goes_on_at_the_rung_that_the_weight_means_and_completes(tmp_path: Path, weight: int, rung: int, becomes: int) -> None:
    """No rung under it is climbed again, nothing is raised that was not judged, and the hand-made canary becomes stable."""
    case = case_of(tmp_path, weight)
    rollout_id = adopt(case)
    state = case.run(rollout_id, until=lambda s: s.fact(f"0.rung.{rung}.proved") is not None)
    assert weights(case) == {"chat-a": 100, HAND: becomes}, case.events[-1][0].text
    assert [s for s in ("0.rung.0.written", "0.rung.1.written") if state.fact(s)] == [f"0.rung.{rung}.written"]
    state = case.run(rollout_id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    assert weights(case) == {HAND: 100}
    assert set(case.platform.deployments) == {HAND}
    assert set(case.platform.routes) == {"chat"}
    assert case.platform.routes["chat"].meta == {"team": "search"}
    assert "create_deployment" not in [verb for verb, _ in case.platform.writes], "it runs already, and staging is behind it"


@pytest.mark.parametrize("delete", [False, True])
def test_going_back_leaves_the_deployment_that_a_person_made_unless_told_otherwise(tmp_path: Path, delete: bool) -> None:
    case = case_of(tmp_path, 11)
    rollout_id = adopt(case, delete=delete)
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.service().say(rollout_id, "rollback", "ana", "because")
    state = case.run(rollout_id)
    assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
    assert weights(case) == {"chat-a": 100}
    assert (HAND in case.platform.deployments) is not delete
    assert set(case.platform.routes) == {"chat"}
    assert case.platform.routes["chat"].meta == {"team": "search"}
    assert (HAND in case.events[-1][0].text) is not delete, "what stays is said"


def test_going_back_from_a_hundred_percent_puts_stable_back(tmp_path: Path) -> None:
    case = case_of(tmp_path, 100)
    rollout_id = adopt(case)
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    assert weights(case) == {HAND: 100}
    case.service().say(rollout_id, "rollback", "ana", "because")
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert weights(case) == {"chat-a": 100}
    assert HAND in case.platform.deployments


def test_a_bad_canary_leaves_the_route_by_itself(tmp_path: Path) -> None:
    case = case_of(tmp_path, 100, "sim/vllm:failing", QUICK.replace("sim/vllm:2", "sim/vllm:failing"))
    state = case.run(adopt(case))
    assert state.phase is Phase.ROLLED_BACK, case.events[-1][0].text
    assert weights(case) == {"chat-a": 100}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"image": "sim/vllm:3"}, "image_name: the plan means sim/vllm:2, found sim/vllm:3", id="another image"),
        pytest.param({"spec": {"env": {"X": "s3cr3t"}}}, "env: differs in X (values are not shown)", id="a second unit"),
        pytest.param({"canary": "chat-a"}, "--canary names the new side", id="stable itself"),
        pytest.param({"canary": "nobody"}, "deployment `nobody` does not exist", id="no deployment"),
        pytest.param({"weight": None}, "nothing is half done", id="no target"),
        pytest.param({"ill": True}, "is not healthy", id="a sick canary"),
        pytest.param({"alone": True}, "there is no control else", id="already at 100 %"),
        pytest.param({"extra": {"fallback_status_codes": ["5xx"]}}, "is a fallback (for 5xx) and would stay one", id="a fallback target"),
        pytest.param(
            {"stable": 3, "weight": 1, "text": QUICK.replace("[10, 50, 100]", "[25, 45, 50, 100]")}, "rung 45.00%", id="too coarse"
        ),
    ],
)
def test_what_is_not_the_plan_is_refused_and_nothing_is_written(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    case = case_of(
        tmp_path, change.get("weight") or 11, change.get("image", "sim/vllm:2"), change.get("text", QUICK), change.get("stable", 100)
    )
    case.platform.deployments[HAND].spec.update(change.get("spec", {}))
    case.platform.deployments[HAND].healthy = "ill" not in change
    if "weight" in change and change["weight"] is None:
        case.platform.route("chat", {"chat-a": 100})
    if "alone" in change:
        case.platform.route("chat", {HAND: 100})
    case.platform.routes["chat"].targets[-1].extra.update(change.get("extra", {}))
    state = case.run(adopt(case, canary=change.get("canary", HAND)))
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.REFUSED), case.events[-1][0].text
    assert said in case.events[-1][0].text
    assert len(state.fact("findings")) == 1, "nothing is said about the route as it would be without the canary"
    assert "s3cr3t" not in str([e.model_dump() for e, _ in case.events])
    assert case.platform.writes == []


def test_sizing_may_differ(tmp_path: Path) -> None:
    """A hand-made canary of two replicas: no second change, only a confounder."""
    case = case_of(tmp_path, 11)
    case.platform.deployments[HAND].spec["replicas"] = 2
    state = case.run(adopt(case), until=reached(StepName.CANARY, rung=0))
    assert state.phase is Phase.RUNNING, case.events[-1][0].text
    assert ["replicas", 1, 2] in state.fact("diff")[HAND]


def test_the_canary_of_another_target_is_recognised(tmp_path: Path) -> None:
    """With two stable targets the plan says which one is half done by putting it first."""
    case = case_of(tmp_path, 11, text=QUICK.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.deploy("chat-b")
    case.platform.deployments["chat-a"].spec["env"] = {"A": "1"}
    case.platform.route("chat", {"chat-a": 100, "chat-b": 100, HAND: 11})
    state = case.run(adopt(case))
    assert state.exit_code == ExitCode.REFUSED
    assert "canary of `chat-b`: put that first" in case.events[-1][0].text


def test_two_targets_one_begun_by_hand(tmp_path: Path) -> None:
    """The second target gets a canary of our own, as ever."""
    case = case_of(tmp_path, 11, text=QUICK.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 100, HAND: 11}, {"team": "search"})
    rollout_id = adopt(case)
    state = case.run(rollout_id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    assert set(weights(case)) == {HAND, f"chat-b-r{rollout_id[:8]}"}


def test_the_same_adoption_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    case = case_of(tmp_path, 11)
    assert adopt(case) == adopt(case)
    with pytest.raises(RouteTaken, match="does not adopt"):
        adopt(case, canary="another")


def test_a_route_that_is_held_is_not_adopted(tmp_path: Path) -> None:
    case = case_of(tmp_path, 11)
    case.platform.routes["chat"].meta["rollout"] = {"id": "x", "nonce": "n", "store": "s", "expires": "?"}
    state = case.run(adopt(case))
    assert state.exit_code == ExitCode.ROUTE_TAKEN
    assert case.platform.writes == []


@pytest.mark.parametrize("life", [2, 5])
def test_killed_again_and_again_it_ends_the_same(tmp_path: Path, life: int) -> None:
    """Every life passes a few journal points more than the one before: the same writes as without a crash."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    calm, case = case_of(tmp_path / "a", 40), case_of(tmp_path / "b", 40)
    assert calm.run(adopt(calm)).phase is Phase.COMPLETED
    rollout_id, state = adopt(case), None
    for lives in range(3000):
        passed = 0

        def die(_name: str, allowed: int = lives % 5 + life) -> None:
            nonlocal passed
            passed += 1
            if passed == allowed:
                raise CrashError

        try:
            assert adopt(case) == rollout_id
            state = case.run(rollout_id, checkpoint=die, limit=100000)
            break
        except CrashError:
            case.clock.time += timedelta(seconds=3)  # somebody starts it again
            state = case.store.load(rollout_id).state
            if state.terminal:
                break
    assert isinstance(state, RolloutState)
    assert state.phase is Phase.COMPLETED
    assert writes(case) == writes(calm)
    assert case.store.verify(rollout_id) > 20
