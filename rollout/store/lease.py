"""Who may write, until when. A claim raises the fence by one; a writer with an older fence is refused.

The lease says when another engine may try; safety rests on the fence alone, so a wrong clock costs time and nothing else.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session

from rollout.errors import FencedOff, RouteTaken
from rollout.store import rollouts
from rollout.store.chain import instant
from rollout.store.owner import Owner
from rollout.store.tables import RolloutTable


def claim(row: RolloutTable, owner: Owner, ttl: float, now: datetime, *, force: bool) -> int:
    """The new fence. RouteTaken while another live owner's lease lasts, unless `force`. `row` is locked by the caller."""
    if not force and _held_by_another(row, owner, now):
        until = f"until {instant(row.lease_until)}" if row.lease_until else ""
        raise RouteTaken(
            f"Rollout {row.id} ({row.name}) is being run by another process.",
            why=f"{row.owner} holds it {until} and renews that while it lives.",
            hint=f"Stop that process, or wait; `rollout rollback {row.id} --reason WHY` reaches it, or takes over.",
        )
    row.owner, row.fence, row.lease_until = str(owner), row.fence + 1, now + timedelta(seconds=ttl)
    return row.fence


def fenced(session: Session, rollout_id: str, fence: int) -> RolloutTable:
    """The rollout's row, locked. FencedOff when a later claim was made."""
    row = rollouts.get(session, rollout_id, lock=True)
    if row.fence != fence:
        raise FencedOff(
            f"Rollout {row.id} ({row.name}) was taken over; this process writes nothing more.",
            why=f"Its fence is {row.fence}, ours is {fence}; it is run by {row.owner or 'nobody now'}.",
            hint=f"`rollout status {row.id}` shows who runs it.",
        )
    return row


def _held_by_another(row: RolloutTable, owner: Owner, now: datetime) -> bool:
    if row.owner is None or row.owner == str(owner) or row.lease_until is None or row.lease_until <= now:
        return False
    try:
        return Owner.parse(row.owner).alive()
    except ValueError:  # not written by us: nothing but the lease can say
        return True
