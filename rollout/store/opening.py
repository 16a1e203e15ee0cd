"""From a path or URL to a database that is ours, of our schema, and has an id. Reads and writes no rollout."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, insert, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool
from sqlmodel import col

from rollout.errors import NotAStore, StoreDamaged
from rollout.store import migrate
from rollout.store.dialects import WAIT_SECONDS, WRITES, configure, keep_log
from rollout.store.faults import translated
from rollout.store.tables import BACK, MetaTable

_LOGIN = re.compile(r"(?:postgres(?:ql)?:)?[^/:]*:[^/]*@")
_SMALLEST = 512
"""bytes of the shortest page SQLite has"""
_KINDS = "A path names a SQLite file; postgresql://USER@HOST/DATABASE names PostgreSQL."


def parse(url_or_path: str) -> URL:
    """The database that is meant. StoreError for a URL we cannot read or a database without partial unique indexes."""
    if _LOGIN.match(url_or_path):  # not named in the message: it holds a password
        raise NotAStore("The store's URL cannot be read.", why="It has a user and a password, but no KIND:// before them.", hint=_KINDS)
    if "://" not in url_or_path:
        return URL.create("sqlite", database=str(Path(url_or_path).expanduser().absolute()))
    try:
        url = make_url(url_or_path)
    except (ArgumentError, ValueError) as error:
        raise NotAStore("The store's URL cannot be read.", why="It is not of the form KIND://USER@HOST/DATABASE.", hint=_KINDS) from error
    kind = url.get_backend_name()
    if kind in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise NotAStore(f"The store {describe(url)} is of a kind we do not know.", why=f"{kind!r} is not supported.", hint=_KINDS)
    return url


def describe(url: URL) -> str:
    """The store's name for messages: a path, or a URL whose password is hidden and whose options are left out."""
    if url.get_backend_name() == "sqlite":
        return url.database or ":memory:"
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string()


def connect(url: URL, *, create: bool) -> Engine:
    """An engine that is told what it must be. StoreError when there is no file, no folder can be made, or no driver is installed."""
    where = describe(url)
    options: dict[str, object] = {"pool_pre_ping": True}
    if url.get_backend_name() == "sqlite":
        options = {} if "timeout" in url.query else {"connect_args": {"timeout": WAIT_SECONDS}}
        if url.database in (None, "", ":memory:"):
            options["poolclass"] = StaticPool  # one connection, else each thread has a store of its own
        elif "uri" not in url.query:
            _look_at(Path(url.database or ""), create=create)
    try:
        engine = create_engine(url, **options)
    except (ImportError, NoSuchModuleError) as error:
        hint = "Install the driver: pip install 'psycopg[binary]'."
        raise NotAStore(f"The store {where} needs a driver that is not installed.", why=str(error), hint=hint) from error
    configure(engine)
    return engine


def prepare(engine: Engine, where: str, *, create: bool) -> str:
    """The store's id, after its schema was brought up to date. StoreError when it cannot be, or when there is no store."""
    with translated(where), engine.connect() as connection, connection.begin():
        found = migrate.look(connection, where)
        store_id = None if found is None else _store_id(connection, where)
    if found is None and not create:
        raise _no_store(where)
    with translated(where):
        keep_log(engine, where)
    if found == migrate.HEAD and store_id is not None:
        return store_id
    with translated(where), engine.execution_options(**WRITES).connect() as connection, connection.begin():
        migrate.migrate(connection, where)
        if _find_id(connection) is None:
            connection.execute(insert(MetaTable).values(key="store_id", value=str(uuid.uuid4())))
        return _store_id(connection, where)


def watched(url: URL, where: str) -> Callable[[], None]:
    """A look whether the file that was opened is still the one of that name: raises StoreDamaged when it is not.

    SQLite goes on in a file that was deleted or moved away: everything would be done and journaled, and be gone with the process.
    """
    path = url.database or ""
    if url.get_backend_name() != "sqlite" or path in ("", ":memory:") or "uri" in url.query:
        return lambda: None
    opened = _identity(path)

    def look() -> None:
        if _identity(path) != opened:
            why = "Another file has its name now." if Path(path).exists() else "No file has its name any more."
            raise StoreDamaged(f"The store {where} was deleted or moved while it was in use.", why=why, hint=BACK)

    return look


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _find_id(connection: Connection) -> str | None:
    return connection.execute(select(col(MetaTable.value)).where(col(MetaTable.key) == "store_id")).scalar()


def _store_id(connection: Connection, where: str) -> str:
    found = _find_id(connection)
    if found is None:
        raise StoreDamaged(f"The store {where} has lost its id.", why="Its table `meta` was changed.", hint=BACK)
    return found


def _look_at(path: Path, *, create: bool) -> None:
    """Makes the folder for a new store; refuses a short file that SQLite would take for an empty one.

    It only asks for the size: closing a file that SQLite has open elsewhere in this process would drop SQLite's locks.
    """
    hint = "Name a store that this user may read and write with --store."
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if not create:
            raise _no_store(str(path)) from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotAStore(f"The store {path} cannot be made.", why=f"{error.strerror}: {error.filename}", hint=hint) from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise NotAStore(f"The store {path} cannot be opened.", why=getattr(error, "strerror", None) or str(error), hint=hint) from error
    else:
        if path.is_dir():
            raise NotAStore(
                f"The store {path} is a folder.", why="A store is one file.", hint=f"Name a file in it: --store {path / 'rollout.db'}."
            )
        if 0 < size < _SMALLEST:  # 0: killed between making the file and the first write
            raise NotAStore(f"The store {path} is not a rollout store.", why=f"A file of {size} bytes is no database.", hint=hint)


def _no_store(where: str) -> NotAStore:
    hint = "`rollout run PLAN` begins one; --store names another."
    return NotAStore(f"There is no store at {where}.", why="Nothing was ever stored there.", hint=hint)
