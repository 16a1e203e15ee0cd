"""The rollback window: warm, then parked; what a rollback would take is told all through, and refused before it is needed."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.domain.world import Scope, World
from rollout.engine.service import Connected
from rollout.errors import RollbackImpossible, Unreachable, UsageError, WindowOpen
from rollout.plan.load import parse_plan
from rollout.store import Store
from rollout.testing.memory import MemoryPlatform
from tests.integration.engine.harness import PLAN, Case, reached

QUICK = PLAN.replace("min_time_before_full: 5m", "min_time_before_full: 1m").replace("ladder: [10, 50, 100]", "ladder: [50, 100]")
PARKED = QUICK.replace("{duration: 2m}", "{duration: 1h, keep: parked, warm: 10m, approval: none}")
LOAD = 95.0


def parked(state: RolloutState) -> bool:
    return state.fact("parked.chat-a") is not None


def held(reason: str) -> Callable[[RolloutState], bool]:
    return lambda s: s.hold is not None and s.hold.reason == reason


def at(case: Case, text: str) -> float:
    """Seconds from the start of the window to the first entry that says `text`."""
    entered = next(e.at for e, _ in case.events if e.kind == "step" and e.data["step"] == "cleanup")
    return (next(e.at for e, _ in case.events if text in e.text) - entered).total_seconds()


def told(case: Case, text: str) -> bool:
    return any(text in e.text for e, _ in case.events)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path, PARKED)
    made.platform.start_delay = LOAD
    return made


def test_stable_is_parked_after_the_warm_time_and_once_it_is_empty(case: Case) -> None:
    """Drained again, then replicas 0: journaled with intent and outcome, the load time known before; then it completes."""
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=parked)
    assert case.platform.deployments["chat-a"].spec["replicas"] == 0
    assert at(case, "park chat-a: replicas 1 -> 0; a rollback loads it again, about 9") >= 600
    assert state.fact("park.chat-a.drain")["done"]
    kinds = [row.kind for row in case.store.journal(rollout_id) if "park chat-a:" in row.text]
    assert kinds == ["intent", "outcome"]
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert at(case, "cleanup begins") >= 3600
    assert "chat-a" not in case.platform.deployments


def test_a_rollback_from_parked_loads_stable_first_and_says_how_long(case: Case) -> None:
    """Replicas up, ready, probed, in the route, seen there; only then the canary leaves. All as it was."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.run(rollout_id, until=lambda s: (s.fact("restorable") or {}).get("chat-a", {}).get("word") == "by_loading")
    assert told(case, "chat-a: restorable by loading, about 9")
    case.service().say(rollout_id, "rollback", "tester", "users complain")
    written = len(case.platform.writes)
    state = case.run(rollout_id)
    assert (state.phase, state.exit_code) == (Phase.ROLLED_BACK, 10)
    assert case.shape() == case.before
    moves = [(v, a.get("deployment") or a["name"]) for v, a in case.platform.writes[written:] if v in ("scale", "join", "leave")]
    assert moves == [("scale", "chat-a"), ("join", "chat-a"), ("leave", f"chat-a-r{rollout_id[:8]}")]
    assert told(case, "load chat-a again: replicas 0 -> 1, about 9")
    assert told(case, "chat-a loads (starting), about")
    assert told(case, "chat-a is loaded: it took 9")
    assert state.fact("undo.chat-a.seen")["models"]["chat-a"] > 0


