"""Rows of `commands`: what people say to a rollout, until a tick has taken it up. What a verb means is not decided here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from rollout.store import rollouts
from rollout.store.chain import Json, plain
from rollout.store.records import Command
from rollout.store.tables import CommandTable


def say(session: Session, rollout_id: str, verb: str, actor: str, reason: str, args: dict[str, Json], now: datetime) -> int:
    """Id of the command. NotFound when there is no such rollout."""
    rollouts.get(session, rollout_id)
    row = CommandTable(rollout_id=rollout_id, verb=verb, actor=plain(actor), reason=plain(reason), args=args, at=now)
    session.add(row)
    session.flush()
    return row.id or 0


def pending(session: Session, rollout_id: str) -> list[Command]:
    """Not yet taken up, in the order they were said."""
    query = select(CommandTable).where(CommandTable.rollout_id == rollout_id, col(CommandTable.consumed_at).is_(None))
    found = session.exec(query.order_by(col(CommandTable.id)))
    return [Command(**row.model_dump(exclude={"consumed_at"})) for row in found]


def consume(session: Session, rollout_id: str, ids: Sequence[int], now: datetime) -> None:
    """Marks them as taken up. One of another rollout, or already taken up, stays as it is."""
    if not ids:
        return
    mine = (col(CommandTable.rollout_id) == rollout_id, col(CommandTable.consumed_at).is_(None))
    session.execute(update(CommandTable).where(col(CommandTable.id).in_(ids), *mine).values(consumed_at=now))
