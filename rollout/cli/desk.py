"""What most verbs begin with: the settings, the open store, and the rollout they were asked about. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.clock import Clock, SystemClock
from rollout.report.view import EVENTS_SHOWN, Owner, StatusView, view_of
from rollout.settings import Settings

if TYPE_CHECKING:
    from rollout.engine.service import Service
    from rollout.store import Store, StoredRollout


@dataclass(frozen=True)
class Desk:
    """An open store with the clock and the person."""

    settings: Settings
    store: Store
    clock: Clock

    @property
    def actor(self) -> str:
        return self.settings.actor

    def service(self) -> Service:
        """The engine over this store."""
        return wiring.service(self.store, self.clock)

    def view(self, stored: StoredRollout, *, events: int = EVENTS_SHOWN) -> StatusView:
        """The rollout in words, with its last journal entries."""
        from rollout.domain.state import Event

        rows = self.store.journal(stored.state.id)[-events:] if events else []
        told = [Event(kind=r.kind, at=r.at, actor=r.actor, text=r.text, data=r.data) for r in rows]
        return view_of(stored.state, wiring.plan_of(stored), told, self.owner(stored))

    def owner(self, stored: StoredRollout) -> Owner | None:
        """Who ticks it; None when the lease is over or its process is gone."""
        if stored.owner is None or stored.lease_until is None or stored.lease_until <= self.clock.now():
            return None
        return Owner(name=stored.owner.rpartition(":")[0], until=stored.lease_until) if wiring.alive(stored.owner) else None


@contextmanager
def opened(store: str | None, actor: str | None = None, *, create: bool = False) -> Iterator[Desk]:
    """The desk of one command. `create`: make the store when there is none."""
    settings, clock = Settings.read(store=store, actor=actor), SystemClock()
    with wiring.open_store(settings.store, clock, create=create) as found:
        yield Desk(settings, found, clock)
