"""What each database must be told so that a commit is kept and a wait ends. Nothing about our tables."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, event

from rollout.errors import StoreError

WAIT_SECONDS = 10
"""how long a write waits for another writer; a SQLite URL may say otherwise (`?timeout=2`)"""
WRITES = {"rollout_writes": True}
"""execution option of an engine whose transactions write"""


def configure(engine: Engine, where: str) -> None:
    """Registers what each new connection is told. StoreError (at the first connection) when SQLite cannot keep a write-ahead log."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _record: _prepare_sqlite(connection, where))
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", lambda connection, _record: _prepare_postgresql(connection))


def _prepare_sqlite(connection: Any, where: str) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the driver begins too late for a lock on reading
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    mode = _write_ahead(connection)
    if mode not in ("wal", "memory"):
        hint = "Put the store on a local disk, or use PostgreSQL: --store postgresql://…"
        raise StoreError(f"The store {where} lies on a disk without write-ahead log.", why=f"SQLite stays in mode {mode!r}.", hint=hint)


def _write_ahead(connection: Any) -> str:
    """Mode after asking for the log. Two processes that make one file at once disturb each other here, once."""
    try:
        return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
    connection.execute("BEGIN IMMEDIATE")  # waits for the other one, as journal_mode does not
    connection.execute("ROLLBACK")
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("rollout_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare_postgresql(connection: Any) -> None:
    connection.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
    connection.execute(f"SET statement_timeout = '{3 * WAIT_SECONDS}s'")
    connection.commit()
