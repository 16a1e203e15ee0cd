"""What stops a rollout, and what lets it go on: gates, pause, drift, lost stable, memory, inconclusive, two targets, takeover."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from rollout.domain.state import Event, Phase, RolloutState, StepName
from rollout.domain.taken import goes_on
from rollout.engine.service import Connected
from rollout.errors import RollbackImpossible, RouteTaken, UsageError
from rollout.store import Owner, Store
from tests.integration.engine.harness import PLAN, Case, CrashError, holding, reached


def test_two_targets_are_replaced_one_after_another(tmp_path: Path) -> None:
    """Never both at once; each canary ends at its stable's weight."""
    case = Case(tmp_path, PLAN.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 60}, {"team": "search"})
    state = case.run(case.start().state.id)
    assert state.phase is Phase.COMPLETED, case.events[-1][0].text
    tag = state.id[:8]
    assert {t.deployment: t.weight for t in case.platform.routes["chat"].targets} == {f"chat-a-r{tag}": 100, f"chat-b-r{tag}": 60}
    moves = [(v, a["deployment"]) for v, a in case.platform.writes if v in ("join", "leave")]
    assert moves == [("join", f"chat-a-r{tag}"), ("leave", "chat-a"), ("join", f"chat-b-r{tag}"), ("leave", "chat-b")]


@pytest.mark.parametrize("rung", [0, 1])
def test_abort_in_the_second_target_restores_both(tmp_path: Path, rung: int) -> None:
    """What the first target went through is undone too."""
    case = Case(tmp_path, PLAN.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 60}, {"team": "search"})
    before = case.shape()
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.target == 1 and s.fact(f"1.rung.{rung}.proved") is not None)
    case.service().say(rollout_id, "abort", "tester", "enough")
    assert case.run(rollout_id).phase is Phase.ABORTED
    assert case.shape() == before


def test_a_gate_waits_for_an_approval(tmp_path: Path) -> None:
    """`gates.approve_before` holds where it says, and an approval opens that gate alone."""
    case = Case(tmp_path, PLAN + "gates: {approve_before: [canary, shift]}\n")
    rollout_id = case.start().state.id
    for step in ("canary", "shift"):
        state = case.run(rollout_id, until=holding("approval"))
        assert state.step is StepName(step)
        case.service().say(rollout_id, "approve", "tester", "looks fine")
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_a_pause_holds_and_a_resume_goes_on(tmp_path: Path) -> None:
    """Nothing is written while a person holds it."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.service().say(rollout_id, "pause", "tester", "lunch")
    case.run(rollout_id, until=holding("operator"))
    written = len(case.platform.writes)
    for _ in range(5):
        asyncio.run(case.service().tick(rollout_id))
    assert len(case.platform.writes) == written
    case.service().say(rollout_id, "resume", "tester", "back")
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_a_foreign_write_holds_until_it_is_gone(tmp_path: Path) -> None:
    """The difference is shown, nothing is reasserted, and it goes on when the route is as we left it."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    target = case.platform.routes["chat"].targets[0]
    target.weight = 50
    state = case.run(rollout_id, until=holding("drift"))
    assert state.hold is not None
    assert "chat-a: expected weight 100, found 50" in state.hold.detail
    target.weight = 100
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_stable_lost_halts_and_writes_nothing(tmp_path: Path) -> None:
    """While stable is away nothing is written, not even a rollback; it goes on when stable serves and answered."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.platform.deployments["chat-a"].healthy = False
    state = case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    written = len(case.platform.writes)
    case.service().say(rollout_id, "rollback", "tester", "please")
    for _ in range(5):
        state = asyncio.run(case.service().tick(rollout_id))
    assert state.phase is Phase.HALTED
    assert len(case.platform.writes) == written
    case.platform.deployments["chat-a"].healthy = True
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_stable_back_lets_the_rollout_go_on(tmp_path: Path) -> None:
    """Without a person's word it continues after a probe of stable."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.platform.deployments["chat-a"].healthy = False
    case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    case.platform.deployments["chat-a"].healthy = True
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert any("serves again" in e.text for e, _ in case.events)


