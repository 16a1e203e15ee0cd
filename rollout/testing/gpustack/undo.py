"""Writes that do not stick: undone at once (accepted, not applied) or after a while (another controller owns the value)."""

from __future__ import annotations

import copy
from typing import Any

from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.instances_control import InstanceControl
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.world import Row

KINDS = ("models", "model-routes", "model-route-targets", "grants", "api-keys")
SERVER_OWNED = {"updated_at", "created_at", "state", "state_message", "ready_replicas", "ready_targets", "targets", "restarting_since"}

Before = dict[str, dict[int, Row]]


class Undo:
    """Remembers tables before a write and can put back what that write changed, and only that."""

    def __init__(self, core: Core, instances: InstanceControl, routes: RouteControl) -> None:
        self.core, self.world, self.instances, self.routes = core, core.world, instances, routes

    def remember(self) -> Before:
        """The tables before a write."""
        return self.world.snapshot(KINDS)

    def difference(self, before: Before) -> list[tuple[str, int, Row | None]]:
        """What a write changed: kind, id, and the row as it was (None: it did not exist)."""
        found: list[tuple[str, int, Row | None]] = []
        for kind in KINDS:
            now = self.world.tables[kind]
            for row_id in before[kind].keys() | now.keys():
                old, new = before[kind].get(row_id), now.get(row_id)
                if old is None or new is None or _own(old) != _own(new):
                    found.append((kind, row_id, copy.deepcopy(old)))
        return found

    def apply(self, difference: list[tuple[str, int, Row | None]]) -> None:
        """Put rows back, and let the server notice as it notices any other write."""
        for kind, row_id, old in difference:
            current = self.world.get(kind, row_id)
            if old is None:
                self.world.remove(kind, row_id)
            elif current is None:
                self.world.tables[kind][row_id] = old
            else:
                self.world.change(kind, row_id, **_own(old))
        for kind, row_id, _ in difference:
            if kind == "models":
                self.instances.converge(row_id)
            if kind == "model-routes" and (route := self.world.get(kind, row_id)):
                self.core.cache.drop(route["name"])
                self.routes.sync_route(row_id)
            if kind == "model-route-targets" and (target := self.world.get(kind, row_id)):
                self.core.cache.drop(target["route_name"])
                self.routes.sync_target(row_id)


def _own(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in SERVER_OWNED}