def test_a_rollback_inside_the_warm_time_loads_nothing(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.service().say(rollout_id, "rollback", "tester", "users complain")
    said = case.clock.now()
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    back = next(e.at for e, _ in case.events if "leaves the route" in e.text and "-r" in e.text and e.kind == "outcome")
    assert (back - said).total_seconds() < 10
    assert not [v for v, _ in case.platform.writes if v == "scale"]
    assert case.shape() == case.before


def test_a_load_that_takes_too_long_holds_with_its_reason_and_goes_on_by_itself(case: Case) -> None:
    case.text = PARKED.replace("evidence:", "ready_within: 3m\nevidence:")
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.start_delay = 400.0
    case.service().say(rollout_id, "rollback", "tester", "users complain")
    state = case.run(rollout_id, until=held("rollback_slow"))
    assert state.hold is not None
    assert "chat-a is not ready 18" in state.hold.detail
    assert [t.deployment for t in case.platform.routes["chat"].targets] == [f"chat-a-r{rollout_id[:8]}"], "nothing is taken from the canary"
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_files_deleted_while_parked_are_announced_and_the_rollback_is_refused_before_it_is_tried(case: Case) -> None:
    """A hold and a journal entry when the row is gone, 23 with the plan that makes the old side again; nothing was written for it."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    for file in case.platform.files:
        file.row = False
    state = case.run(rollout_id, until=held("not_restorable"))
    assert state.hold is not None
    assert "the files of chat-a are gone: /models/chat on spark-01" in state.hold.detail
    assert told(case, "chat-a: NOT restorable: the files of chat-a are gone")
    written = len(case.platform.writes)
    with pytest.raises(RollbackImpossible) as refused:
        case.service().say(rollout_id, "rollback", "tester", "users complain")
    assert refused.value.exit_code == 23
    assert "/models/chat on spark-01" in refused.value.why
    back = parse_plan(refused.value.hint.partition("\n")[2])
    assert (back.change.to, back.stable[0].deployment) == ({"image_name": "sim/vllm:1"}, f"chat-a-r{rollout_id[:8]}")
    assert back.canary.sizing.worker == "spark-01"
    assert len(case.platform.writes) == written
    assert state.undo is None


def test_files_that_come_back_end_the_hold_and_the_way_back_is_open_again(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.files[0].row = False
    case.run(rollout_id, until=held("not_restorable"))
    case.platform.files[0].row = True
    state = case.run(rollout_id, until=lambda s: s.hold is None)
    assert state.phase is Phase.PROMOTED
    case.service().say(rollout_id, "rollback", "tester", "users complain")
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK


def test_who_approves_the_removal_accepts_that_there_is_no_way_back(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    del case.platform.deployments["chat-a"]
    case.run(rollout_id, until=held("not_restorable"))
    case.service().say(rollout_id, "approve", "tester", "the new one is fine")
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert at(case, "cleanup begins") >= 3600


def test_a_window_without_a_way_back_still_ends_by_itself(case: Case) -> None:
    """Nobody answers the hold: when the time is over, the cleanup goes on as the plan says."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.deployments["chat-a"].spec["image_name"] = "sim/vllm:other"
    state = case.run(rollout_id, until=held("not_restorable"))
    assert state.hold is not None
    assert "was changed since (image_name)" in state.hold.detail
    assert case.run(rollout_id).phase is Phase.COMPLETED


@pytest.mark.parametrize("memory", [10, 15])
def test_too_little_memory_is_said_before_a_rollback_would_need_it(case: Case, memory: int) -> None:
    """What it reserved plus the floor: 16 GiB."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.memory_available = memory << 30
    state = case.run(rollout_id, until=held("not_restorable"))
    assert state.hold is not None
    assert f"spark-01 has {memory}.0 GiB available, it needs 8.0 and the floor of 8.0" in state.hold.detail


def test_auto_parks_only_where_memory_is_needed(tmp_path: Path) -> None:
    case = Case(tmp_path, PARKED.replace("keep: parked", "keep: auto"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.waiting is not None and "restorable at once" in s.waiting.why)
    case.run(rollout_id, until=lambda _s: bool(case.events) and at_least(case, 1200))
    assert case.store.load(rollout_id).state.fact("park.chat-a") is None
    case.platform.memory_available = 15 << 30
    state = case.run(rollout_id, until=parked)
    assert state.fact("park.chat-a")["why"] == "spark-01 has 15.0 GiB available, less than twice the floor"


def at_least(case: Case, seconds: float) -> bool:
    entered = next((e.at for e, _ in case.events if e.kind == "step" and e.data["step"] == "cleanup"), None)
    return entered is not None and (case.clock.now() - entered).total_seconds() > seconds


def test_it_is_parked_only_after_an_approval_of_its_own(tmp_path: Path) -> None:
    """An approval of the removal is not one of parking, and the other way round."""
    case = Case(tmp_path, PARKED.replace(", approval: none", "").replace("cleanup: {approval: none}", "cleanup: {approval: required}"))
    rollout_id = case.start().state.id
    with pytest.raises(UsageError, match="not in its rollback window"):
        case.service().say(rollout_id, "approve", "tester", "x", {"park": True})
    state = case.run(
        rollout_id, until=lambda s: s.waiting is not None and "`rollout approve --park` lets chat-a be parked" in s.waiting.why
    )
    assert state.phase is Phase.PROMOTED
    case.service().say(rollout_id, "approve", "tester", "95 s are fine", {"park": True})
    case.run(rollout_id, until=parked)
    state = case.run(rollout_id, until=held("approval"))
    assert at(case, "the window is over; approve what goes: deployment chat-a (0 replicas)") >= 3600


def test_what_another_route_uses_is_never_parked(case: Case) -> None:
    case.platform.route("other", {"chat-a": 100})
    rollout_id = case.start().state.id
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert told(case, "chat-a is not parked: other sends to it")
    assert not [v for v, _ in case.platform.writes if v == "scale"]
    assert case.platform.deployments["chat-a"].spec["replicas"] == 1


def test_a_side_whose_files_nobody_saw_is_not_parked(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    for file in case.platform.files:
        file.row = False
    case.run(rollout_id, until=lambda s: s.fact("park.chat-a.not") is not None)
    assert told(case, "no model file was seen on spark-01, so it cannot be verified that it would load")


def test_a_side_that_somebody_still_asks_is_not_parked_and_holds_nothing_up(case: Case) -> None:
    """A stream that came by a way we do not know: it is looked at again and again, nothing is cut, and the window goes on."""
    case.text = PARKED.replace("quiet: 10s", "quiet: 10s, deadline: 1m")
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.platform.deployments["chat-a"].in_flight = 1.0
    state = case.run(rollout_id, until=lambda s: s.fact("park.chat-a.busy") is not None)
    assert told(case, "not parked, tries again later: ")
    assert case.platform.deployments["chat-a"].spec["replicas"] == 1
    assert state.phase is Phase.PROMOTED
    case.platform.deployments["chat-a"].in_flight = 0.0
    case.run(rollout_id, until=parked)
    assert case.platform.deployments["chat-a"].spec["replicas"] == 0


def test_a_canary_that_dies_brings_a_parked_stable_back(case: Case) -> None:
    """Nobody is served meanwhile, so nobody has to be asked."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.deployments[f"chat-a-r{rollout_id[:8]}"].healthy = False
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert told(case, "chat-a is parked: about 9")
    assert case.shape() == case.before


def test_a_canary_that_dies_when_stable_cannot_load_halts(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    case.platform.files[0].row = False
    case.run(rollout_id, until=held("not_restorable"))
    case.platform.deployments[f"chat-a-r{rollout_id[:8]}"].healthy = False
    case.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    assert told(case, "and chat-a is not ready either: the files of chat-a are gone")


def test_a_parked_side_comes_back_from_the_marker_alone(case: Case, tmp_path: Path) -> None:
    """Its replicas are in the receipts: an empty store is enough."""
    rollout_id = case.start().state.id
    case.run(rollout_id, until=parked)
    other = Store.open(str(tmp_path / "other.db"), now=case.clock.now)
    service = case.service(store=other)

    async def connect() -> Connected:
        return await service.connect(case.loaded().plan)

    state = asyncio.run(service.rollback_route("http://127.0.0.1:30080", "chat", connect, "tester", "store lost"))
    assert state.phase is Phase.ROLLED_BACK
    assert case.shape() == case.before


def test_two_parked_sides_load_at_the_same_time(tmp_path: Path) -> None:
    case = Case(tmp_path, PARKED.replace("[{deployment: chat-a}]", "[{deployment: chat-a}, {deployment: chat-b}]"))
    case.platform.start_delay = LOAD
    case.platform.deploy("chat-b")
    case.platform.route("chat", {"chat-a": 100, "chat-b": 60}, {"team": "search"})
    before = case.shape()
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: parked(s) and s.fact("parked.chat-b") is not None)
    case.service().say(rollout_id, "rollback", "tester", "x")
    said = case.clock.now()
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    loaded = [e.at for e, _ in case.events if "is loaded: it took" in e.text]
    assert len(loaded) == 2
    assert (max(loaded) - said).total_seconds() < 1.5 * LOAD
    assert case.shape() == before


class Late(MemoryPlatform):
    """The order to park is not answered, and carried out eight seconds later."""

    sent: float | None = None

    async def perform(self, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "scale" and args["replicas"] == 0 and self.sent is None:
            self.sent = self.clock.monotonic()
            raise Unreachable("no answer")
        assert verb != "leave" or self.serves("chat-a"), "the canary left while stable was away"
        return await super().perform(verb, args)

    async def observe(self, scope: Scope) -> World:
        landed = any(verb == "scale" for verb, _ in self.writes)
        if self.sent is not None and self.clock.monotonic() - self.sent > 8 and not landed:
            await super().perform("scale", {"name": "chat-a", "replicas": 0})
        return await super().observe(scope)


def test_an_order_to_park_that_lands_late_does_not_pull_stable_from_under_a_rollback(tmp_path: Path) -> None:
    """It may land for 15 s: until then stable gets no traffic; when it landed, stable is loaded again."""
    case = Case(tmp_path, PARKED)
    case.platform = Late(case.clock)
    case.platform.deploy("chat-a")
    case.platform.route("chat", {"chat-a": 100}, {"team": "search"})
    rollout_id = case.start().state.id
    case.run(rollout_id, until=lambda s: s.waiting is not None and "no answer" in s.waiting.why)
    case.service().say(rollout_id, "rollback", "tester", "x")
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    assert [a["replicas"] for v, a in case.platform.writes if v == "scale"] == [0, 1]
    assert case.shape() == case.before


# --- how long


def test_the_window_is_extended_by_a_time_and_until_a_moment(case: Case) -> None:
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.service().say(rollout_id, "extend_window", "tester", "night job", {"by": 3600.0})
    until = state.entered + timedelta(hours=5)
    case.run(rollout_id, until=lambda s: s.fact("window.extra") == 3600.0)
    case.service().say(rollout_id, "extend_window", "tester", "until the morning", {"until": until.isoformat()})
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert 5 * 3600 <= at(case, "cleanup begins") < 5 * 3600 + 60
    said = [row.actor for row in case.store.journal(rollout_id) if row.text.startswith("extend_window by tester")]
    assert said == ["tester", "tester"]


def test_a_window_that_is_over_is_opened_again_while_nothing_was_removed(tmp_path: Path) -> None:
    case = Case(tmp_path, QUICK.replace("cleanup: {approval: none}", "cleanup: {approval: required}"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=held("approval"))
    case.clock.time += timedelta(hours=3)
    case.service().say(rollout_id, "extend_window", "tester", "somebody complained", {"by": 3600.0})
    state = case.run(rollout_id, until=lambda s: s.hold is None and s.waiting is not None)
    assert state.phase is Phase.PROMOTED
    case.run(rollout_id, until=held("approval"))
    assert at(case, "extend_window by") > 3 * 3600
    assert (case.clock.now() - state.entered).total_seconds() > 4 * 3600


def test_a_window_is_not_made_shorter_nor_extended_once_the_cleanup_began(case: Case) -> None:
    rollout_id = case.start().state.id
    state = case.run(rollout_id, until=lambda s: s.fact("window") is not None)
    early = {"until": (state.entered + timedelta(minutes=5)).isoformat()}
    with pytest.raises(WindowOpen) as open_:
        case.service().say(rollout_id, "extend_window", "tester", "x", early)
    assert open_.value.exit_code == 22
    case.run(rollout_id, until=lambda s: s.fact("cleanup.began") is not None)
    for verb in ("extend_window", "rollback"):
        with pytest.raises(RollbackImpossible) as late:
            case.service().say(rollout_id, verb, "tester", "x", {"by": 60.0})
        assert late.value.exit_code == 23
    case.run(rollout_id)
    with pytest.raises(RollbackImpossible):
        case.service().say(rollout_id, "extend_window", "tester", "x", {"by": 60.0})


def test_a_default_window_waits_for_live_requests_on_sparse_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 h are over, 10 of 50 requests came: it stays open, and ends when they did."""
    monkeypatch.setattr("rollout.engine.run.LISTEN", 600.0)
    monkeypatch.setattr("rollout.steps.cleanup.LOOK", 1800.0)
    case = Case(tmp_path, QUICK.replace("window: {duration: 2m}\n", "").replace("mode: thin", "mode: sparse, probes: {pairs: 10}"))
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CANARY, rung=0))
    case.service().say(rollout_id, "promote", "tester", "the judge has tests of its own")
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.platform.rate = 50 / (40 * 3600)
    assert case.run(rollout_id).phase is Phase.COMPLETED
    assert at(case, "cleanup begins") / 3600 == pytest.approx(40, rel=0.35)
    assert told(case, "of 50 live requests so far")


def test_a_jump_of_the_wall_clock_parks_nothing_and_ends_no_window(case: Case) -> None:
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.CLEANUP))
    case.clock.jump += timedelta(hours=25)
    for _ in range(5):
        asyncio.run(case.service().tick(rollout_id))
    assert case.platform.deployments["chat-a"].spec["replicas"] == 1
    case.run(rollout_id)
    assert 600 <= at(case, "park chat-a:") < 700
    assert 3600 <= at(case, "cleanup begins") < 3700


# --- what goes


def files(case: Case) -> dict[str, Any]:
    return {f"{f.worker}:{f.path}": (f.row, f.on_disk) for f in case.platform.files}


@pytest.fixture
def moved(tmp_path: Path) -> Case:
    """A new revision on another path: stable's files are its own."""
    text = PARKED.replace('unit: backend_image, to: {image_name: "sim/vllm:2"}', "unit: model_revision, to: {local_path: /models/chat-2}")
    return Case(tmp_path, text.replace("cleanup: {approval: none}", "cleanup: {approval: none, files: delete}"))


def test_what_goes_is_listed_and_journaled_before_anything_does(moved: Case) -> None:
    rollout_id = moved.start().state.id
    state = moved.run(rollout_id)
    assert state.phase is Phase.COMPLETED
    goes = state.fact("cleanup.began")["goes"]
    tag = rollout_id[:8]
    assert goes == [
        "deployment chat-a (0 replicas); its target left route chat at 100 %",
        f"private routes probe-r{tag}-0-stable, probe-r{tag}-0-canary",
        "file /models/chat on spark-01 (5368709120 bytes, 5.0 GiB) is deleted from disk",
    ]
    listed = next(row for row in moved.store.journal(rollout_id) if row.text.startswith("cleanup begins"))
    assert json.dumps(goes[2])[1:-1] in listed.text


def test_files_are_deleted_last_and_the_disk_proves_it(moved: Case) -> None:
    rollout_id = moved.start().state.id
    moved.run(rollout_id)
    verbs = [v for v, _ in moved.platform.writes]
    assert verbs.index("delete_file") > verbs.index("delete_deployment")
    assert verbs[-2:] == ["delete_file", "unmark_route"]
    assert files(moved)["spark-01:/models/chat"] == (False, False)
    assert files(moved)["spark-01:/models/chat-2"] == (True, True)
    assert "its disk shows 5368709120 bytes freed" in moved.events[-1][0].text


def test_a_row_that_went_without_its_bytes_is_said(moved: Case) -> None:
    moved.platform.deletes = False
    assert moved.run(moved.start().state.id).phase is Phase.COMPLETED
    assert "has no row any more, but its disk shows 0 bytes freed: look on spark-01" in moved.events[-1][0].text


def test_files_that_another_deployment_shares_stay(moved: Case) -> None:
    """Also one with 0 replicas, that no route names."""
    moved.platform.deploy("idle", replicas=0)
    state = moved.run(moved.start().state.id)
    assert state.phase is Phase.COMPLETED
    assert "delete_file" not in [v for v, _ in moved.platform.writes]
    assert "file /models/chat on spark-01 (5368709120 bytes, 5.0 GiB) stays: idle uses it" in moved.events[-1][0].text
    assert files(moved)["spark-01:/models/chat"] == (True, True)


def test_files_that_hold_others_stay(moved: Case) -> None:
    """A row below the directory: deleting the one would delete the other."""
    moved.platform.deploy("nested", replicas=1)
    moved.platform.deployments["nested"].spec["local_path"] = "/models/chat/lora"
    moved.platform._file(moved.platform.deployments["nested"])
    state = moved.run(moved.start().state.id)
    assert state.phase is Phase.COMPLETED
    assert "stays: other files share its place: /models/chat/lora on spark-01" in moved.events[-1][0].text


def test_without_the_plans_word_files_stay(case: Case) -> None:
    state = case.run(case.start().state.id)
    assert "file /models/chat on spark-01 (5368709120 bytes, 5.0 GiB) stays: the plan keeps files" in state.fact("cleanup.began")["goes"]
    assert files(case)["spark-01:/models/chat"] == (True, True)
