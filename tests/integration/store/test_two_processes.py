"""Two processes at the same instant: one wins, and a fence keeps the other out."""

from __future__ import annotations

import multiprocessing

from rollout.errors import FencedOff, RouteTaken
from rollout.store import Owner, Store

TRIES = 20


def race(forked, operation, count: int = 2) -> list[list[str]]:
    """Runs `operation(process, try)` TRIES times in each of `count` processes, each try at the same instant; words by try."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(count), context.Queue()

    def run(process: int) -> None:
        for number in range(TRIES):
            barrier.wait(30)
            try:
                word = operation(process, number)
            except Exception as error:
                word = type(error).__name__
            results.put((number, word))
        barrier.wait(30)  # the last winner still lives when the last loser asks

    processes = [forked(run, n) for n in range(count)]
    found: list[list[str]] = [[] for _ in range(TRIES)]
    for _ in range(count * TRIES):
        number, word = results.get(timeout=60)
        found[number].append(word)
    for process in processes:
        process.join(30)
    return [sorted(words) for words in found]


def test_exactly_one_creates(url, now, make, forked) -> None:
    Store.open(url, now=now).close()
    stores: dict[int, Store] = {}

    def create(process: int, number: int) -> str:
        store = stores.setdefault(process, Store.open(url, now=now))
        make.stored(store, f"r-{number}-{process}", route=f"route-{number}")
        return "created"

    assert race(forked, create) == [["RouteTaken", "created"]] * TRIES
    with Store.open(url, now=now) as store:
        found = store.list(active_only=True)
        assert len({s.state.route for s in found}) == len(found) == TRIES
        assert all(store.verify(s.state.id) == 1 for s in found)


def test_exactly_one_claims(url, now, make, forked) -> None:
    with Store.open(url, now=now) as store:
        for number in range(TRIES):
            make.stored(store, f"r-{number}", route=f"route-{number}")

    def claim(_process: int, number: int) -> str:
        with Store.open(url, now=now) as store:
            return str(store.claim(f"r-{number}", Owner.current(), 30))

    assert race(forked, claim, 3) == [["1", "RouteTaken", "RouteTaken"]] * TRIES


def test_a_takeover_at_the_instant_of_a_write_leaves_one_sound_journal(url, now, make, forked) -> None:
    """Each write of the former owner stands before the takeover or does not exist."""
    with Store.open(url, now=now) as store:
        make.stored(store)
        fence = [store.claim("r-7f3a", make.owner(0), 3600)]

    def write_or_take(process: int, number: int) -> str:
        with Store.open(url, now=now) as store:
            if process == number % 2:
                mine = store.claim("r-7f3a", make.owner(process), 3600, force=True)
                store.append("r-7f3a", mine, [make.event("taken", fence=mine)], make.state())
                return "taken"
            fence[0] = store.load("r-7f3a").fence
            store.append("r-7f3a", fence[0], [make.event("wrote", fence=fence[0])], make.state())
            return "wrote"

    for words in race(forked, write_or_take):
        assert words in (["FencedOff", "taken"], ["taken", "wrote"])
    with Store.open(url, now=now) as store:
        fences = [row.data["fence"] for row in store.journal("r-7f3a", after=1)]
        assert fences == sorted(fences)
        assert store.verify("r-7f3a") == 1 + len(fences)


def test_both_errors_have_the_exit_codes_a_script_waits_for() -> None:
    assert (RouteTaken.exit_code, FencedOff.exit_code) == (30, 31)


def test_readers_never_see_half_an_append_nor_a_false_alarm(url, now, make, forked) -> None:
    with Store.open(url, now=now) as store:
        make.stored(store)
        fence = store.claim("r-7f3a", make.owner(), 3600)

    def write() -> None:
        with Store.open(url, now=now) as store:
            for number in range(60):
                store.append("r-7f3a", fence, [make.event("n", n=number)] * 4, make.state(facts={"n": number}))

    with Store.open(url, now=now) as store:
        process, counts = forked(write), []
        while process.is_alive():
            counts.append(store.verify("r-7f3a"))
        assert process.exitcode == 0
        assert all(count % 4 == 1 for count in counts)
        assert store.verify("r-7f3a") == 241
