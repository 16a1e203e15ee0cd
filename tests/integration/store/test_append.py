"""One append: journal, state, wake-up and commands together, or nothing."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from rollout.domain.effects import Effect
from rollout.domain.state import Event, evolve
from rollout.errors import NotFound


@pytest.fixture
def fence(store, make) -> int:
    make.stored(store)
    return store.claim("r-7f3a", make.owner(), 30)


def test_everything_of_one_append_is_there(store, make, now, fence) -> None:
    state = make.state()
    numbers = [store.say("r-7f3a", verb, "ann", "why", {"n": 1}) for verb in ("pause", "resume", "approve")]
    wake = now.at + timedelta(seconds=7)
    effect = Effect(verb="join", args={"route": "chat", "deployment": "b", "weight": 5}, why="first rung")
    events = [make.event("intent", "intent", effect=effect.model_dump(mode="json")), make.event("wait", facts={"waited": 1})]
    for event in events:
        state = evolve(state, event)
    store.append("r-7f3a", fence, events, state, next_wake=wake, consumed=numbers[:2])
    found = store.load("r-7f3a")
    assert found.state == state
    assert found.state.intent.effect == effect
    assert found.next_wake == wake
    assert [c.id for c in store.pending("r-7f3a")] == numbers[2:]
    rows = store.journal("r-7f3a")
    assert [(r.seq, r.kind, r.text) for r in rows] == [(1, "created", "it began"), (2, "intent", "intent"), (3, "fact", "wait")]
    assert rows[1].data == {"effect": effect.model_dump(mode="json")}
    assert rows[1].at == events[0].at
    assert [r.prev_hash for r in rows[1:]] == [r.hash for r in rows[:-1]]
    assert store.verify("r-7f3a") == 3


def test_the_journal_can_be_followed(store, make, fence) -> None:
    store.append("r-7f3a", fence, [make.event(str(n)) for n in range(5)], make.state())
    assert [r.seq for r in store.journal("r-7f3a", after=4)] == [5, 6]
    assert store.journal("r-7f3a", after=6) == []


def test_a_state_without_news_moves_the_wake_up_only(store, make, now, fence) -> None:
    store.append("r-7f3a", fence, [], make.state(), next_wake=now.at)
    assert store.load("r-7f3a").next_wake == now.at
    store.append("r-7f3a", fence, [], make.state())
    assert store.load("r-7f3a").next_wake is None
    assert store.verify("r-7f3a") == 1


def test_a_server_answer_of_any_bytes_is_journaled(store, make, fence) -> None:
    """NUL, half a surrogate pair, numbers that are not finite, and values that are not JSON."""
    odd = Event(
        kind="outcome",
        at=make.event().at,
        actor="ann\0",
        text="body: \0 \ud800 ü \U0001f600",
        data={"body": "\0\ud800\U0001f600", "ttft": [math.nan, math.inf], "at": make.event().at, "big": 10**30},
    )
    store.append("r-7f3a", fence, [odd], make.state(facts={"body": "\0", "nan": math.nan}))
    row = store.journal("r-7f3a", after=1)[0]
    assert row.text == "body: \N{REPLACEMENT CHARACTER} ? ü \U0001f600"
    assert row.data == {"body": "\0\ud800\U0001f600", "ttft": [None, None], "at": "2026-11-30T12:00:01.000005Z", "big": 10**30}
    assert store.load("r-7f3a").state.facts == {"body": "\0", "nan": None}
    assert store.verify("r-7f3a") == 2


def test_rollouts_have_journals_of_their_own(store, make, fence) -> None:
    make.stored(store, "r-2222", route="embed")
    other = store.claim("r-2222", make.owner(), 30)
    for number in range(3):
        store.append("r-7f3a", fence, [make.event(f"a{number}")], make.state())
        store.append("r-2222", other, [make.event(f"b{number}")], make.state("r-2222", route="embed"))
    assert [r.text for r in store.journal("r-2222", after=1)] == ["b0", "b1", "b2"]
    assert store.verify("r-7f3a") == store.verify("r-2222") == 4


def test_a_command_of_another_rollout_is_not_taken_up(store, make, fence) -> None:
    make.stored(store, "r-2222", route="embed")
    number = store.say("r-2222", "pause", "ann", "look", {})
    store.append("r-7f3a", fence, [], make.state(), consumed=[number])
    assert [c.id for c in store.pending("r-2222")] == [number]


def test_an_append_that_fails_in_the_middle_leaves_nothing(store, make, fence) -> None:
    naive = make.event().model_copy(update={"at": make.event().at.replace(tzinfo=None)})
    with pytest.raises(ValueError, match="no time zone"):
        store.append("r-7f3a", fence, [make.event("half"), naive], make.state(target=3))
    assert len(store.journal("r-7f3a")) == store.verify("r-7f3a") == 1
    assert store.load("r-7f3a").state.target == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET text = 'nicer'",
        "UPDATE journal SET text = text",
        "DELETE FROM journal",
        "DELETE FROM journal WHERE seq = 1",
        "INSERT OR REPLACE INTO journal SELECT * FROM journal",
        "TRUNCATE journal",
    ],
)
def test_the_database_refuses_to_change_the_journal(store, fence, statement) -> None:
    dialect = store._engine.dialect.name
    if statement.startswith("TRUNCATE" if dialect == "sqlite" else "INSERT OR REPLACE"):
        statement = "DELETE FROM journal"  # not a statement of this database
    with pytest.raises(DBAPIError, match="append-only"), store._writer.begin() as connection:
        connection.exec_driver_sql(statement)
    assert store.verify("r-7f3a") == 1


def test_commands_wait_in_the_order_they_were_said(store, make, now, fence) -> None:
    first = store.say("r-7f3a", "pause", "ann", "look \0 here", {"rung": 50, "deep": {"a": [None]}})
    now.pass_by(1)
    second = store.say("r-7f3a", "rollback", "bob", "bad answers", {})
    commands = store.pending("r-7f3a")
    assert [c.id for c in commands] == [first, second]
    assert commands[0].args == {"rung": 50, "deep": {"a": [None]}}
    assert commands[0].reason == "look \N{REPLACEMENT CHARACTER} here"
    assert (commands[1].verb, commands[1].actor, commands[1].at, commands[1].rollout_id) == ("rollback", "bob", now.at, "r-7f3a")


def test_a_command_is_kept_after_it_was_taken_up(store, make, now, fence) -> None:
    number = store.say("r-7f3a", "pause", "ann", "look", {})
    store.append("r-7f3a", fence, [], make.state(), consumed=[number, number, 999])
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT consumed_at FROM commands").scalar() == "2026-11-30T12:00:00.000000Z"


def test_a_report_is_found_while_it_is_young_and_the_newest_counts(store, now) -> None:
    assert store.find_report("sha256:a", 3600) is None
    store.save_report("sha256:a", {"floor": 8, "cells": []})
    now.pass_by(1800)
    store.save_report("sha256:a", {"floor": 9})
    store.save_report("sha256:b", {"floor": 1})
    found = store.find_report("sha256:a", 3600)
    assert (found.report, found.created, found.spec_digest) == ({"floor": 9}, now.at, "sha256:a")
    now.pass_by(3600)
    assert store.find_report("sha256:a", 3600) is not None
    now.pass_by(0.001)
    assert store.find_report("sha256:a", 3600) is None


def test_a_prefix_is_for_people_not_for_writers(store, make, fence) -> None:
    with pytest.raises(NotFound):
        store.append("r-7f", fence, [], make.state())
