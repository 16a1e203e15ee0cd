"""Receipts, drift, stable lost, and the state's own rules."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.domain.effects import Effect
from rollout.domain.health import drift, expected_after, memory_below, memory_unknown, siblings_lost, stable_lost
from rollout.domain.receipts import Receipts, derived, marker, successors, take
from rollout.domain.state import Event, Hold, OpenIntent, Phase, RolloutState, Said, StepName, evolve
from rollout.domain.world import DeploymentView, InstanceView, RouteView, TargetView, WorkerView, World

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ID = "7f3a9c2d1b00"


def target(name: str, weight: int, state: str = "active") -> TargetView:
    return TargetView(hash(name) % 1000, 1, name, weight, state)


def deployment(name: str, state: str = "running", worker: str = "spark-01") -> DeploymentView:
    ready = 1 if state == "running" else 0
    return DeploymentView(1, name, 1, ready, state, {}, (InstanceView(1, f"{name}-0", state, worker),))


def world(targets: list[TargetView], deployments: list[DeploymentView] | None = None, available: int | None = 64 << 30) -> World:
    route = RouteView(1, "chat", tuple(targets), "weighted", {"team": "x"}, "authed")
    views = deployments if deployments is not None else [deployment(t.deployment or "") for t in targets]
    worker = WorkerView(1, "spark-01", "ready", 1.0, 128 << 30, available, True)
    return World(NOW, "v2.3.0", route, {d.name: d for d in views}, {}, {"spark-01": worker})


def receipts() -> Receipts:
    found = world([target("a", 100), target("b", 50)]).route
    assert found is not None
    return take(ID, found, ("a",), {}, 10, 1800)


def state(**facts: Any) -> RolloutState:
    return RolloutState(
        id=ID,
        name="n",
        server="s",
        route="chat",
        plan_digest="",
        phase=Phase.RUNNING,
        step=StepName.CANARY,
        created=NOW,
        entered=NOW,
        facts=facts,
    )


def test_names_follow_from_the_rollout_and_do_not_pile_up() -> None:
    """A second rollout of the successor replaces the suffix."""
    first = derived("chat-spark-01", ID)
    assert first == "chat-spark-01-r7f3a9c2d"
    assert derived(first, "00000000ffff") == "chat-spark-01-r00000000"


names = st.one_of(
    st.text(alphabet="ab-", min_size=1, max_size=6),
    st.builds(lambda n: f"a-very-long-name-of-a-deployment-in-the-cluster-west-{n:02}", st.integers(0, 40)),
    st.builds(lambda base, tag: f"{base}-r{tag:08x}", st.sampled_from(["chat", "a" * 50, "a" * 57]), st.integers(0, 3)),
    st.just(f"chat-r{ID[:8]}"),
)


@given(st.lists(names, min_size=1, max_size=12, unique=True))
def test_each_target_gets_a_name_of_its_own(stable: list[str]) -> None:
    """Cut names, and names that differ only in an earlier rollout's suffix, do not meet."""
    found = world([target(name, 100) for name in stable], []).route
    assert found is not None
    pairs = take(ID, found, tuple(stable), {}, 10, 1800).pairs
    canaries = [p.canary for p in pairs]
    assert len({*canaries, *stable}) == 2 * len(stable)
    assert all(len(name) <= 60 and name.endswith("-r7f3a9c2d") for name in canaries)
    again = [derived(name, "00000000ffff") for name in canaries]
    assert len(set(again)) == len(again)  # the next rollout keeps them apart too
    assert all(len(a) == len(b) for a, b in zip(again, canaries, strict=True))  # and nothing piles up


def test_names_that_would_meet_are_told_apart() -> None:
    """Two that differ only in what an earlier rollout added, and two that are too long."""
    assert successors(["chat", "chat-r1a2b3c4d"], ID, ()) == {"chat": "chat-r7f3a9c2d", "chat-r1a2b3c4d": "chat-c60084-r7f3a9c2d"}
    west = [f"chat-of-the-large-language-models-cluster-and-site-west-{n}" for n in ("01", "02")]
    assert len(set(successors(west, ID, ()).values())) == 2


def test_receipts_survive_the_marker() -> None:
    """What the route's meta carries is enough to build the receipts again."""
    ours = marker(receipts(), "store", "nonce", NOW)
    assert Receipts.model_validate(ours["receipts"]) == receipts()


