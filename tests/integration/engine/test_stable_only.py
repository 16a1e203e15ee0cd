"""The emergency without a plan: one side serves alone, or nothing is written. What was there stays in the journal."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.domain.world import Scope, World
from rollout.errors import ExitCode, StableLost
from rollout.plan.model import GPUStack, SecretRef
from rollout.store import Store
from tests.integration.engine.harness import Case, CrashError, reached

AT = GPUStack(server="http://127.0.0.1:30080", management_key=SecretRef(env="M"), inference_key=SecretRef(env="I"))
CHANGES = ("join", "leave", "set_weight", "twin")


def route_of(folder: Path, weights: dict[str, int] | None = None) -> Case:
    """Stable with two others beside it."""
    case = Case(folder)
    for name in ("chat-b", "chat-c"):
        case.platform.deploy(name)
    case.platform.route("chat", weights or {"chat-a": 100, "chat-b": 50, "chat-c": 30}, {"team": "search"})
    return case


def only(case: Case, *stable: str, store: Store | None = None) -> str:
    work = case.service(store=store).stable_only(AT, "chat", stable or ("chat-a",), actor="eve", reason="users suffer")
    return asyncio.run(work).state.id


def go(case: Case, rollout_id: str, checkpoint: Callable[[str], None] | None = None, store: Store | None = None) -> RolloutState:
    service = case.service(checkpoint, store)
    return asyncio.run(service.run(rollout_id, until=lambda s: s.terminal or s.phase in (Phase.HALTED, Phase.HOLDING)))


def weights(case: Case) -> dict[str, int]:
    return {t.deployment: t.weight for t in case.platform.routes["chat"].targets}


def changes(case: Case) -> list[tuple[str, str]]:
    return [(verb, args["deployment"]) for verb, args in case.platform.writes if verb in CHANGES]


def test_the_others_leave_one_at_a_time_and_no_deployment_is_touched(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.COMPLETED, 0), state.hold
    assert weights(case) == {"chat-a": 100}
    assert sorted(changes(case)) == [("leave", "chat-b"), ("leave", "chat-c")]
    assert set(case.platform.deployments) == {"chat-a", "chat-b", "chat-c"}
    assert case.platform.routes["chat"].meta == {"team": "search"}
    assert set(case.platform.routes) == {"chat"}
    found = {t["deployment"]: t["weight"] for t in state.fact("before")["targets"]}
    assert found == {"chat-a": 100, "chat-b": 50, "chat-c": 30}
    assert case.store.verify(state.id) > 5


def test_several_may_stay(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    assert go(case, only(case, "chat-a", "chat-b")).phase is Phase.COMPLETED
    assert weights(case) == {"chat-a": 100, "chat-b": 50}


def test_a_stable_that_had_left_comes_back_before_anything_leaves(tmp_path: Path) -> None:
    case = route_of(tmp_path, {"chat-b": 50, "chat-c": 30})
    state = go(case, only(case))
    assert state.phase is Phase.COMPLETED, state.hold
    assert weights(case) == {"chat-a": 50}
    assert changes(case)[0] == ("join", "chat-a")
    assert set(case.platform.routes) == {"chat"}, "the private route it was asked through is gone"


@pytest.mark.parametrize("beside", [{"chat-b": 0, "chat-c": 0}, {}], ids=["a route without weights", "a route without targets"])
def test_a_stable_comes_back_to_whatever_route_is_left(tmp_path: Path, beside: dict[str, int]) -> None:
    """Weights are all or none; on an emptied route there is nothing to go by."""
    case = route_of(tmp_path)
    case.platform.route("chat", beside, {"team": "search"})
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.COMPLETED, 0), case.store.journal(state.id)[-1].text
    assert weights(case) == {"chat-a": 0 if beside else 100}
    assert changes(case)[0] == ("join", "chat-a")
    assert case.platform.routes["chat"].meta == {"team": "search"}


def test_a_fallback_target_is_not_taken_for_one_that_serves(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    case.platform.routes["chat"].targets[0].extra = {"fallback_status_codes": ["5xx"]}
    before = case.shape()
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.REFUSED)
    assert "chat-a is a fallback target and takes no share" in str(state.fact("why"))
    assert case.shape() == before


@pytest.mark.parametrize(
    ("other", "said"),
    [({"organisation": "search"}, "belongs to organisation search"), ({"namesakes": 1}, "2 routes are called `chat`")],
    ids=["an organisation's", "one of two"],
)
def test_a_route_that_cannot_be_asked_or_told_apart_is_left_alone(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    case = route_of(tmp_path)
    real = case.platform.observe

    async def observe(scope: Scope) -> World:
        world = await real(scope)
        return replace(world, route=replace(world.route, **other) if world.route else None)

    case.platform.observe = observe  # type: ignore[method-assign]
    before = case.shape()
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.REFUSED)
    assert said in str(state.fact("why"))
    assert case.shape() == before


def test_a_share_too_small_to_be_seen_is_asked_through_a_private_route(tmp_path: Path) -> None:
    case = route_of(tmp_path, {"chat-a": 1, "chat-b": 1000000})
    assert go(case, only(case)).phase is Phase.COMPLETED
    assert weights(case) == {"chat-a": 1}
    assert [verb for verb, _ in case.platform.writes].index("create_probe_route") == 0, "asked before anything is written to the route"


def sick(case: Case) -> None:
    case.platform.deployments["chat-a"].healthy = False


def silent(case: Case) -> None:
    """Active, and answers nothing."""
    real = case.platform._do_probe

    def probe(args: dict[str, Any]) -> dict[str, Any]:
        seen = real(args)
        asked = any(t.deployment == "chat-a" for t in case.platform.routes[args["model"]].targets)
        return {**seen, "ok": 0, "models": {}, "errors": ["503"]} if asked else seen

    case.platform._do_probe = probe  # type: ignore[method-assign]


def test_a_parked_stable_is_told_apart_from_a_sick_one(tmp_path: Path) -> None:
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.platform.deployments["chat-a"].spec["replicas"] = 0
    with pytest.raises(StableLost, match="chat-a has 0 replicas, so nothing of it runs: set its replicas in GPUStack"):
        only(case)


@pytest.mark.parametrize("ill", [sick, silent])
def test_a_stable_that_does_not_serve_ends_with_thirteen_and_nothing_is_written(tmp_path: Path, ill: Callable[[Case], None]) -> None:
    case = route_of(tmp_path)
    ill(case)
    before = case.shape()
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.ABORTED, ExitCode.HALTED)
    assert case.shape() == before
    assert {verb for verb, _ in case.platform.writes} <= {"create_probe_route", "delete_probe_route"}
    case.platform.deployments["chat-a"].healthy = True
    case.platform.__dict__.pop("_do_probe", None)
    assert go(case, only(case)).phase is Phase.COMPLETED, "it can be said again"


def test_stable_that_dies_in_the_middle_halts_and_the_same_command_goes_on(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    real = case.platform._do_leave

    def leave(args: dict[str, Any]) -> dict[str, Any]:
        done = real(args)
        sick(case)
        case.platform._do_leave = real  # type: ignore[method-assign]
        return done

    case.platform._do_leave = leave  # type: ignore[method-assign]
    rollout_id = only(case)
    state = go(case, rollout_id)
    assert state.phase is Phase.HALTED
    assert len(weights(case)) == 2
    case.platform.deployments["chat-a"].healthy = True
    assert only(case) == rollout_id
    assert go(case, rollout_id).phase is Phase.COMPLETED
    assert weights(case) == {"chat-a": 100}


def test_what_comes_back_is_a_fight_and_a_person_is_asked(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    real = case.platform._do_leave

    def leave(args: dict[str, Any]) -> dict[str, Any]:
        done = real(args)
        case.platform._do_set_weight({"route": "chat", "deployment": args["deployment"], "weight": 7})
        return done

    case.platform._do_leave = leave  # type: ignore[method-assign]
    state = go(case, only(case))
    assert state.hold is not None
    assert "somebody puts it back" in state.hold.detail


@pytest.mark.parametrize(("stable", "said"), [("chat-x", "no deployment is named chat-x"), ("chat-a", "served route chat already")])
def test_nothing_to_do_and_nothing_possible(tmp_path: Path, stable: str, said: str) -> None:
    case = Case(tmp_path)
    state = go(case, only(case, stable))
    assert state.exit_code == (ExitCode.DONE if stable == "chat-a" else ExitCode.REFUSED)
    assert case.platform.writes == []
    assert any(said in row.text for row in case.store.journal(state.id))


@pytest.mark.parametrize("until", [reached(StepName.CANARY, rung=0), reached(StepName.CLEANUP)], ids=["rung", "window"])
@pytest.mark.parametrize("same", [True, False], ids=["same store", "other store"])
def test_a_rollout_on_the_route_is_fenced_off_and_what_it_left_is_named(tmp_path: Path, until: Any, same: bool) -> None:
    case = Case(tmp_path)
    former = case.start().state.id
    case.run(former, until=until)
    store = case.store if same else Store.open(str(tmp_path / "other.db"), now=case.clock.now)
    taken = only(case, store=store)
    if not same:
        work = case.service(store=store).run(taken, until=lambda s: s.fact("claimed") is not None)
        assert asyncio.run(work).fact("claimed")
        case.run(former)
    state = go(case, taken, store=store)
    assert state.phase is Phase.COMPLETED, state.hold
    assert case.store.load(former).state.exit_code == ExitCode.FENCED_OFF
    assert weights(case) == {"chat-a": 100}
    assert f"chat-a-r{former[:8]}" in state.fact("rest")
    assert case.platform.routes["chat"].meta == {"team": "search"}


def test_a_rollout_of_this_store_stays_when_stable_cannot_serve(tmp_path: Path) -> None:
    case = Case(tmp_path)
    former = case.start().state.id
    case.run(former, until=reached(StepName.CANARY, rung=0))
    count = len(case.platform.writes)
    sick(case)
    with pytest.raises(StableLost) as error:
        only(case)
    assert error.value.exit_code == ExitCode.HALTED
    assert len(case.platform.writes) == count
    assert not case.store.load(former).state.terminal


def test_a_person_may_stop_it(tmp_path: Path) -> None:
    case = route_of(tmp_path)
    rollout_id = only(case)
    asyncio.run(case.service().run(rollout_id, until=lambda s: any(k.startswith("left.") for k in s.facts)))
    case.service().say(rollout_id, "abort", "eve", "enough")
    state = go(case, rollout_id)
    assert state.phase is Phase.ABORTED
    assert len(weights(case)) == 2
    assert case.platform.routes["chat"].meta == {"team": "search"}


@pytest.mark.parametrize("life", [1, 2, 3])
def test_killed_again_and_again_it_ends_the_same(tmp_path: Path, life: int) -> None:
    case, state = route_of(tmp_path, {"chat-b": 50, "chat-c": 30}), None
    rollout_id = only(case)
    for lives in range(500):
        passed = 0

        def die(_name: str, allowed: int = lives % 7 + life) -> None:
            nonlocal passed
            passed += 1
            if passed == allowed:
                raise CrashError

        try:
            state = go(case, rollout_id, die)
            break
        except CrashError:
            case.clock.time += timedelta(seconds=3)
            state = case.store.load(rollout_id).state
            if state.terminal:
                break
            assert only(case) == rollout_id
    assert state is not None
    assert state.phase is Phase.COMPLETED
    assert weights(case) == {"chat-a": 50}
    assert changes(case)[0] == ("join", "chat-a")
    assert sorted(changes(case)) == [("join", "chat-a"), ("leave", "chat-b"), ("leave", "chat-c")]
    assert set(case.platform.routes) == {"chat"}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("marker", [{}, {"id": "abc"}, {"id": "abc", "receipts": "x"}, {"id": "z" * 9000, "receipts": {"pairs": [{}]}}])
def test_a_marker_that_nobody_can_read_does_not_hold_the_route_for_ever(tmp_path: Path, marker: dict[str, Any], alone: bool) -> None:
    case = route_of(tmp_path, {"chat-a": 100} if alone else None)
    case.platform.routes["chat"].meta["rollout"] = marker
    state = go(case, only(case))
    assert (state.phase, state.exit_code) == (Phase.COMPLETED, 0), state.hold
    assert weights(case) == {"chat-a": 100}
    assert case.platform.routes["chat"].meta == {"team": "search"}
