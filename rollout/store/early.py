"""`abort` and `rollback` are left in a SQLite store before SQLAlchemy and pydantic are loaded: who goes back is heard at once.

They take a third of a second to load, more than the rest of going back takes. Only in the plain case: a file of this release's
schema, one rollout that the id begins, under way and not on its way back. In any other case nothing is written, and the store's own
way, tried next, says what is wrong. Reads no journal, loads nothing of weight.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rollout.store.chain import instant, plain

SCHEMA = "0002"
"""the revision whose tables are written here; a newer one is left to the store's own way"""
VERBS = ("abort", "rollback")
UNDERWAY = ("pending", "running", "holding", "halted")
"""phases from which both verbs are always accepted while no cleanup has begun"""
WAIT_SECONDS = 10
_VERSION = "SELECT version_num FROM rollout_version"
_FIND = "SELECT id, state, owner, lease_until FROM rollouts WHERE id = :id OR substr(id, 1, length(:id)) = :id LIMIT 2"
_SAY = "INSERT INTO commands (rollout_id, verb, actor, reason, args, at) VALUES (?, ?, ?, ?, '{}', ?)"


@dataclass(frozen=True)
class Heard:
    """A word that was left: for which rollout, and whose lease on it lasts."""

    id: str
    owner: str | None


def leave(where: str, begins: str, verb: str, actor: str, reason: str, now: datetime) -> Heard | None:
    """Leave a word for the one rollout whose id `begins` so. None: nothing was written."""
    if "://" in where or not begins or verb not in VERBS or not Path(where).is_file():
        return None
    try:
        uri = f"{Path(where).absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")  # closing without a commit takes everything back
            heard = _plain_case(connection, begins, instant(now))
            if heard is not None:
                connection.execute(_SAY, (heard.id, verb, plain(actor), plain(reason), instant(now)))
                connection.execute("COMMIT")
            return heard
    except (sqlite3.Error, ValueError, LookupError, TypeError, RecursionError):  # all but the first: a row that something else changed
        return None


def _plain_case(connection: sqlite3.Connection, begins: str, now: str) -> Heard | None:
    if connection.execute(_VERSION).fetchone() != (SCHEMA,):
        return None
    found = connection.execute(_FIND, {"id": begins}).fetchall()
    if len(found) != 1:
        return None
    rollout_id, text, owner, until = found[0]
    state: dict[str, Any] = json.loads(text)
    underway = state["phase"] in UNDERWAY and state["step"] != "cleanup" and state["undo"] is None
    return Heard(rollout_id, owner if owner and until and until > now else None) if underway else None
