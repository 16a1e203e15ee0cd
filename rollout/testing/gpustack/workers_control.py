"""The server's view of workers: health checks, heartbeats, maintenance, and what follows for their instances (contract 4.3)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.instances_control import InstanceControl
from rollout.testing.gpustack.placement import allocated
from rollout.testing.gpustack.world import Row, timestamp
from rollout.testing.node import SimNode


@dataclass
class _Watch:
    """What is remembered of one worker, in monotonic seconds."""

    sick_since: float | None = None
    last_beat: float = 0.0
    well_since: float = 0.0


class WorkerControl:
    """Registers nodes and watches them."""

    def __init__(self, core: Core, instances: InstanceControl) -> None:
        self.core, self.instances, self.world = core, instances, core.world
        self._watches: dict[int, _Watch] = {}

    def register(self, node: SimNode) -> Row:
        """A node joins as a worker of cluster 1, ready."""
        extra: dict[str, Any] = {
            "cluster_id": 1,
            "state": "ready",
            "unreachable": False,
            "maintenance": None,
            "heartbeat_time": timestamp(),
            "owner_principal_id": 1,
        }
        row = self.world.add("workers", {**node.registration(), **extra})
        node.worker_id, node.worker_uuid = row["id"], f"uuid-{node.name}"
        self.world.change("workers", row["id"], worker_uuid=node.worker_uuid)
        node.on_exit = self.instances.exited
        self.core.nodes[row["id"]] = node
        self._watches[row["id"]] = _Watch(last_beat=time.monotonic())
        return row

    async def run(self) -> None:
        """Look at every worker, for ever."""
        while True:
            for worker_id, node in list(self.core.nodes.items()):
                if self.world.get("workers", worker_id) is not None:
                    self._look(worker_id, node)
            await asyncio.sleep(max(0.02, self.core.timing.of("monitor")))

    def _look(self, worker_id: int, node: SimNode) -> None:
        now, watch, timing = time.monotonic(), self._watches[worker_id], self.core.timing
        if node.knobs.heartbeats and now - watch.last_beat >= timing.of("heartbeat"):
            self._beat(worker_id, node)
        if node.knobs.healthy:
            if watch.sick_since is not None:
                watch.sick_since, watch.well_since = None, now
        elif watch.sick_since is None:
            watch.sick_since = now
        silent = now - watch.last_beat
        unreachable = watch.sick_since is not None and now - watch.sick_since >= timing.of("unreachable")
        lost = silent >= timing.of("heartbeat_grace")
        row = self.world.tables["workers"][worker_id]
        if unreachable or lost:
            self._down(row, "unreachable" if unreachable else "not_ready")
        elif row["unreachable"] and now - watch.well_since >= timing.of("resume_instances"):
            self._instances(worker_id, "unreachable", "running")
            if now - watch.well_since >= timing.of("resume_worker"):
                self.world.change("workers", worker_id, unreachable=False)
                self._settle(worker_id)
        if silent >= timing.of("heartbeat_grace") + timing.of("reschedule_grace"):
            self._reschedule(worker_id)

    def _beat(self, worker_id: int, node: SimNode) -> None:
        """Status and heartbeat arrive together; what the API shows is as old as the last one."""
        watch = self._watches[worker_id]
        if time.monotonic() - watch.last_beat > self.core.timing.of("heartbeat_grace"):
            watch.well_since = time.monotonic()
        watch.last_beat = time.monotonic()
        facts = {"status": node.status()["status"], "worker_version": node.worker_version}
        self.world.change("workers", worker_id, heartbeat_time=timestamp(), **facts)

    def _down(self, row: Row, state: str) -> None:
        if row["state"] != state:
            self.world.change("workers", row["id"], state=state, unreachable=True, state_message=f"worker is {state}")
        self._instances(row["id"], "running", "unreachable")

    def _instances(self, worker_id: int, old: str, new: str) -> None:
        for instance in self.world.where("model-instances", worker_id=worker_id, state=old):
            self.instances.set_state(instance["id"], new)

    def _reschedule(self, worker_id: int) -> None:
        for instance in self.world.where("model-instances", worker_id=worker_id):
            self.instances.delete(instance["id"])
            self.instances.converge(instance["model_id"], "recreate")

    def maintain(self, worker_id: int, maintenance: dict[str, Any] | None) -> None:
        """Maintenance on or off: running instances keep serving, nothing new is placed."""
        self.world.change("workers", worker_id, maintenance=maintenance)
        self._settle(worker_id)

    def _settle(self, worker_id: int) -> None:
        row = self.world.tables["workers"][worker_id]
        on = bool((row["maintenance"] or {}).get("enabled"))
        message = (row["maintenance"] or {}).get("message") if on else None
        self.world.change("workers", worker_id, state="maintenance" if on else "ready", state_message=message)

    def view(self, row: Row) -> Row:
        """A worker as the API shows it: `allocated` is computed from claims, the status is as old as the last heartbeat."""
        claimed = allocated(self.world, row["id"])
        status = dict(row["status"])
        status["memory"] = {**status["memory"], "allocated": claimed}
        status["gpu_devices"] = [{**gpu, "memory": {**gpu["memory"], "allocated": claimed}} for gpu in status["gpu_devices"]]
        return {**row, "status": status}
