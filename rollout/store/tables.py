"""The five tables. Columns only: what they mean is in `records`, who may write them in `repo`.

Times are UTC text of fixed width and JSON is canonical text, on both databases alike: what is hashed is what is stored.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Dialect, Index, MetaData, String, Text, text
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from rollout.errors import StoreDamaged
from rollout.store.chain import canonical, instant

Json = Any

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Instant(TypeDecorator[datetime]):
    """An aware time, stored as UTC text with microseconds."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else instant(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        try:
            return None if value is None else datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise unreadable("a time", value) from error


class CanonicalJson(TypeDecorator[Json]):
    """A JSON value, stored as canonical text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Json, dialect: Dialect) -> str:
        return canonical(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Json:
        try:
            return json.loads(value or "")
        except (TypeError, ValueError, RecursionError) as error:
            raise unreadable("JSON", value) from error


BACK = (
    "Restore the store from a backup; `rollout journal ID --verify` says whether the journal is sound. "
    "`rollout rollback --route NAME --server URL --store ANOTHER` goes back without it."
)


def unreadable(kind: str, value: object) -> StoreDamaged:
    """Something else than this tool wrote the value."""
    return StoreDamaged("The store holds a value that cannot be read.", why=f"Expected {kind}, found {str(value)[:60]!r}.", hint=BACK)


class Table(SQLModel):
    """Base of ours, with metadata of its own: another SQLModel user in the process does not mix with it."""

    metadata: ClassVar[MetaData] = MetaData(naming_convention=NAMING)


class RolloutTable(Table, table=True):
    """One rollout: where it is, who ticks it, and the head of its journal."""

    __tablename__ = "rollouts"
    __table_args__ = (
        Index("one_active_per_route", "server", "route", unique=True, sqlite_where=text("active"), postgresql_where=text("active")),
        Index("ix_rollouts_route", "route"),
    )

    id: str = Field(primary_key=True)
    name: str
    server: str
    route: str
    plan_digest: str
    plan: dict[str, Json] = Field(sa_type=CanonicalJson)
    plan_text: str = Field(sa_type=Text)
    phase: str
    state: dict[str, Json] = Field(sa_type=CanonicalJson)
    active: bool
    owner: str | None = None
    fence: int = 0
    lease_until: datetime | None = Field(default=None, sa_type=Instant)
    next_wake: datetime | None = Field(default=None, sa_type=Instant)
    created: datetime = Field(sa_type=Instant)
    ended: datetime | None = Field(default=None, sa_type=Instant)
    exit_code: int | None = None
    head_seq: int
    head_hash: str
    seal: str | None = None
    """`rollouts.sealed` of the row; None: last written by a release that had none"""


class JournalTable(Table, table=True):
    """Append-only: triggers refuse a change, the chain shows one that was forced."""

    __tablename__ = "journal"

    rollout_id: str = Field(primary_key=True, foreign_key="rollouts.id")
    seq: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    at: datetime = Field(sa_type=Instant)
    kind: str
    actor: str
    text: str = Field(sa_type=Text)
    data: dict[str, Json] = Field(sa_type=CanonicalJson)
    prev_hash: str
    hash: str


class CommandTable(Table, table=True):
    """What people said. `consumed_at` is set in the transaction that journals it."""

    __tablename__ = "commands"

    id: int | None = Field(default=None, primary_key=True)
    rollout_id: str = Field(foreign_key="rollouts.id", index=True)
    verb: str
    actor: str
    reason: str = Field(sa_type=Text)
    args: dict[str, Json] = Field(sa_type=CanonicalJson)
    at: datetime = Field(sa_type=Instant)
    consumed_at: datetime | None = Field(default=None, sa_type=Instant)


class MetaTable(Table, table=True):
    """Facts about the store itself: `store_id`."""

    __tablename__ = "meta"

    key: str = Field(primary_key=True)
    value: str


class ReportTable(Table, table=True):
    """Staging capacity reports by spec digest; the newest one counts."""

    __tablename__ = "reports"

    id: int | None = Field(default=None, primary_key=True)
    spec_digest: str = Field(index=True)
    report: dict[str, Json] = Field(sa_type=CanonicalJson)
    created: datetime = Field(sa_type=Instant)
