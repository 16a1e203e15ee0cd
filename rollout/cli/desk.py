"""What most verbs begin with: the settings, the open store, and the rollout they were asked about. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rollout.cli import spoken, wiring
from rollout.clock import Clock, SystemClock
from rollout.domain.state import Event, RolloutState
from rollout.report.events import routine
from rollout.report.view import EVENTS_SHOWN, Owner, SaidView, StatusView, view_of
from rollout.settings import Settings

if TYPE_CHECKING:
    from rollout.engine.service import Service
    from rollout.store import JournalRow, Store, StoredRollout


@dataclass
class Desk:
    """An open store with the clock and the person."""

    settings: Settings
    store: Store
    clock: Clock
    _read: dict[str, tuple[int, list[Event]]] = field(default_factory=dict)
    """rollout -> last journal row seen, and the last entries worth a line: a journal is long and is read once"""

    @property
    def actor(self) -> str:
        return spoken.actor(self.settings.actor)

    def service(self) -> Service:
        """The engine over this store."""
        return wiring.service(self.store, self.clock)

    def say(self, rollout_id: str, verb: str, reason: str, args: dict[str, Any] | None = None) -> RolloutState:
        """Leave a word for whoever ticks; the state as it was then."""
        return wiring.say(self.store, rollout_id, verb, self.actor, reason, args or {})

    def view(self, stored: StoredRollout, *, events: bool = True) -> StatusView:
        """The rollout in words, with its last journal entries."""
        told = self._last(stored.state.id) if events else []
        waiting = () if stored.state.terminal else self.store.pending(stored.state.id)
        said = [SaidView(verb=c.verb, actor=c.actor, reason=c.reason, at=c.at) for c in waiting]
        return view_of(stored.state, wiring.plan_of(stored), told, self.owner(stored), said)

    def _last(self, rollout_id: str) -> list[Event]:
        seen, kept = self._read.get(rollout_id, (0, []))
        rows = self.store.journal(rollout_id, after=seen)
        kept = [*kept, *(event for event in map(event_of, rows) if not routine(event))][-2 * EVENTS_SHOWN :]
        self._read[rollout_id] = (rows[-1].seq if rows else seen, kept)
        return kept

    def owner(self, stored: StoredRollout) -> Owner | None:
        """Who ticks it; None when the lease is over or its process is gone."""
        if stored.owner is None or stored.lease_until is None or stored.lease_until <= self.clock.now():
            return None
        return Owner(name=stored.owner.rpartition(":")[0], until=stored.lease_until) if wiring.alive(stored.owner) else None


def event_of(row: JournalRow) -> Event:
    """The entry as the engine wrote it."""
    return Event(kind=row.kind, at=row.at, actor=row.actor, text=row.text, data=row.data)


@contextmanager
def opened(store: str | None, actor: str | None = None, *, create: bool = False) -> Iterator[Desk]:
    """The desk of one command. `create`: make the store when there is none."""
    settings, clock = Settings.read(store=store, actor=actor), SystemClock()
    with wiring.open_store(settings.store, clock, create=create) as found:
        yield Desk(settings, found, clock)
