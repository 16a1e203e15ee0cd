"""A route whose owner is gone is claimed with an empty store: then back, or on from what the server shows."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.engine.service import Service
from rollout.errors import ExitCode, NotFound, PreflightError, RollbackImpossible, UsageError
from rollout.plan.load import LoadedPlan
from rollout.plan.model import GPUStack, SecretRef
from rollout.store import Store
from tests.integration.engine.harness import PLAN, Case, CrashError, reached

QUICK = PLAN.replace("min_time_before_full: 5m", "min_time_before_full: 1m").replace("duration: 2m", "duration: 1m")
TWO = QUICK.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]")
SERVER = "http://127.0.0.1:30080"
AT = GPUStack(server=SERVER, management_key=SecretRef(env="M"), inference_key=SecretRef(env="I"))
Until = Callable[[RolloutState], bool]


def forever(_state: RolloutState) -> bool:
    return False


def test_a_takeover_that_is_gone_on_with_is_reached_as_it_is_said_now(tmp_path: Path) -> None:
    """The keys that were named at first may be why it was cut off."""
    case = Case(tmp_path, QUICK)
    case.run(case.start().state.id, until=reached(StepName.CANARY, rung=0))
    other, elsewhere = Other(case), AT.model_copy(update={"management_key": SecretRef(file="/run/keys/m")})
    taken = other.take()
    assert asyncio.run(other.service().takeover(elsewhere, "chat", None, actor="eve", reason="again")).state.id == taken
    assert other.store.load(taken).state.fact("gpustack") == elsewhere.model_dump(mode="json")
    assert other.store.verify(taken) == 2
    other.run(taken, until=lambda s: s.hold is not None)
    other.service().say(taken, "rollback", "eve", "back")
    assert other.run(taken).phase is Phase.ROLLED_BACK


class Other:
    """Another machine with a store of its own, on the same platform."""

    def __init__(self, case: Case, name: str = "other.db") -> None:
        self.case = case
        self.store = Store.open(str(case.folder / name), now=case.clock.now)

    def service(self, checkpoint: Callable[[str], None] | None = None) -> Service:
        return self.case.service(checkpoint, self.store)

    def take(self, plan: LoadedPlan | None = None) -> str:
        return asyncio.run(self.service().takeover(AT, "chat", plan, actor="eve", reason="the owner is gone")).state.id

    def run(self, rollout_id: str, until: Until = forever, checkpoint: Callable[[str], None] | None = None) -> RolloutState:
        return asyncio.run(self.service(checkpoint).run(rollout_id, until=until))


def held(state: RolloutState) -> bool:
    return state.phase is Phase.HOLDING


def left(folder: Path, until: Until, text: str = QUICK) -> tuple[Case, str]:
    """A rollout that its owner left there."""
    case = Case(folder, text)
    if text == TWO:
        case.platform.deploy("chat-b")
        case.platform.route("chat", {"chat-a": 100, "chat-b": 100}, {"team": "search"})
    case.before = case.shape()
    rollout_id = case.start().state.id
    case.run(rollout_id, until=until)
    return case, rollout_id


def canaries(case: Case, rollout_id: str) -> set[str]:
    return {n for n in case.platform.deployments if n.endswith(rollout_id[:8])}


WHERE = [
    pytest.param(reached(StepName.STAGE), id="staging"),
    pytest.param(reached(StepName.CANARY), id="dark"),
    pytest.param(reached(StepName.CANARY, rung=0), id="first rung"),
    pytest.param(reached(StepName.SHIFT, rung=1), id="second rung"),
    pytest.param(reached(StepName.CLEANUP), id="window"),
]


@pytest.mark.parametrize("until", WHERE)
def test_without_a_plan_it_holds_and_a_rollback_restores_the_snapshot(tmp_path: Path, until: Until) -> None:
    """The former owner ends with 31 and has written nothing more; the new one needed nothing of its store."""
    case, former = left(tmp_path, until)
    other = Other(case)
    taken = other.take()
    state = other.run(taken, until=held)
    assert state.hold is not None
    assert state.hold.reason == "taken_over"
    count = len(case.platform.writes)
    assert case.run(former).exit_code == ExitCode.FENCED_OFF
    assert len(case.platform.writes) == count
    other.service().say(taken, "rollback", "eve", "back")
    assert other.run(taken).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


@pytest.mark.parametrize("until", WHERE)
def test_with_the_plan_it_goes_on_and_completes(tmp_path: Path, until: Until) -> None:
    """Names stay those of the recorded rollout: nothing is made twice, and the route is given back."""
    case, former = left(tmp_path, until)
    other = Other(case)
    taken = other.take(case.loaded())
    other.run(taken, until=lambda s: s.fact("standing") is not None)
    assert case.run(former).exit_code == ExitCode.FENCED_OFF
    state = other.run(taken)
    assert state.phase is Phase.COMPLETED, (state.phase, state.hold)
    assert canaries(case, former) == {f"chat-a-r{former[:8]}"}
    assert set(case.platform.deployments) == canaries(case, former)
    assert set(case.platform.routes) == {"chat"}
    assert case.platform.routes["chat"].meta == {"team": "search"}


def test_with_two_targets_it_goes_on_at_the_second(tmp_path: Path) -> None:
    case, former = left(tmp_path, lambda s: s.target == 1 and s.fact("1.rung.0.proved") is not None, TWO)
    other = Other(case)
    state = other.run(other.take(case.loaded()), until=lambda s: s.step is StepName.CANARY)
    assert state.target == 1
    assert other.run(state.id).phase is Phase.COMPLETED
    assert set(case.platform.deployments) == canaries(case, former)
    assert len(case.platform.deployments) == 2


def test_first_without_and_then_with_the_plan(tmp_path: Path) -> None:
    """The first takeover gives way to the second in the same store."""
    case, _ = left(tmp_path, reached(StepName.CANARY, rung=0))
    other = Other(case)
    first = other.take()
    other.run(first, until=held)
    second = other.take(case.loaded())
    assert second != first
    assert other.store.load(first).state.exit_code == ExitCode.FENCED_OFF
    assert other.run(second).phase is Phase.COMPLETED
    assert other.store.verify(first) > 1


def test_a_takeover_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    case, _ = left(tmp_path, reached(StepName.CANARY, rung=0))
    other = Other(case)
    assert other.take() == other.take()
    assert other.take(case.loaded()) == other.take(case.loaded())


def test_our_own_rollout_is_not_taken_over(tmp_path: Path) -> None:
    case, former = left(tmp_path, reached(StepName.CANARY, rung=0))
    with pytest.raises(UsageError, match=f"rollout {former} of this very store"):
        asyncio.run(case.service().takeover(AT, "chat", None, actor="a", reason="r"))


@pytest.mark.parametrize("marker", [{}, {"id": "abc"}, {"id": "abc", "receipts": []}, {"id": "z" * 9000, "receipts": {"pairs": [{}]}}])
def test_a_marker_that_nobody_can_read_is_told_with_the_way_that_is_left(tmp_path: Path, marker: dict[str, Any]) -> None:
    case = Case(tmp_path)
    case.platform.routes["chat"].meta["rollout"] = marker
    other = Other(case)
    service = other.service()
    back = service.rollback_route(AT.server, "chat", lambda: service.connect(AT), "eve", "the store is gone", lambda *_: None)
    for work in (other.take, lambda: asyncio.run(back)):
        with pytest.raises(RollbackImpossible, match="holds no receipts that this release can read") as caught:
            work()
        assert "`rollout stable-only chat --stable NAME" in caught.value.hint
        assert len(caught.value.message) < 200
    assert case.platform.writes == []


def test_a_free_route_has_nothing_to_take(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with pytest.raises(NotFound, match="carries no marker"):
        Other(case).take()
    case.platform.routes.clear()
    with pytest.raises(NotFound, match="does not exist"):
        Other(case).take()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sim/vllm:2", "sim/vllm:3", "is not the canary of this plan"),
        ("{deployment: chat-a}", "{deployment: chat-x}", "recorded is chat-a"),
    ],
)
def test_another_plan_is_refused_before_anything_is_written(tmp_path: Path, old: str, new: str, said: str) -> None:
    case, former = left(tmp_path, reached(StepName.CANARY, rung=0))
    count, case.text = len(case.platform.writes), case.text.replace(old, new)
    with pytest.raises(PreflightError) as error:
        Other(case).take(case.loaded())
    assert said in error.value.why
    assert len(case.platform.writes) == count
    assert not case.store.load(former).state.terminal


def test_two_takeovers_have_one_winner(tmp_path: Path) -> None:
    """The marker that stands after the wait wins; the other one has written nothing else."""
    case, _ = left(tmp_path, reached(StepName.CANARY, rung=0))
    first, second = Other(case, "one.db"), Other(case, "two.db")
    one, two = first.take(), second.take()
    first.run(one, until=lambda s: s.fact("claim") is not None)
    assert second.run(two, until=held).phase is Phase.HOLDING
    assert first.run(one).exit_code in (ExitCode.ROUTE_TAKEN, ExitCode.FENCED_OFF)


def test_a_stable_only_that_lost_its_owner_is_taken_over_and_given_back(tmp_path: Path) -> None:
    """Its marker has no pairs: there is nothing to undo but the marker."""
    case = Case(tmp_path)
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 50}, {"team": "search"})
    only = asyncio.run(case.service().stable_only(AT, "chat", ["chat-a"], actor="a", reason="r")).state.id
    case.run(only, until=lambda s: s.fact("claimed") is not None)
    other = Other(case)
    taken = other.take()
    assert other.run(taken, until=held).phase is Phase.HOLDING
    other.service().say(taken, "rollback", "eve", "back")
    assert other.run(taken).phase is Phase.ROLLED_BACK
    assert case.platform.routes["chat"].meta == {"team": "search"}


@pytest.mark.parametrize("plan", [False, True])
def test_killed_at_every_point_it_ends_the_same(tmp_path: Path, plan: bool) -> None:
    """A life of a few journal points each; between them the same command again."""
    case, _ = left(tmp_path, reached(StepName.SHIFT, rung=1))
    other, state = Other(case), None
    loaded = case.loaded() if plan else None
    taken = other.take(loaded)
    end: Until = forever if plan else held
    for lives in range(3000):
        passed = 0

        def die(_name: str, allowed: int = lives % 5 + 4) -> None:
            nonlocal passed
            passed += 1
            if passed == allowed:
                raise CrashError

        try:
            state = other.run(taken, until=end, checkpoint=die)
            break
        except CrashError:
            case.clock.time += timedelta(seconds=3)
            state = other.store.load(taken).state
            if state.terminal or end(state):
                break
            assert other.take(loaded) == taken
    assert state is not None
    assert state.phase is (Phase.COMPLETED if plan else Phase.HOLDING)
    marks = [verb for verb, args in case.platform.writes if verb == "mark_route" and args.get("takeover")]
    assert len(marks) == 1


PARKED = QUICK.replace("{duration: 1m}", "{duration: 1h, keep: parked, warm: 10m, approval: none}")


def parked(folder: Path) -> tuple[Case, str]:
    """Its owner left when stable had been scaled to nothing."""
    return left(folder, lambda s: s.fact("parked.chat-a") is not None, PARKED)


def test_a_parked_stable_is_loaded_by_whoever_took_the_route(tmp_path: Path) -> None:
    """Its replicas are among what the marker knows: the way back begins with them."""
    case, _ = parked(tmp_path)
    assert case.platform.deployments["chat-a"].spec["replicas"] == 0
    other = Other(case)
    taken = other.take()
    other.run(taken, until=held)
    other.service().say(taken, "rollback", "eve", "back")
    written = len(case.platform.writes)
    assert other.run(taken).phase is Phase.ROLLED_BACK
    moves = [verb for verb, _ in case.platform.writes[written:] if verb in ("scale", "join", "leave")]
    assert moves == ["scale", "join", "leave"]
    assert case.shape() == case.before


def test_a_parked_rollout_completes_under_another_owner_with_its_plan(tmp_path: Path) -> None:
    case, former = parked(tmp_path)
    other = Other(case)
    state = other.run(other.take(case.loaded()))
    assert state.phase is Phase.COMPLETED, (state.phase, state.hold)
    assert set(case.platform.deployments) == canaries(case, former)


def test_a_stable_weight_that_somebody_changed_meanwhile_holds_until_it_is_back(tmp_path: Path) -> None:
    """33 beside 55 is not the 25 % that it is called: nothing is judged, and nothing is written."""
    case = Case(tmp_path, QUICK)
    case.run(case.start().state.id, until=reached(StepName.CANARY, rung=0))
    stable = next(t for t in case.platform.routes["chat"].targets if t.deployment == "chat-a")
    stable.weight, count = 55, len(case.platform.writes)
    other = Other(case)
    taken = other.take(case.loaded())
    state = other.run(taken, until=lambda s: s.hold is not None)
    assert state.hold is not None
    assert (state.hold.reason, "chat-a has weight 55, and 100 is its own" in state.hold.detail) == ("drift", True)
    assert [verb for verb, _ in case.platform.writes[count:]] == ["mark_route"]
    stable.weight = 100
    other.service().say(taken, "resume", "eve", "set back")
    assert other.run(taken, until=lambda s: s.step is StepName.CANARY).hold is None
