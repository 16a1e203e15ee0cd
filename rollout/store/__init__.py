"""What survives a crash: rollouts, their journal, what people said, and staging reports, in SQLite or PostgreSQL.

This room remembers and refuses; it decides nothing, calls no server, and holds no secret (a plan holds references only).
Importing it imports SQLAlchemy: do so inside a command, never when `rollout` itself is imported.
"""

from rollout.store.owner import Owner
from rollout.store.records import Command, JournalRow, StoredReport, StoredRollout
from rollout.store.repo import Store

__all__ = ["Command", "JournalRow", "Owner", "Store", "StoredReport", "StoredRollout"]