def test_nothing_is_compared_while_requests_of_before_a_halt_still_run(tmp_path: Path) -> None:
    """The canary had everything to itself: what it still carries says nothing about the canary."""
    case = Case(tmp_path)
    case.platform.request_seconds = 35.0
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.base") is not None)
    case.platform.deployments["chat-a"].healthy = False
    case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    case.platform.deployments["chat-a"].healthy = True
    case.events.clear()
    assert case.run(rollout_id).phase is Phase.COMPLETED
    back = next(e.at for e, _ in case.events if e.text == "chat-a serves again")
    windows = [(e.at, e.data["note"]["window"]) for e, _ in case.events if "window" in e.data.get("note", {})]
    seen = [(at, window["load_ratio"]) for at, window in windows if window["seconds"]]
    early = [ratio for at, ratio in seen if (at - back).total_seconds() < 40]
    assert early
    assert set(early) == {None}
    assert all(ratio is not None for at, ratio in seen if (at - back).total_seconds() > 60)


def test_a_missing_replica_holds_a_raise_after_a_while(tmp_path: Path) -> None:
    """The capacity gate is bounded: a person is asked, and the rung is written once the replica is there."""
    case = Case(tmp_path, PLAN.replace("evidence:", "ready_within: 5m\ncanary: {sizing: {replicas: 2}}\nevidence:"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    canary = next(d for n, d in case.platform.deployments.items() if n.startswith("chat-a-r"))
    canary.away = 1
    state = case.run(rollout_id, until=holding("capacity"))
    assert state.hold is not None
    assert "1 of 2 replicas ready" in state.hold.detail
    canary.away = 0
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_memory_under_the_floor_takes_the_canary_back(tmp_path: Path) -> None:
    """The floor is the breaker's, at any rung."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.platform.memory_available = 1 << 30
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_unknown_memory_is_not_free_memory(tmp_path: Path) -> None:
    """Refused before anything is touched, unless the plan accepts it."""
    case = Case(tmp_path)
    case.platform.memory_available = None
    state = case.run(case.start().state.id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, 3)
    assert case.shape() == case.before
    assert case.platform.writes == []


def test_no_traffic_is_neither_good_nor_bad(tmp_path: Path) -> None:
    """Without users the deadline ends in a hold that only a person ends; nothing is promoted or rolled back."""
    text = PLAN.replace("mode: thin", "mode: thin, deadline: 10m, probes: {pairs: 10}")
    case = Case(tmp_path, text)
    case.platform.rate = 0.0
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=holding("inconclusive"))
    assert state.step is StepName.CANARY
    case.service().say(rollout_id, "promote", "tester", "tried by hand")
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_a_canary_that_dies_at_100_percent_brings_stable_back(tmp_path: Path) -> None:
    """Stable is warm; users get errors; nobody needs to be woken for that."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.platform.deployments[f"chat-a-r{state.id[:8]}"].healthy = False
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_verbs_that_cannot_work_are_refused_before_they_are_tried(tmp_path: Path) -> None:
    """Abort after promotion, approve where nothing asks, rollback after the end."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    with pytest.raises(UsageError, match="does not wait"):
        case.service().say(rollout_id, "approve", "tester", "x")
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    with pytest.raises(UsageError, match="not aborted"):
        case.service().say(rollout_id, "abort", "tester", "x")
    case.run(rollout_id)
    with pytest.raises(RollbackImpossible):
        case.service().say(rollout_id, "rollback", "tester", "x")


def test_cleanup_never_begins_before_the_window_is_over(tmp_path: Path) -> None:
    """On the injected clock, an hour is an hour."""
    case = Case(tmp_path, PLAN.replace("duration: 2m", "duration: 1h"))
    rollout_id = case.start().state.id
    entered = case.run(rollout_id, until=reached(StepName.CLEANUP)).entered
    case.run(rollout_id)
    deleted = next(e.at for e, _ in case.events if e.kind == "intent" and e.text == "delete chat-a")
    assert (deleted - entered).total_seconds() >= 3600


def test_a_coarse_sole_weight_gets_a_twin_and_the_found_one_back(tmp_path: Path) -> None:
    """Beside weight 1 no 10 % can be written: the sole target is joined anew with a finer weight, and restored on the way back."""
    case = Case(tmp_path)
    case.platform.route("chat", {"chat-a": 1}, {"team": "search"})
    before = case.shape()
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.SHIFT, rung=1))
    assert {t.weight for t in case.platform.routes["chat"].targets} != {1}
    case.service().say(rollout_id, "abort", "tester", "x")
    assert case.run(rollout_id).phase is Phase.ABORTED
    assert case.shape() == before


def test_a_route_is_rolled_back_from_its_marker_alone(tmp_path: Path) -> None:
    """Another store takes the marker over, restores the snapshot, and the former owner is fenced off (31) and writes nothing more."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.SHIFT, rung=1))
    other = Store.open(str(tmp_path / "other.db"), now=case.clock.now)
    service = case.service(store=other)

    async def connect() -> Connected:
        return await service.connect(case.loaded().plan)

    former: list[RolloutState] = []

    def on_event(event: Event, _state: RolloutState) -> None:
        if event.text == "the route is ours":  # the former owner ticks at the worst moment: after the takeover, before the first write
            with ThreadPoolExecutor(1) as pool:
                former.append(pool.submit(lambda: asyncio.run(case.service().tick(rollout_id))).result())

    written = len(case.platform.writes)
    state = asyncio.run(service.rollback_route("http://127.0.0.1:30080", "chat", connect, "tester", "store lost", on_event))
    assert state.phase is Phase.ROLLED_BACK
    assert [(f.phase, f.exit_code) for f in former] == [(Phase.ABORTED, 31)]
    taken = case.store.journal(rollout_id)[-1].text
    assert taken.startswith(f"fenced off: route taken over by rollout {state.id} (which took over from {rollout_id}; store ")
    assert next(v for v, _ in case.platform.writes[written:]) == "mark_route"
    assert case.shape() == case.before


def test_a_rollback_by_route_that_was_cut_off_is_gone_on_with_by_route_and_nothing_else(tmp_path: Path) -> None:
    """The same command goes on; a run and a retry say so in words that can be copied, and nothing is half said."""
    case = Case(tmp_path)
    case.run(case.start().state.id, until=reached(StepName.SHIFT, rung=1))
    other = Store.open(str(tmp_path / "other.db"), now=case.clock.now)
    service = case.service(store=other)

    async def connect() -> Connected:
        return await service.connect(case.loaded().plan)

    def killed(event: Event, _state: RolloutState) -> None:
        if event.text == "the route is ours":
            raise CrashError

    back = ("http://127.0.0.1:30080", "chat", connect, "tester", "store lost")
    with pytest.raises(CrashError):
        asyncio.run(service.rollback_route(*back, killed))
    cut = other.list(active_only=True)[0].state
    again = "rollout rollback --route chat --server http://127.0.0.1:30080 --reason '…'"
    assert goes_on(cut) == (again,)
    with pytest.raises(UsageError) as told:
        asyncio.run(service.run(cut.id, until=lambda _s: False))
    assert again in told.value.hint
    done = asyncio.run(service.rollback_route(*back))
    assert (done.id, done.phase) == (cut.id, Phase.ROLLED_BACK)
    assert case.shape() == case.before
    with pytest.raises(UsageError, match="holds no plan"):
        service.retry(cut.id, actor="tester", reason="x")


def test_a_rollback_by_route_lets_the_server_go_when_another_engine_holds_it(tmp_path: Path) -> None:
    """Refused, and its connections are closed."""
    case, closed = Case(tmp_path), []
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY))
    service = case.service()

    async def connect() -> Connected:
        async def aclose() -> None:
            closed.append(True)

        return Connected(case.platform, case.platform, aclose)

    case.store.claim(rollout_id, Owner("elsewhere", 1, "x.y"), 300.0)
    with pytest.raises(RouteTaken):
        asyncio.run(service.rollback_route("http://127.0.0.1:30080", "chat", connect, "tester", "x"))
    assert closed == [True]


