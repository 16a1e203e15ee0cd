"""The rows of the fake GPUStack and who watches them. Plain dictionaries as the API answers them; no rules live here."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from typing import Any

from rollout.clock import SystemClock

Row = dict[str, Any]
KINDS = (
    "clusters",
    "workers",
    "models",
    "model-instances",
    "model-routes",
    "model-route-targets",
    "model-files",
    "api-keys",
    "users",
    "grants",
    "organizations",
    "model-providers",
)
PLATFORM = 1
"""id of the organisation that owns what nobody else does"""
CREATED, UPDATED, DELETED, HEARTBEAT = 1, 2, 3, 5


def timestamp() -> str:
    """Now, as the API writes it."""
    return SystemClock().now().isoformat().replace("+00:00", "Z")


class World:
    """Tables by kind, ids by kind, watchers by kind."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, Row]] = {kind: {} for kind in KINDS}
        self._next: dict[str, int] = dict.fromkeys(KINDS, 1)
        self._watchers: dict[str, list[asyncio.Queue[Row]]] = {kind: [] for kind in KINDS}

    def add(self, kind: str, row: Row) -> Row:
        """Insert; id and both times are the table's."""
        row_id = self._next[kind]
        self._next[kind] += 1
        now = timestamp()
        row = {"id": row_id, **row, "created_at": now, "updated_at": now}
        self.tables[kind][row_id] = row
        self._publish(kind, CREATED, row)
        return row

    def change(self, kind: str, row_id: int, **changes: Any) -> Row:
        """Write fields and the time; nothing happens when nothing differs."""
        row = self.tables[kind][row_id]
        changed = {key: [row.get(key), value] for key, value in changes.items() if row.get(key) != value}
        if changed:
            row.update(changes)
            row["updated_at"] = timestamp()
            self._publish(kind, UPDATED, row, changed)
        return row

    def remove(self, kind: str, row_id: int) -> Row | None:
        """Delete; None when it was gone already."""
        row = self.tables[kind].pop(row_id, None)
        if row is not None:
            self._publish(kind, DELETED, row)
        return row

    def get(self, kind: str, row_id: int) -> Row | None:
        return self.tables[kind].get(row_id)

    def where(self, kind: str, **fields: Any) -> list[Row]:
        """Rows with these field values, in no order that means anything."""
        return [row for row in self.tables[kind].values() if all(row.get(key) == value for key, value in fields.items())]

    def one(self, kind: str, **fields: Any) -> Row | None:
        return next(iter(self.where(kind, **fields)), None)

    # --- faults need yesterday

    def snapshot(self, kinds: Iterable[str] = KINDS) -> dict[str, dict[int, Row]]:
        """A deep copy of some tables."""
        return {kind: copy.deepcopy(self.tables[kind]) for kind in kinds}

    def restore(self, earlier: dict[str, dict[int, Row]], keep: Callable[[str, int], bool] = lambda _kind, _id: False) -> None:
        """Put tables back; rows for which `keep` says yes stay as they are."""
        for kind, rows in earlier.items():
            stay = {row_id: row for row_id, row in self.tables[kind].items() if keep(kind, row_id)}
            self.tables[kind] = {**{row_id: row for row_id, row in copy.deepcopy(rows).items() if not keep(kind, row_id)}, **stay}

    # --- watching

    def watch(self, kind: str) -> asyncio.Queue[Row]:
        """A queue of events from now on; `unwatch` when done."""
        queue: asyncio.Queue[Row] = asyncio.Queue()
        self._watchers[kind].append(queue)
        return queue

    def unwatch(self, kind: str, queue: asyncio.Queue[Row]) -> None:
        self._watchers[kind].remove(queue)

    def _publish(self, kind: str, what: int, row: Row, changed: dict[str, Any] | None = None) -> None:
        for queue in self._watchers[kind]:
            queue.put_nowait({"type": what, "data": copy.deepcopy(row), "changed_fields": changed or {}, "id": row["id"]})
