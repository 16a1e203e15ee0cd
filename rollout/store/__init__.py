"""What survives a crash: rollouts, their journal, what people said, and staging reports, in SQLite or PostgreSQL.

This room remembers and refuses; it decides nothing, calls no server, and holds no secret (a plan holds references only).
Its names load when they are asked for: `Store` imports SQLAlchemy, which a command should not pay for before it must.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollout.store.owner import Owner
    from rollout.store.records import Command, JournalRow, StoredReport, StoredRollout
    from rollout.store.repo import Store

__all__ = ["Command", "JournalRow", "Owner", "Store", "StoredReport", "StoredRollout"]

_RECORDS = ("Command", "JournalRow", "StoredReport", "StoredRollout")
_HOME = {"Owner": "owner", "Store": "repo", **dict.fromkeys(_RECORDS, "records")}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rollout.store.{_HOME[name]}"), name)
    msg = f"module 'rollout.store' has no attribute {name!r}"
    raise AttributeError(msg)
