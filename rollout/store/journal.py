"""Rows of `journal`: added at the head, read, checked. Nothing here changes or removes one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import String, select, type_coerce
from sqlmodel import Session, col
from sqlmodel import select as select_rows

from rollout.domain.state import Event
from rollout.store.chain import Link, canonical, check, instant, plain
from rollout.store.records import JournalRow
from rollout.store.tables import JournalTable, RolloutTable


def extend(session: Session, row: RolloutTable, events: Sequence[Event]) -> None:
    """Chains `events` behind the head of the rollout, whose row the caller has locked, and moves the head."""
    for event in events:
        link = Link(
            rollout_id=row.id,
            seq=row.head_seq + 1,
            at=instant(event.at),
            kind=plain(event.kind),
            actor=plain(event.actor),
            text=plain(event.text),
            data=canonical(event.data),
            prev_hash=row.head_hash,
        )
        link = replace(link, hash=link.digest())
        session.add(
            JournalTable(
                rollout_id=link.rollout_id,
                seq=link.seq,
                at=event.at,
                kind=link.kind,
                actor=link.actor,
                text=link.text,
                data=event.data,
                prev_hash=link.prev_hash,
                hash=link.hash,
            )
        )
        row.head_seq, row.head_hash = link.seq, link.hash


def rows(session: Session, rollout_id: str, after: int) -> list[JournalRow]:
    """Rows with a greater `seq`, in order."""
    query = select_rows(JournalTable).where(JournalTable.rollout_id == rollout_id, JournalTable.seq > after)
    return [JournalRow(**row.model_dump()) for row in session.exec(query.order_by(col(JournalTable.seq)))]


def verify(session: Session, rollout_id: str) -> int:
    """How many rows fit the chain, to the head. JournalBroken names the first that does not.

    One statement reads head and rows together, so that a tick at the same time raises no alarm.
    """
    texts = [type_coerce(column, String) for column in (col(JournalTable.at), col(JournalTable.data))]
    query = (
        select(
            col(RolloutTable.head_seq),
            col(RolloutTable.head_hash),
            col(JournalTable.seq),
            texts[0],
            *(col(c) for c in (JournalTable.kind, JournalTable.actor, JournalTable.text)),
            texts[1],
            *(col(c) for c in (JournalTable.prev_hash, JournalTable.hash)),
        )
        .select_from(RolloutTable)
        .outerjoin(JournalTable, col(JournalTable.rollout_id) == col(RolloutTable.id))
        .where(col(RolloutTable.id) == rollout_id)
        .order_by(col(JournalTable.seq))
    )
    found = session.execute(query).all()
    head_seq, head_hash = found[0][:2]

    def links() -> Iterator[Link]:
        for _seq, _hash, seq, at, kind, actor, text, data, prev_hash, own_hash in found:
            if seq is not None:
                yield Link(rollout_id, seq, at, kind, actor, text, data, prev_hash, own_hash)

    return check(rollout_id, links(), head_seq, head_hash)