def test_siblings_weigh_what_was_found() -> None:
    """The weight beside the pair is everybody else's."""
    assert receipts().siblings_weight(receipts().pairs[0]) == 50


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ([target("a", 100), target("b", 50)], None),
        ([target("a", 90), target("b", 50)], "a: expected weight 100, found 90"),
        ([target("a", 100)], "b: expected weight 50, found no target"),
        ([target("a", 100), target("b", 50), target("c", 1)], "c: not ours, weight 1"),
        ([target("a", 100), target("a", 100), target("b", 50)], "a: two targets"),
    ],
)
def test_drift_names_the_difference(targets: list[TargetView], says: str | None) -> None:
    """Weights, missing targets, foreign targets and doubles."""
    assert drift(state(expected={"a": 100, "b": 50}), world(targets)) == says


def test_expected_follows_our_own_writes() -> None:
    """A join, a new weight and a leave are no drift."""
    expected = expected_after(Effect(verb="join", args={"deployment": "c", "weight": 5}, why=""), {"a": 100})
    assert expected == {"a": 100, "c": 5}
    assert expected_after(Effect(verb="leave", args={"deployment": "a"}, why=""), expected) == {"c": 5}


def test_stable_lost_only_while_the_canary_is_in_the_route() -> None:
    """An unavailable stable beside the canary is the danger; alone it is somebody else's incident."""
    pair = receipts().pairs[0]
    lost = world([target("a", 100, "unavailable"), target(pair.canary, 5)], [deployment("a", "error"), deployment(pair.canary)])
    assert "does not serve" in str(stable_lost(pair, lost))
    assert stable_lost(pair, world([target("a", 100, "unavailable")], [deployment("a", "error")])) is None
    assert stable_lost(pair, world([target("a", 100), target(pair.canary, 5)])) is None


def test_a_sibling_that_does_not_serve_is_said() -> None:
    """Its share goes silently to the others."""
    pair = receipts().pairs[0]
    assert siblings_lost(receipts(), pair, world([target("a", 100), target("b", 50, "unavailable")])) is not None
    assert siblings_lost(receipts(), pair, world([target("a", 100), target("b", 50)])) is None


def test_unknown_memory_is_neither_free_nor_below() -> None:
    """None is unknown: not under the floor, but said."""
    unknown = world([target("a", 100)], available=None)
    assert memory_below(unknown, "a", 8 << 30) is None
    assert memory_unknown(unknown, "a") is not None
    assert memory_below(world([target("a", 100)], available=1 << 30), "a", 8 << 30) is not None


def test_an_approval_is_not_kept_for_later() -> None:
    """It counts where one is asked for; said while something else holds, it changes nothing."""
    said = Said(verb="approve", actor="x", reason="y", at=NOW)
    event = Event(kind="command", at=NOW, actor="x", text="", data={"said": said.model_dump(mode="json")})
    assert evolve(state(), event).fact("said.approve") is None
    waiting = state().model_copy(update={"hold": Hold(reason="approval", detail="", since=NOW)})
    assert evolve(waiting, event).fact("said.approve") is not None


def test_resume_removes_what_the_hold_rests_on() -> None:
    """So that the cause is looked at afresh."""
    held = state(verified=1, other=2).model_copy(update={"hold": Hold(reason="x", detail="", since=NOW, clears=("verified",))})
    said = Said(verb="resume", actor="x", reason="y", at=NOW)
    after = evolve(held, Event(kind="command", at=NOW, actor="x", text="", data={"said": said.model_dump(mode="json")}))
    assert after.facts == {"other": 2}
    assert after.hold is None


def test_a_state_of_a_newer_release_can_be_read() -> None:
    """Keys that this release does not know are left out, not refused."""
    effect = Effect(verb="join", args={}, why="w")
    whole = state().model_copy(update={"intent": OpenIntent(number=1, effect=effect, at=NOW)})
    raw = whole.model_dump(mode="json") | {"invented": True}
    assert RolloutState.model_validate(raw) == whole


def test_a_fallback_beside_weighs_nothing_where_it_only_takes_what_failed() -> None:
    """The gateway leaves it out of the split, the server's own proxy does not."""
    beside = TargetView(2, 2, "b", 50, "active", {"fallback_status_codes": ["5xx"]})
    found = world([target("a", 100), beside]).route
    assert found is not None
    for gateway, weight in ((False, 50), (True, 0)):
        taken = take(ID, found, ("a",), {}, 10, 1800, gateway=gateway)
        assert taken.siblings_weight(taken.pairs[0]) == weight
