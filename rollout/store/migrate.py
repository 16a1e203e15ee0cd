"""Brings a store's schema to the one this release knows, in one transaction. Never goes back, never guesses a newer one."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.sql import column, table

from rollout.errors import NotAStore
from rollout.store.tables import Table

KNOWN = ("0001", "0002")
"""revisions of this release, oldest first"""
HEAD = KNOWN[-1]
VERSION_TABLE = "rollout_version"
"""not alembic's own name: a PostgreSQL database may hold another program's"""
_LOCK = 7_251_190_423
"""advisory lock on PostgreSQL: any number nobody else uses"""


def look(connection: Connection, where: str) -> str | None:
    """Revision of the store, None when there is none yet. StoreError when a newer release wrote it, or it is something else."""
    names = set(inspect(connection).get_table_names())  # one look: between two, another process may have made them all
    if VERSION_TABLE not in names:
        _refuse_foreign(connection, where, names)
        return None
    found = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    if found not in KNOWN:
        why = f"Its schema is {found}; this release knows up to {HEAD}."
        hint = "Upgrade rollout to the release that wrote it, or name another store with --store."
        raise NotAStore(f"The store {where} was written by a newer release.", why=why, hint=hint)
    return str(found)


def migrate(connection: Connection, where: str) -> None:
    """To HEAD, inside the open write transaction of `connection`. StoreError as `look`."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    if look(connection, where) != HEAD:  # else another process was faster
        _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # slow to import, and needed once in a store's life
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "rollout.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, version_table=VERSION_TABLE)
    command.upgrade(config, HEAD)


def _refuse_foreign(connection: Connection, where: str, names: set[str]) -> None:
    """A SQLite file with any table is someone's; in PostgreSQL only our own names matter."""
    if connection.dialect.name != "sqlite":
        names = names & set(Table.metadata.tables)
    if names:
        why = f"It holds tables of something else: {', '.join(sorted(names)[:5])}."
        raise NotAStore(f"The store {where} is not a rollout store.", why=why, hint="Name another store with --store.")
