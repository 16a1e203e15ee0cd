"""A rollout in this process against the sandbox's process, with time that runs faster: for tests that need hundreds of lives.

Real HTTP, a real store file and the real wiring; only the clock is another one, and the engine may be told to die.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from rollout.cli import wiring
from rollout.clock import Clock
from rollout.domain.state import Event, RolloutState
from rollout.engine.service import Service
from rollout.plan.load import load_plan
from rollout.store import Store
from tests.contract.site import Site
from tests.e2e.support import Case, Row

SPEED = 10.0
LIMIT = 4000
"""events after which a run is called a livelock"""
Until = Callable[[RolloutState], bool]


class CrashError(BaseException):
    """The process dies here."""


class FastClock:
    """The machine's clock, `SPEED` times as fast from the moment it was made."""

    def __init__(self) -> None:
        self._began, self._zero = datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._zero) * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


@contextmanager
def keys(site: Site) -> Iterator[None]:
    """The server's keys where the plan says they are, for engines in this process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MKEY", site.described["management_key"])
        patched.setenv("IKEY", site.described["inference_key"])
        yield


@dataclass
class Inside:
    """The engine over one case's plan and store. `points` collects the journal points that were passed, in words."""

    case: Case
    clock: Clock = field(default_factory=FastClock)
    points: list[str] = field(default_factory=list)
    events: list[tuple[Event, RolloutState]] = field(default_factory=list)
    limit: int = LIMIT

    def start(self) -> str:
        """A new rollout of the plan, not ticked yet."""
        with closing(self._store()) as store:
            return self._service(store).start(load_plan(str(self.case.plan)), actor="ana").state.id

    def run(self, rollout_id: str, until: Until = lambda _state: False, at: Callable[[str], None] = lambda _point: None) -> RolloutState:
        """Tick until the end, or until `until`. `at` is told each journal point that is passed, and may raise there."""
        last = ""

        def on_event(event: Event, state: RolloutState) -> None:
            nonlocal last
            last = _words(event, rollout_id)
            self.events.append((event, state))
            assert len(self.events) < self.limit, [e.text for e, _ in self.events[-12:]]

        def checkpoint(name: str) -> None:
            if name == "written" and last.startswith(("intent", "outcome done")):
                return  # the same instant as the point "intent" or "outcome" that follows
            point = name if name == "observed" else f"{name}: {last}"
            self.points.append(point)
            at(point)

        with closing(self._store()) as store:
            service = self._service(store)
            service.checkpoint = checkpoint
            return asyncio.run(service.run(rollout_id, until=until, on_event=on_event))

    def say(self, rollout_id: str, verb: str) -> None:
        """What a person says."""
        with closing(self._store()) as store:
            self._service(store).say(rollout_id, verb, "ana", "because of a test")

    def _store(self) -> Store:
        return Store.open(str(self.case.home / self.case.store), now=self.clock.now)

    def _service(self, store: Store) -> Service:
        return wiring.service(store, self.clock)


def _words(event: Event, rollout_id: str) -> str:
    """An event without what differs from run to run: ids and figures."""
    data: Row = event.data
    match event.kind:
        case "intent":
            return f"intent {data['effect']['verb']} {_plain(event.text, rollout_id)}"
        case "outcome":
            return f"outcome {data['result']} {data['verb']} {_plain(event.text.partition(': ')[2], rollout_id)}"
        case "fact":
            return f"fact {' '.join(sorted(_plain(key, rollout_id) for key in data['facts']))}"
        case "step":
            return f"step {data['step']}"
        case "phase":
            return f"phase {data['phase']}"
        case _:
            return f"{event.kind} {_plain(event.text, rollout_id)}"


def _plain(text: str, rollout_id: str) -> str:
    return re.sub(r"[0-9a-f]*\d[0-9a-f]*(\.\d+)?", "#", text.replace(rollout_id[:8], "ID"))[:100]