def test_a_second_plan_on_the_route_is_refused(tmp_path: Path) -> None:
    """In one store by the store; from another store by the marker, before anything is written."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.STAGE))
    second = Case.__new__(Case)
    second.__dict__.update(case.__dict__)
    second.text = PLAN.replace("sim/vllm:2", "sim/vllm:3")
    with pytest.raises(RouteTaken):
        second.start()
    second.store = Store.open(str(tmp_path / "other.db"), now=case.clock.now)
    written = len(case.platform.writes)
    state = second.run(second.start().state.id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, 30)
    assert len(case.platform.writes) == written
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_a_jump_of_the_wall_clock_opens_no_window(tmp_path: Path) -> None:
    """The clock is set a day ahead in the middle of the window: stable stays, and the window lasts as long as it should."""
    case = Case(tmp_path, PLAN.replace("duration: 2m", "duration: 1h"))
    rollout_id = case.start().state.id
    entered = case.run(rollout_id, until=reached(StepName.CLEANUP)).entered
    case.clock.jump += timedelta(hours=25)
    for _ in range(5):
        asyncio.run(case.service().tick(rollout_id))
    assert "chat-a" in case.platform.deployments
    case.run(rollout_id)
    deleted = next(e.at for e, _ in case.events if e.kind == "intent" and e.text == "delete chat-a")
    assert 3600 <= (deleted - entered).total_seconds() < 4000


def test_a_canary_that_fails_after_the_hand_over_is_taken_back(tmp_path: Path) -> None:
    """There is no control at 100 %, but errors of nearly every request need none."""
    case = Case(tmp_path, PLAN.replace("duration: 2m", "duration: 1h"))
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.platform.deployments[f"chat-a-r{state.id[:8]}"].failing = 0.9
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_a_paused_rung_is_still_guarded(tmp_path: Path) -> None:
    """A person holds it and goes to lunch; the canary fails most requests: it is taken back all the same."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
    case.service().say(rollout_id, "pause", "tester", "lunch")
    canary = next(d for n, d in case.platform.deployments.items() if n.startswith("chat-a-r"))
    canary.failing = 0.9
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK


