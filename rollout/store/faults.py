"""What a database complains about → a StoreError that names the store and the way out. Opens nothing.

SQLite says it by result code (https://sqlite.org/rescode.html), PostgreSQL by SQLSTATE (appendix A of its manual).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from rollout.errors import NotAStore, NotFound, StoreDamaged, StoreError

_ANOTHER = "or name another store with --store"
_WITHOUT = "`rollout rollback --route NAME --server URL --store ANOTHER` goes back without it."
_SPACE = f"Free some space and run the command again: nothing was half written. {_WITHOUT}"
_LITTLE = 1 << 16
"""bytes; with less than that free SQLite cannot open its log"""

_SQLITE: tuple[tuple[str, str, str], ...] = (
    ("SQLITE_BUSY", "is locked by another process", "Wait for that process (`fuser PATH` names it), then run the command again."),
    ("SQLITE_LOCKED", "is locked by another process", "Wait for that process (`fuser PATH` names it), then run the command again."),
    ("SQLITE_READONLY", "is read-only", f"Give this user the right to write the file and its folder, {_ANOTHER}."),
    ("SQLITE_FULL", "cannot grow: its disk is full", _SPACE),
    ("SQLITE_NOTADB", "is not a rollout store", f"Move that file away to begin a new store, {_ANOTHER}."),
    ("SQLITE_CORRUPT", "is damaged: cut short or overwritten", f"Restore it from a backup, {_ANOTHER}. {_WITHOUT}"),
    ("SQLITE_CANTOPEN", "cannot be opened", f"Check that its folder exists and that this user may write there, {_ANOTHER}."),
    ("SQLITE_PERM", "cannot be opened", f"Check that this user may read and write the file and its folder, {_ANOTHER}."),
    ("SQLITE_IOERR", "cannot be read or written: the disk failed", f"Look at the disk and at the kernel's log. {_WITHOUT}"),
)
_POSTGRESQL: tuple[tuple[str, str, str], ...] = (
    ("28", "refused the login", "Check user and password: in the URL, PGPASSWORD or ~/.pgpass."),
    ("3D", "does not exist", "Create it with `createdb NAME`."),
    ("42501", "does not let this user do that", "Let this user own the store's schema, or use the user who made it."),
    ("25006", "is read-only", "It is a replica: name the primary."),
    ("53100", "cannot grow: its disk is full", _SPACE),
    ("53", "has no room for another connection", "Close some, or raise max_connections."),
    ("55P03", "is locked by another process", "Wait for that process (pg_stat_activity names it), then run the command again."),
    ("57014", "took too long to answer", "Look at its load and at its locks, then run the command again."),
    ("42P07", "holds tables of something else", f"Give the store a database or a schema of its own, {_ANOTHER}."),
)
_KINDS: dict[str, type[StoreError]] = {
    "is not a rollout store": NotAStore,
    "holds tables of something else": NotAStore,
    "does not exist": NotAStore,
    "is damaged: cut short or overwritten": StoreDamaged,
    "cannot be used": StoreDamaged,
}
"""what a person must look at, by the words above; all else may be gone at the next try"""
_NO_ANSWER = "Check that the server runs, and host, port, database, user and password in the URL."


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turns a database error inside the block into StoreError about the store at `where`; its cause is the original."""
    try:
        yield
    except DBAPIError as error:
        raise store_error(where, error.orig or error) from error
    except sqlite3.Error as error:
        raise store_error(where, error) from error
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8: no database takes them, so nothing was ever stored under them
        raise NotFound("What was named does not exist in this store.", why="It is not UTF-8 text, and all names here are.") from None
    except PoolTimeout as error:
        raise StoreError(f"The store {where} is busy.", why=str(error), hint="Run the command again.") from error


def store_error(where: str, error: BaseException) -> StoreError:
    """What, why and what next."""
    what, hint = _disk(where, error) or _find(error)
    why = str(error).strip().splitlines() or [type(error).__name__]
    kind = _KINDS.get(what, StoreError)
    return kind(f"The store {where} {what}.", why=why[0], hint=hint.replace("PATH", where))


def _disk(where: str, orig: BaseException) -> tuple[str, str] | None:
    """SQLite says "disk I/O error" and "unable to open" of a disk that is full or mounted read-only; the disk itself says which."""
    if not str(getattr(orig, "sqlite_errorname", "")).startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return None
    try:
        disk = os.statvfs(Path(where).parent)
    except (OSError, ValueError):
        return None
    if disk.f_flag & os.ST_RDONLY:
        return "is on a disk that is mounted read-only", f"Mount it writable again, {_ANOTHER}. {_WITHOUT}"
    if disk.f_bavail * disk.f_frsize < _LITTLE:
        return "cannot grow: its disk is full", _SPACE
    return None


def _find(orig: BaseException) -> tuple[str, str]:
    name = getattr(orig, "sqlite_errorname", None)
    if isinstance(name, str):
        known, code = _SQLITE, name
    else:
        known, code = _POSTGRESQL, getattr(orig, "sqlstate", None) or "08"
    if code[:2] == "08" or code[:4] == "57P0":
        return "does not answer", _NO_ANSWER
    found = next(((what, hint) for prefix, what, hint in known if code.startswith(prefix)), None)
    return found or ("cannot be used", f"If something else changed its tables, restore it from a backup, {_ANOTHER}. {_WITHOUT}")
