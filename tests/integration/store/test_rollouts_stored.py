"""Put in, found, listed; one active rollout a route."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from rollout.domain.state import Phase, Said
from rollout.errors import ExitCode, NotFound, RouteTaken, StoreDamaged


def ended(state, phase=Phase.ROLLED_BACK):
    return state.model_copy(update={"phase": phase, "ended": state.created, "exit_code": 10})


def test_what_was_put_in_comes_back(store, make) -> None:
    said = Said(verb="abort", actor="ann", reason="ü\0 \U0001f600", at=make.state().created)
    state = make.stored(store, facts={"receipt.join": {"id": 4, "weights": [1, 2.5, None]}}, undo=said, target=2)
    found = store.load("r-7f3a")
    assert found.state == state
    assert (found.plan, found.plan_text) == (make.plan, make.text)
    assert (found.owner, found.fence, found.lease_until, found.next_wake) == (None, 0, None, None)


def test_keys_of_a_newer_release_are_tolerated(store, make) -> None:
    make.stored(store)
    with store._writer.begin() as connection:
        connection.exec_driver_sql(
            'UPDATE rollouts SET state = replace(state, \'{"created"\', \'{"from_the_future":1,"created"\'), seal = NULL'
        )
    assert store.load("r-7f3a").state == make.state()


@pytest.mark.parametrize("seal", ["seal", "NULL"])
@pytest.mark.parametrize("words", ["not json", "{}", "[]"])
def test_a_state_that_something_else_wrote_is_named(store, make, words, seal) -> None:
    """By its seal, and where a release before wrote the row by what it cannot be."""
    make.stored(store)
    with store._writer.begin() as connection:
        connection.exec_driver_sql(f"UPDATE rollouts SET state = '{words}', seal = {seal}")
    with pytest.raises(StoreDamaged, match=r"cannot be read|changed by something else") as caught:
        store.load("r-7f3a")
    assert caught.value.why
    assert caught.value.hint


CHANGES = {
    "plan": '{"a":1}',
    "plan_text": "x",
    "plan_digest": "d",
    "phase": "promoted",
    "server": "http://x",
    "active": False,
    "head_seq": 9,
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_column_that_something_else_changed_is_found(store, make, column) -> None:
    make.stored(store)
    with store._writer.begin() as connection:
        connection.execute(text(f"UPDATE rollouts SET {column} = :new"), {"new": CHANGES[column]})
    with pytest.raises(StoreDamaged, match="changed by something else"):
        store.load("r-7f3a")


def test_what_a_claim_moves_is_not_sealed(store, make) -> None:
    make.stored(store)
    fence = store.claim("r-7f3a", make.owner(), 30)
    store.renew("r-7f3a", fence, 60)
    assert store.load("r-7f3a").fence == fence
    store.append("r-7f3a", fence, [make.event()], make.state(facts={"f": [1.5, None, "\ud800"]}))
    store.release("r-7f3a", fence)
    assert store.load("r-7f3a").state.facts == {"f": [1.5, None, "\ud800"]}


def test_a_second_active_rollout_on_a_route_is_refused_naming_the_holder(store, make) -> None:
    make.stored(store)
    with pytest.raises(RouteTaken) as caught:
        make.stored(store, "r-2222")
    error = caught.value
    assert error.exit_code is ExitCode.ROUTE_TAKEN
    assert "r-7f3a (qwen-v2)" in error.message
    assert "running, since 2026-11-30T12:00:00" in error.why
    assert "r-7f3a" in error.hint
    assert [s.state.id for s in store.list()] == ["r-7f3a"]
    with pytest.raises(NotFound):
        store.journal("r-2222")


@pytest.mark.parametrize("where", [{"route": "embed"}, {"server": "http://another.example"}])
def test_another_route_or_server_is_free(store, make, where) -> None:
    make.stored(store)
    make.stored(store, "r-2222", **where)
    assert len(store.list(active_only=True)) == 2


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABORTED])
def test_an_end_frees_the_route(store, make, phase) -> None:
    state = make.stored(store)
    fence = store.claim(state.id, make.owner(), 30)
    store.append(state.id, fence, [make.event()], ended(state, phase))
    assert store.active_on(state.server, state.route) is None
    assert store.latest_on(state.server, state.route).state.id == state.id
    assert store.latest_on("http://another.example", state.route) is None
    make.stored(store, "r-2222")
    assert store.active_on(state.server, state.route).state.id == "r-2222"


@pytest.mark.parametrize("phase", [Phase.PROMOTED, Phase.HALTED, Phase.HOLDING, Phase.ROLLING_BACK])
def test_nothing_else_frees_it(store, make, phase) -> None:
    state = make.stored(store)
    fence = store.claim(state.id, make.owner(), 30)
    store.append(state.id, fence, [make.event()], state.model_copy(update={"phase": phase}))
    with pytest.raises(RouteTaken):
        make.stored(store, "r-2222")


def test_an_id_is_used_once(store, make) -> None:
    make.stored(store)
    with pytest.raises(RouteTaken, match="was not stored"):
        make.stored(store, route="embed")
    assert store.load("r-7f3a").state.route == "chat"


def test_a_unique_beginning_of_an_id_is_enough(store, make) -> None:
    make.stored(store, "r-7f3a")
    make.stored(store, "r-7e00", route="embed")
    make.stored(store, "r-7", route="rerank")
    assert store.load("r-7f").state.id == "r-7f3a"
    assert store.load("r-7").state.id == "r-7", "an id that is the beginning of others is itself"
    with pytest.raises(NotFound, match="More than one") as caught:
        store.load("r-")
    assert "r-7f3a (qwen-v2)" in caught.value.why


@pytest.mark.parametrize("wanted", ["r-7f3b", "qwen-v3", "r-7f3a1"])
def test_what_is_not_there_is_answered_with_what_comes_near(store, make, wanted) -> None:
    make.stored(store)
    with pytest.raises(NotFound) as caught:
        store.load(wanted)
    assert "r-7f3a (qwen-v2)" in caught.value.why
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("wanted", ["", "%", "r_7f3a", "zzz"])
def test_no_pattern_finds_a_rollout(store, make, wanted) -> None:
    make.stored(store)
    with pytest.raises(NotFound):
        store.load(wanted)


def test_an_unknown_rollout_is_not_found_by_any_method(store, make) -> None:
    calls = [
        lambda: store.claim("x", make.owner(), 1),
        lambda: store.renew("x", 1, 1),
        lambda: store.release("x", 1),
        lambda: store.append("x", 1, [], make.state("x")),
        lambda: store.say("x", "pause", "ann", "", {}),
        lambda: store.journal("x"),
        lambda: store.verify("x"),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="'x'"):
            call()
    assert store.pending("x") == []


def test_the_list_is_newest_first_and_can_be_narrowed(store, make) -> None:
    start = make.state().created
    for number in range(5):
        state = make.stored(store, f"r-{number}", route=f"route-{number % 2}", created=start + timedelta(hours=number))
        fence = store.claim(state.id, make.owner(), 30)
        if number < 3:
            store.append(state.id, fence, [], ended(state))
    ids = lambda **which: [s.state.id for s in store.list(**which)]  # noqa: E731
    assert ids() == ["r-4", "r-3", "r-2", "r-1", "r-0"]
    assert ids(limit=2) == ["r-4", "r-3"]
    assert ids(active_only=True) == ["r-4", "r-3"]
    assert ids(route="route-0") == ["r-4", "r-2", "r-0"]
    assert ids(active_only=True, route="route-0") == ["r-4"]


def test_a_rollout_with_a_journal_cannot_be_deleted(store, make) -> None:
    make.stored(store)
    with pytest.raises(IntegrityError), store._writer.begin() as connection:
        connection.exec_driver_sql("DELETE FROM rollouts")
