"""Who may write: one at a time, the dead are taken over at once, the late are fenced off."""

from __future__ import annotations

import multiprocessing
import os
import signal
from datetime import timedelta

import pytest

from rollout.errors import ExitCode, FencedOff, RouteTaken
from rollout.store import Owner


@pytest.fixture
def held(store, make):
    """A rollout that `another-host:1` holds for 30 s; its fence."""
    make.stored(store)
    return store.claim("r-7f3a", make.owner(1), 30)


def test_a_claim_says_who_and_until_when(store, make, now, held) -> None:
    found = store.load("r-7f3a")
    assert (found.owner, found.fence, found.lease_until) == (str(make.owner(1)), 1, now.at + timedelta(seconds=30))


def test_another_owner_is_refused_while_the_lease_lasts(store, make, now, held) -> None:
    now.pass_by(29.9)
    with pytest.raises(RouteTaken) as caught:
        store.claim("r-7f3a", make.owner(2), 30)
    assert caught.value.exit_code is ExitCode.ROUTE_TAKEN
    assert str(make.owner(1)) in caught.value.why
    assert "2026-11-30T12:00:30" in caught.value.why
    assert "rollback r-7f3a" in caught.value.hint
    assert store.load("r-7f3a").fence == held


def test_each_claim_raises_the_fence_by_one(store, make, now, held) -> None:
    assert store.claim("r-7f3a", make.owner(1), 30) == 2, "the same owner may claim again"
    now.pass_by(30)
    assert store.claim("r-7f3a", make.owner(2), 30) == 3, "a lease that ran out holds nobody off"
    assert store.claim("r-7f3a", make.owner(3), 30, force=True) == 4, "a rollback does not wait"
    store.release("r-7f3a", 4)
    assert store.claim("r-7f3a", make.owner(4), 30) == 5, "given back is free at once"


def test_renewal_moves_the_end(store, make, now, held) -> None:
    now.pass_by(20)
    store.renew("r-7f3a", held, 30)
    now.pass_by(29)
    with pytest.raises(RouteTaken):
        store.claim("r-7f3a", make.owner(2), 30)


def test_a_lease_that_ran_out_unclaimed_can_be_renewed(store, now, held) -> None:
    now.pass_by(1000)
    store.renew("r-7f3a", held, 30)
    assert store.load("r-7f3a").lease_until == now.at + timedelta(seconds=30)


def test_the_former_owner_writes_nothing_more(store, make, held) -> None:
    number = store.say("r-7f3a", "pause", "ann", "look", {})
    store.claim("r-7f3a", make.owner(2), 30, force=True)
    before = store.load("r-7f3a"), store.journal("r-7f3a"), store.pending("r-7f3a")
    for call in (
        lambda: store.renew("r-7f3a", held, 30),
        lambda: store.append("r-7f3a", held, [make.event("late")], make.state(target=9), consumed=[number]),
    ):
        with pytest.raises(FencedOff) as caught:
            call()
        assert caught.value.exit_code is ExitCode.FENCED_OFF
        assert str(make.owner(2)) in caught.value.why
    store.release("r-7f3a", held)
    assert (store.load("r-7f3a"), store.journal("r-7f3a"), store.pending("r-7f3a")) == before


def test_an_owner_on_this_host_is_taken_over_the_moment_it_is_killed(store, make, forked) -> None:
    """Also while its parent has not yet asked for its end: a zombie runs nothing."""
    make.stored(store)
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def live() -> None:
        theirs.send(str(Owner.current()))
        signal.pause()

    process = forked(live)
    owner = Owner.parse(ours.recv())
    assert (owner.pid, owner.alive()) == (process.pid, True)
    store.claim("r-7f3a", owner, 3600)
    with pytest.raises(RouteTaken):
        store.claim("r-7f3a", Owner.current(), 30)
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert store.claim("r-7f3a", Owner.current(), 30) == 2
    process.join()
    assert not owner.alive()


def test_a_later_process_with_a_known_id_is_no_owner(store, make) -> None:
    make.stored(store)
    me = Owner.current()
    _, _, system = me.token.rpartition(".")
    store.claim("r-7f3a", Owner(me.host, me.pid, f"1.{system}"), 3600)
    assert store.claim("r-7f3a", me, 30) == 2


def test_an_owner_that_something_else_wrote_is_held_off_by_its_lease_alone(store, make, now, held) -> None:
    with store._writer.begin() as connection:
        connection.exec_driver_sql("UPDATE rollouts SET owner = 'somebody'")
    with pytest.raises(RouteTaken):
        store.claim("r-7f3a", make.owner(2), 30)
    now.pass_by(31)
    assert store.claim("r-7f3a", make.owner(2), 30) == 2
