"""kill -9 at any point leaves a whole state, and what was acknowledged is there."""

from __future__ import annotations

import multiprocessing
import os
import signal

from sqlalchemy import event

from rollout.domain.state import Phase
from rollout.store import Store


def die_at(engine, point: int) -> None:
    """SIGKILL to this process at the n-th moment around a statement or a commit."""
    seen = [0]

    def moment(*_: object) -> None:
        seen[0] += 1
        if seen[0] == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("begin", "before_cursor_execute", "after_cursor_execute", "commit", "rollback"):
        event.listen(engine, name, moment)


def rest(pipe) -> list[int]:
    """What was sent before the sender died."""
    found: list[int] = []
    try:
        while True:
            found.append(pipe.recv())
    except EOFError:
        return found


def killed_points(forked, operation) -> int:
    """Runs `operation(point)` in processes that die at point 1, 2, … until one survives; how many died."""
    point = 0
    while True:
        point += 1
        process = forked(operation, point)
        process.join(30)
        if process.exitcode == 0:
            return point - 1
        assert process.exitcode == -signal.SIGKILL


def test_create_is_whole_or_absent(url, now, make, forked) -> None:
    Store.open(url, now=now).close()

    def operation(point: int) -> None:
        with Store.open(url, now=now) as store:
            die_at(store._engine, point)
            make.stored(store, f"r-{point}")

    died = killed_points(forked, operation)
    assert died >= 6
    with Store.open(url, now=now) as store:
        assert [s.state.id for s in store.list()] == [f"r-{died + 1}"], "nothing of the dead holds the route"
        assert store.verify(f"r-{died + 1}") == 1


def test_append_is_whole_or_absent(url, now, make, forked) -> None:
    with Store.open(url, now=now) as store:
        make.stored(store)
        store.say("r-7f3a", "abort", "ann", "stop", {})
        fence = store.claim("r-7f3a", make.owner(), 3600)
    after = make.state(phase=Phase.ABORTED, ended=now.at, exit_code=10)

    def operation(point: int) -> None:
        with Store.open(url, now=now) as store:
            die_at(store._engine, point)
            store.append("r-7f3a", fence, [make.event("one"), make.event("two")], after, next_wake=now.at, consumed=[1])

    def look() -> tuple[object, ...]:
        with Store.open(url, now=now) as store:
            found = store.load("r-7f3a")
            free = store.active_on(found.state.server, "chat") is None
            return found.state, found.next_wake, free, len(store.pending("r-7f3a")), store.verify("r-7f3a"), len(store.journal("r-7f3a"))

    seen = set()
    point, survived = 0, False
    while not survived:
        point += 1
        process = forked(operation, point)
        process.join(30)
        survived = process.exitcode == 0
        whole = look()
        assert whole in [(make.state(), None, False, 1, 1, 1), (after, now.at, True, 0, 3, 3)]
        assert whole[4] == 3 or not survived
        seen.add(whole[4])
        if whole[4] == 3:
            break
    assert seen == {1, 3}
    assert point > 8


def test_what_was_acknowledged_survives_a_kill_at_a_random_moment(url, now, make, forked) -> None:
    """Eight processes, each killed in the middle of a flood of appends."""
    with Store.open(url, now=now) as store:
        make.stored(store)

    def flood(pipe) -> None:
        with Store.open(url, now=now) as store:
            fence = store.claim("r-7f3a", make.owner(), 3600, force=True)
            number = store.load("r-7f3a").state.facts.get("n", 0)
            while True:
                number += 1
                store.append("r-7f3a", fence, [make.event("n", n=number)] * 3, make.state(facts={"n": number}))
                pipe.send(number)

    acknowledged = 0
    for turn in range(8):
        ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
        process = forked(flood, theirs)
        theirs.close()
        for _ in range(3 + turn):
            acknowledged = ours.recv()
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        acknowledged = [acknowledged, *rest(ours)][-1]
        with Store.open(url, now=now) as store:
            written = store.load("r-7f3a").state.facts["n"]
            assert acknowledged <= written <= acknowledged + 1
            assert store.verify("r-7f3a") == 1 + 3 * written
            assert store.journal("r-7f3a")[-1].data == {"n": written}
