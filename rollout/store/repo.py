"""The store's face: one method, one transaction. What happens inside one is in the rooms beside this file.

Every method may raise StoreError: the store is then as it was before the call, or (when the answer to a commit was lost)
as it should be after it. So after a StoreError from `append`, load again and go on from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from rollout.domain.state import Event, RolloutState
from rollout.errors import RolloutError, RouteTaken, StoreError
from rollout.store import commands, journal, lease, opening, reports, rollouts
from rollout.store.chain import Json
from rollout.store.dialects import WRITES
from rollout.store.faults import translated
from rollout.store.owner import Owner
from rollout.store.records import Command, JournalRow, StoredReport, StoredRollout

Commands = list[Command]  # inside the class `list` is a method
Journal = list[JournalRow]


class Store:
    """An open store. Safe to use from several threads; close it, or use it in a `with`."""

    def __init__(
        self, engine: Engine, where: str, store_id: str, now: Callable[[], datetime], there: Callable[[], None] = lambda: None
    ) -> None:
        """Use `Store.open`. `there` raises when the store is not where it was opened any more."""
        self._there = there
        self.where = where
        self.store_id = store_id
        self._engine = engine
        self._writer = engine.execution_options(**WRITES)
        self._now = now

    @classmethod
    def open(cls, url_or_path: str, *, create: bool = True, now: Callable[[], datetime]) -> Store:
        """The store at a SQLite path, or at a `sqlite:` or `postgresql:` URL; its schema is brought up to date.

        `create`: make it when there is none. StoreError when it cannot be used, and when a newer release wrote it.
        """
        url = opening.parse(url_or_path)
        where = opening.describe(url)
        engine = opening.connect(url, create=create)
        try:
            store_id = opening.prepare(engine, where, create=create)
            return cls(engine, where, store_id, now, opening.watched(url, where))
        except BaseException:
            engine.dispose()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def create(self, state: RolloutState, plan: dict[str, Json], plan_text: str, event: Event) -> None:
        """A new rollout and its first journal row. RouteTaken, naming the holder, when an active one has the route."""
        try:
            with self._write() as session:
                row = rollouts.insert(session, state, plan, plan_text)
                journal.extend(session, row, [event])
                rollouts.seal(row)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise self._refused(state) from error

    def load(self, rollout_id: str) -> StoredRollout:
        """By id or the only beginning of one. NotFound names what comes near."""
        with self._read() as session:
            return rollouts.stored(rollouts.find(session, rollout_id))

    def list(self, *, active_only: bool = False, route: str | None = None, limit: int = 100) -> list[StoredRollout]:
        """Newest first, at most `limit`."""
        with self._read() as session:
            return [rollouts.stored(row) for row in rollouts.listed(session, active_only=active_only, route=route, limit=limit)]

    def active_ids(self) -> Sequence[str]:
        """Rollouts that have not ended, newest first: also those whose row cannot be read, so that one does not hide the others."""
        with self._read() as session:
            return rollouts.active_ids(session)

    def active_on(self, server: str, route: str) -> StoredRollout | None:
        """Who holds the route."""
        with self._read() as session:
            row = rollouts.active_on(session, server, route)
            return None if row is None else rollouts.stored(row)

    def latest_on(self, server: str, route: str) -> StoredRollout | None:
        """The one that was begun last on the route, under way or ended."""
        with self._read() as session:
            row = rollouts.latest_on(session, server, route)
            return None if row is None else rollouts.stored(row)

    def claim(self, rollout_id: str, owner: Owner, ttl: float, *, force: bool = False) -> int:
        """The new fence, one more than before; the lease lasts `ttl` seconds.

        RouteTaken while the lease of another owner lasts, unless that one's process is seen to be gone, or `force`.
        """
        with self._write() as session:
            return lease.claim(rollouts.get(session, rollout_id, lock=True), owner, ttl, self._now(), force=force)

    def renew(self, rollout_id: str, fence: int, ttl: float) -> None:
        """The lease lasts `ttl` seconds from now. FencedOff when a later claim was made."""
        with self._write() as session:
            lease.fenced(session, rollout_id, fence).lease_until = self._now() + timedelta(seconds=ttl)

    def release(self, rollout_id: str, fence: int) -> None:
        """Anyone may claim at once. Nothing happens when a later claim was made: there is nothing left to give back."""
        with self._write() as session:
            row = rollouts.get(session, rollout_id, lock=True)
            if row.fence == fence:
                row.owner = row.lease_until = None

    def append(
        self,
        rollout_id: str,
        fence: int,
        events: Sequence[Event],
        state: RolloutState,
        *,
        next_wake: datetime | None = None,
        consumed: Sequence[int] = (),
    ) -> None:
        """Journal rows, the state after them, the next wake-up and the commands taken up: all or nothing.

        FencedOff when a later claim was made. A terminal state frees the route.
        """
        with self._write() as session:
            row = lease.fenced(session, rollout_id, fence)
            journal.extend(session, row, events)
            rollouts.update(row, state)
            rollouts.seal(row)
            row.next_wake = next_wake
            commands.consume(session, rollout_id, consumed, self._now())

    def say(self, rollout_id: str, verb: str, actor: str, reason: str, args: dict[str, Json]) -> int:
        """Leaves a command for the next tick; its id. NotFound when there is no such rollout."""
        with self._write() as session:
            return commands.say(session, rollout_id, verb, actor, reason, args, self._now())

    def pending(self, rollout_id: str) -> Commands:
        """Commands that no tick has taken up, in order."""
        with self._read() as session:
            return commands.pending(session, rollout_id)

    def journal(self, rollout_id: str, *, after: int = 0) -> Journal:
        """Rows behind `after`, in order. NotFound when there is no such rollout."""
        with self._read() as session:
            rollouts.get(session, rollout_id)
            return journal.rows(session, rollout_id, after)

    def verify(self, rollout_id: str) -> int:
        """How many rows were checked. JournalBroken names the first that was edited, added or removed."""
        with self._read() as session:
            rollouts.get(session, rollout_id)
            return journal.verify(session, rollout_id)

    def save_report(self, spec_digest: str, report: dict[str, Json]) -> None:
        """Keeps a staging capacity report."""
        with self._write() as session:
            reports.save(session, spec_digest, report, self._now())

    def find_report(self, spec_digest: str, max_age: float) -> StoredReport | None:
        """The newest report for the spec, when it is at most `max_age` seconds old."""
        with self._read() as session:
            return reports.find(session, spec_digest, max_age, self._now())

    def _refused(self, state: RolloutState) -> RolloutError:
        with self._read() as session:
            holder = rollouts.active_on(session, state.server, state.route)
            if holder is not None:
                return rollouts.route_taken(holder)
        return RouteTaken(
            f"Rollout {state.id} was not stored.",
            why=f"Its id is known already, or route {state.route} was held until a moment ago.",
            hint="Run the command again.",
        )

    @contextmanager
    def _read(self) -> Iterator[Session]:
        self._there()
        with translated(self.where), Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        self._there()
        with translated(self.where), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session
