"""A desk without a database: rollouts in memory, and an engine that walks through prepared states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from rollout.cli import wiring
from rollout.cli.desk import Desk
from rollout.domain.state import Event, RolloutState
from rollout.domain.world import Scope, World
from rollout.engine.refuse import refuse
from rollout.errors import JournalBroken, NotFound, RolloutError, RouteTaken
from rollout.plan.load import LoadedPlan
from rollout.plan.model import GPUStack
from rollout.store.records import Command, JournalRow, StoredRollout
from tests.unit.report.samples import NOW, event

OTHER = "elsewhere:4711:1.abc"


class FakeClock:
    """Stands at NOW; sleeping moves it and runs what was planned for that time."""

    def __init__(self) -> None:
        self.at, self.slept = NOW, 0.0
        self.then: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.slept

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.slept += seconds
        if self.then:
            self.then.pop(0)()


@dataclass
class FakeStore:
    """What the commands ask of a store."""

    rows: dict[str, StoredRollout] = field(default_factory=dict)
    entries: list[Event] = field(default_factory=list)
    broken: bool = False
    where: str = "memory"
    unheard: tuple[str, ...] = ()
    """verbs that nobody has taken up"""

    def put(self, state: RolloutState, **more: Any) -> None:
        known: dict[str, Any] = {"plan": {}, "plan_text": "", "owner": None, "fence": 0, "lease_until": None, "next_wake": None}
        self.rows[state.id] = StoredRollout(state=state, **{**known, **more})

    def load(self, rollout_id: str) -> StoredRollout:
        found = [row for key, row in self.rows.items() if key.startswith(rollout_id)]
        if len(found) != 1:
            raise NotFound(f"There is no rollout {rollout_id!r} in this store.", why="Near it: none.")
        return found[0]

    def list(self, *, active_only: bool = False, route: str | None = None, limit: int = 100) -> list[StoredRollout]:
        kept = [r for r in self.rows.values() if not (active_only and r.state.terminal) and route in (None, r.state.route)]
        return kept[:limit]

    def active_ids(self) -> Sequence[str]:
        return [key for key, row in self.rows.items() if not row.state.terminal]

    def journal(self, rollout_id: str, *, after: int = 0) -> Sequence[JournalRow]:
        rows = [
            JournalRow(rollout_id, n, e.at, e.kind, e.actor, e.text, e.data, f"h{n - 1}", f"h{n}") for n, e in enumerate(self.entries, 1)
        ]
        return rows[after:]

    def verify(self, rollout_id: str) -> int:
        if self.broken:
            raise JournalBroken(f"The journal of rollout {rollout_id} is broken at row 2.", why="Row 2: it was changed.")
        return len(self.entries)

    def active_on(self, server: str, route: str) -> StoredRollout | None:
        return None

    def pending(self, rollout_id: str) -> Sequence[Command]:
        return [Command(n, rollout_id, verb, "ana", "said", {}, NOW) for n, verb in enumerate(self.unheard, 1)]


@dataclass
class FakeService:
    """Says are kept; run and tick walk through `states`."""

    store: FakeStore
    states: list[RolloutState] = field(default_factory=list)
    said: list[tuple[str, str, str, str, Mapping[str, Any]]] = field(default_factory=list)
    started: list[LoadedPlan] = field(default_factory=list)
    fails: BaseException | None = None
    taken: Callable[[], None] | None = None
    """another process claims the rollout just before this one does: what that looks like in the store"""
    ran: int = 0
    forced: bool = False

    def start(self, loaded: LoadedPlan, *, actor: str) -> StoredRollout:
        self.started.append(loaded)
        return next(iter(self.store.rows.values()))

    def adopt(self, loaded: LoadedPlan, canary: str, *, delete: bool, actor: str, reason: str) -> StoredRollout:
        self.said.append((canary, "adopt", actor, reason, {"delete": delete}))
        return next(iter(self.store.rows.values()))

    async def takeover(self, at: GPUStack, route: str, loaded: LoadedPlan | None, *, actor: str, reason: str) -> StoredRollout:
        self.said.append((route, "takeover", actor, reason, {"server": at.server, "plan": loaded is not None}))
        return next(iter(self.store.rows.values()))

    async def stable_only(self, at: GPUStack, route: str, stable: Sequence[str], *, actor: str, reason: str) -> StoredRollout:
        self.said.append((route, "stable-only", actor, reason, {"server": at.server, "stable": list(stable)}))
        return next(iter(self.store.rows.values()))

    def retry(self, rollout_id: str, *, actor: str, reason: str) -> StoredRollout:
        self.said.append((rollout_id, "retry", actor, reason, {}))
        return self.store.load(rollout_id)

    def say(self, rollout_id: str, verb: str, actor: str, reason: str, args: Mapping[str, Any]) -> RolloutState:
        state = self.store.load(rollout_id).state
        refuse(state, "accept_inconclusive" if verb == "approve" and args.get("accept_inconclusive") else verb, args)
        self.said.append((state.id, verb, actor, reason, args))
        return state

    async def run(
        self,
        rollout_id: str,
        *,
        until: Callable[[RolloutState], bool],
        on_event: Callable[[Event, RolloutState], None],
        force: bool = False,
    ) -> RolloutState:
        self.forced = force
        self.ran += 1
        if self.fails is not None:
            raise self.fails
        if self.taken is not None:
            self.taken()
            raise RouteTaken("is being run by another process")
        last = self.store.load(rollout_id).state
        for last in self.states:
            self.store.put(last)
            on_event(event("step", "goes on", step=last.step.value), last)
            if last.terminal or until(last):
                break
        return last

    async def tick(self, rollout_id: str, on_event: Callable[[Event, RolloutState], None]) -> RolloutState:
        if self.fails is not None:
            raise self.fails
        return self.states[0] if self.states else self.store.load(rollout_id).state


@dataclass
class FakeDesk:
    """The three together."""

    store: FakeStore
    service: FakeService
    clock: FakeClock

    def put(self, *states: RolloutState, **more: Any) -> FakeDesk:
        for one in states:
            self.store.put(one, **more)
        return self


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> FakeDesk:
    """Every command of this test works on this desk; nothing touches a file or a socket."""
    store = FakeStore()
    made = FakeDesk(store, FakeService(store), FakeClock())

    @contextlib.contextmanager
    def opened(*_args: object, **_kwargs: object) -> Iterator[FakeStore]:
        yield store

    monkeypatch.setattr(wiring, "open_store", opened)
    monkeypatch.setattr(wiring, "service", lambda *_: made.service)
    monkeypatch.setattr(wiring, "say", lambda _store, *said: made.service.say(*said))
    monkeypatch.setattr(Desk, "clock", made.clock, raising=False)
    monkeypatch.setattr("rollout.cli.desk.SystemClock", lambda: made.clock)
    monkeypatch.setenv("ROLLOUT_ACTOR", "ana")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ROLLOUT_STORE", raising=False)
    return made


class FakeBackend:
    """Shows one world; derives by name only."""

    def __init__(self, world: World, error: RolloutError | None = None) -> None:
        self.world, self.error = world, error

    async def observe(self, scope: Scope) -> World:
        if self.error is not None:
            raise self.error
        return self.world

    def derive(self, stable: Mapping[str, Any], change: Mapping[str, Any], sizing: Mapping[str, Any], name: str) -> dict[str, Any]:
        return {**stable, **change["to"], "name": name}

    def diff(self, stable: Mapping[str, Any], canary: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
        return [(k, stable.get(k), v) for k, v in canary.items() if stable.get(k) != v]


class FakeMeasurer:
    """Answers what it is told about the inference key."""

    def __init__(self, key: dict[str, Any] | RolloutError | None = None) -> None:
        self.key = key

    def knows(self, verb: str) -> bool:
        return verb == "probe_key"

    async def perform(self, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(self.key, RolloutError):
            raise self.key
        return self.key or {"status": 200, "listed": True, "error": ""}
