"""A word is left in a SQLite store before SQLAlchemy is loaded, which takes a quarter of a second: who goes back is heard at once.

Only in the plain case: a file of this release's schema, and one rollout that the id begins. In any other case nothing is written,
and the store's own way, tried next, says what is wrong. It reads no journal and knows no verb.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from rollout.domain.state import RolloutState
from rollout.store.chain import canonical, instant, plain

SCHEMA = "0001"
"""the revision whose tables are written here; a newer one is left to the store's own way"""
WAIT_SECONDS = 10
_VERSION = "SELECT version_num FROM rollout_version"
_FIND = "SELECT state, owner, lease_until FROM rollouts WHERE id = :id OR substr(id, 1, length(:id)) = :id LIMIT 2"
_SAY = "INSERT INTO commands (rollout_id, verb, actor, reason, args, at) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Heard:
    """A word that was left: the rollout's state then, and whether somebody's lease on it lasts, who will take the word up."""

    state: RolloutState
    ticked: bool


def leave(where: str, begins: str, said: tuple[str, str, str], now: datetime, check: Callable[[RolloutState], None]) -> Heard | None:
    """Leave `said` (verb, actor, reason) for the one rollout whose id `begins` so. None: nothing was written.

    `check` may raise: then nothing is written either.
    """
    if "://" in where or not Path(where).is_file() or not begins:
        return None
    try:
        uri = f"{Path(where).absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")  # closing without a commit takes everything back
            heard = _only(connection, begins, now)
            if heard is None:
                return None
            check(heard.state)
            verb, actor, reason = said
            connection.execute(_SAY, (heard.state.id, verb, plain(actor), plain(reason), canonical({}), instant(now)))
            connection.execute("COMMIT")
            return heard
    except (sqlite3.Error, ValidationError):
        return None


def _only(connection: sqlite3.Connection, begins: str, now: datetime) -> Heard | None:
    if connection.execute(_VERSION).fetchone() != (SCHEMA,):
        return None
    found = connection.execute(_FIND, {"id": begins}).fetchall()
    if len(found) != 1:
        return None
    state, owner, until = found[0]
    return Heard(RolloutState.model_validate_json(state), bool(owner and until and until > instant(now)))