def test_a_rollout_that_never_won_the_route_puts_nothing_back(tmp_path: Path) -> None:
    """It died while it claimed; meanwhile somebody replaced its stable. Its abort writes nothing but its own marker's end."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.fact("marker") is not None)
    case.platform.deploy("chat-new")
    case.platform.route("chat", {"chat-new": 100}, {"rollout": {"nonce": "another", "id": "x"}})
    written = len(case.platform.writes)
    case.service().say(rollout_id, "abort", "tester", "x")
    assert case.run(rollout_id).phase is Phase.ABORTED
    assert len(case.platform.writes) == written
    assert [t.deployment for t in case.platform.routes["chat"].targets] == ["chat-new"]


def test_an_impossible_rollback_can_be_ended(tmp_path: Path) -> None:
    """Stable is gone: it says so, and a second word ends it with 21, the route given back."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    del case.platform.deployments["chat-a"]
    case.service().say(rollout_id, "rollback", "tester", "x")
    case.run(rollout_id, until=holding("rollback_impossible"))
    case.service().say(rollout_id, "rollback", "tester", "end it")
    state = case.run(rollout_id)
    assert (state.phase, state.exit_code) == (Phase.ABORTED, 21)
    assert "rollout" not in case.platform.routes["chat"].meta
    assert set(case.platform.routes) == {"chat"}, "no private route is left over"
    said = case.events[-1][0].text
    assert f"chat-a-r{rollout_id[:8]} serves route chat" in said
    assert "say rollback again" not in said


def test_a_dropped_write_is_repaired_by_a_refresh_once_the_gateway_listens_again(tmp_path: Path) -> None:
    """The API shows the weight, the traffic does not follow: asked again while the server itself repeats, then refreshed once more."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY))
    case.platform.deaf = 2  # the write, and the refresh that follows it
    state = case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    assert [v for v, _ in case.platform.writes].count("refresh") == 2
    assert [v for v, _ in case.platform.writes].count("join") == 1
    assert state.phase is Phase.RUNNING


def test_a_write_that_stays_dropped_holds_and_goes_on_after_a_resume(tmp_path: Path) -> None:
    """No rung is counted that the traffic does not show, and the API's word is not enough."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY))
    case.platform.deaf, began = 99, case.clock.now()
    state = case.run(rollout_id, until=holding("weight_not_effective"))
    assert (case.clock.now() - began).total_seconds() < 45
    assert state.fact("0.rung.0.proved") is None
    case.platform.deaf = 0
    case.service().say(rollout_id, "resume", "tester", "the gateway's API works again")
    assert case.run(rollout_id).phase is Phase.COMPLETED


def test_stable_that_left_and_still_answers_is_not_drained(tmp_path: Path) -> None:
    """The removal was dropped: repaired by one refresh; without it nothing is drained or deleted."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.SHIFT, rung=1))
    case.platform.deaf = 99
    state = case.run(rollout_id, until=holding("weight_not_effective"))
    assert state.hold is not None
    assert "left the route but answered" in state.hold.detail
    assert state.fact("0.drain") is None
    case.platform.deaf = 0
    case.service().say(rollout_id, "resume", "tester", "the gateway's API works again")
    assert case.run(rollout_id).phase is Phase.COMPLETED
