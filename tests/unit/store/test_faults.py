"""Every complaint of a database becomes three parts: what with the store's name, why, what next."""

from __future__ import annotations

import os
import sqlite3

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from rollout.errors import StoreError
from rollout.store.faults import store_error, translated


def sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorname = name
    return error


class PgError(psycopg.OperationalError):
    """With a SQLSTATE of the test's choice."""

    def __init__(self, state: str | None) -> None:
        super().__init__("what PostgreSQL said\nDETAIL: more")
        self.sqlstate = state


CASES = [
    (sqlite_error("SQLITE_BUSY"), "is locked by another process", "fuser /var/x.db"),
    (sqlite_error("SQLITE_BUSY_SNAPSHOT"), "is locked by another process", "fuser /var/x.db"),
    (sqlite_error("SQLITE_READONLY_DIRECTORY"), "is read-only", "--store"),
    (sqlite_error("SQLITE_FULL"), "its disk is full", "Free some space"),
    (sqlite_error("SQLITE_NOTADB"), "is not a rollout store", "Move that file away"),
    (sqlite_error("SQLITE_CORRUPT_INDEX"), "is damaged", "backup"),
    (sqlite_error("SQLITE_CANTOPEN"), "cannot be opened", "folder"),
    (sqlite_error("SQLITE_PERM"), "cannot be opened", "read and write"),
    (sqlite_error("SQLITE_IOERR_WRITE"), "the disk failed", "kernel"),
    (sqlite_error("SQLITE_ERROR"), "cannot be used", "backup"),
    (PgError(None), "does not answer", "password in the URL"),
    (PgError("57P03"), "does not answer", "server runs"),
    (PgError("08006"), "does not answer", "server runs"),
    (PgError("28P01"), "refused the login", "PGPASSWORD"),
    (PgError("3D000"), "does not exist", "createdb"),
    (PgError("42501"), "does not let this user", "own"),
    (PgError("25006"), "is read-only", "primary"),
    (PgError("53100"), "its disk is full", "Free some space"),
    (PgError("53300"), "no room for another connection", "max_connections"),
    (PgError("55P03"), "is locked by another process", "pg_stat_activity"),
    (PgError("42P07"), "holds tables of something else", "of its own"),
    (PgError("42P01"), "cannot be used", "backup"),
]


@pytest.mark.parametrize(("orig", "what", "hint"), CASES)
def test_what_why_and_what_next(orig: Exception, what: str, hint: str) -> None:
    with pytest.raises(StoreError) as caught, translated("/var/x.db"):
        raise DBAPIError("SELECT secret", {}, orig)
    error = caught.value
    assert error.message.startswith("The store /var/x.db ")
    assert what in error.message
    assert error.why == str(orig).splitlines()[0]
    assert hint in error.hint
    assert "SELECT" not in error.message + error.why + error.hint


@pytest.mark.parametrize("name", ["SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN"])
@pytest.mark.parametrize(
    ("free", "flags", "what"),
    [(0, 0, "cannot grow: its disk is full"), (9000, os.ST_RDONLY, "mounted read-only"), (9000, 0, "")],
    ids=["full", "read-only", "neither"],
)
def test_what_sqlite_calls_a_failure_of_the_disk_is_asked_of_the_disk(
    monkeypatch: pytest.MonkeyPatch, name: str, free: int, flags: int, what: str
) -> None:
    def disk(_path: object) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 10_000, free, free, 10, 10, 10, flags, 255))

    monkeypatch.setattr(os, "statvfs", disk)
    error = store_error("/var/x.db", sqlite_error(name))
    assert what in error.message
    assert ("--store ANOTHER" in error.hint) == (bool(what) or "IOERR" in name)
    assert ("disk failed" in error.message) == (not what and "IOERR" in name)


def test_an_error_without_words_is_named_by_its_kind() -> None:
    assert store_error("x", sqlite3.DatabaseError()).why == "DatabaseError"


def test_a_pool_that_is_used_up_is_a_busy_store() -> None:
    with pytest.raises(StoreError, match=r"The store x is busy\."), translated("x"):
        raise PoolTimeout


def test_a_complaint_of_the_driver_itself_is_told_the_same_way() -> None:
    with pytest.raises(StoreError, match="is locked"), translated("x"):
        raise sqlite_error("SQLITE_BUSY")


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError), translated("x"):
        raise KeyError
