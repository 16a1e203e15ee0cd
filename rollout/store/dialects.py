"""What each database must be told so that a commit is kept and a wait ends. Nothing about our tables."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, event

from rollout.errors import NotAStore

WAIT_SECONDS = 10
"""how long a write waits for another writer; a SQLite URL may say otherwise (`?timeout=2`)"""
WRITES = {"rollout_writes": True}
"""execution option of an engine whose transactions write"""
_TURNS = 20


def configure(engine: Engine) -> None:
    """Registers what each new connection and each transaction is told."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", _prepare_postgresql)


def keep_log(engine: Engine, where: str) -> None:
    """Turns SQLite's write-ahead log on; the file remembers. NotAStore on a disk that cannot have one.

    Not told to each new connection: a file that turns out to be another program's must stay as it is.
    """
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()
    try:
        mode = _write_ahead(connection.driver_connection)
    finally:
        connection.close()
    if mode not in ("wal", "memory"):
        hint = "Put the store on a local disk, or use PostgreSQL: --store postgresql://USER@HOST/DATABASE."
        raise NotAStore(f"The store {where} lies on a disk without write-ahead log.", why=f"SQLite stays in mode {mode!r}.", hint=hint)


def _write_ahead(connection: Any) -> str:
    """Mode after asking for the log.

    Of two processes that make one file at the same instant SQLite turns one away at once, without its busy timeout: each
    holds what the other waits for. That one lets go, waits for the other's lock to be gone, and asks again.
    """
    for _ in range(_TURNS):
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the driver begins too late for a lock on reading
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("rollout_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare_postgresql(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
    connection.execute(f"SET statement_timeout = '{3 * WAIT_SECONDS}s'")
    connection.commit()
