"""The life of instances: replicas converge, an instance walks its states, a crash restarts, a deletion kills at once.

Contract 5.2, 5.3, 8. Nothing here waits for a request in flight: neither does the real server.
"""

from __future__ import annotations

import asyncio
import string
from typing import Any

from rollout.testing.engine import EngineStartFailed, EngineStopped
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.placement import place
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.world import Row, timestamp
from rollout.testing.knobs import GIB
from rollout.testing.node import SimNode


class InstanceControl:
    """Turns deployments into running engines on simulated nodes."""

    def __init__(self, core: Core, routes: RouteControl) -> None:
        self.core, self.routes, self.world = core, routes, core.world
        self._starting: dict[int, asyncio.Task[Any]] = {}

    # --- replicas

    def converge(self, model_id: int, delay: str | None = None) -> None:
        """Bring the number of instances to `replicas`, now or after a named timing."""
        self.core.later(self.core.timing.of(delay) if delay else 0.0, self._converge, model_id)

    def _converge(self, model_id: int) -> None:
        model = self.world.get("models", model_id)
        if model is None:
            return
        rows = self.world.where("model-instances", model_id=model_id)
        for _ in range(int(model["replicas"]) - len(rows)):
            self._create(model)
        surplus = len(rows) - int(model["replicas"])
        if surplus > 0:  # the server chooses: those that do not run first, then any
            self.core.rng.shuffle(rows)
            for row in sorted(rows, key=lambda item: item["state"] == "running")[:surplus]:
                self.delete(row["id"])
        self.sync_model(model_id)

    def _create(self, model: Row) -> None:
        tail = "".join(self.core.rng.choices(string.ascii_lowercase + string.digits, k=5))
        row = self.world.add("model-instances", _new_instance(model, f"{model['name']}-{tail}"))
        self._start(row["id"], "pending")

    def delete(self, instance_id: int) -> None:
        """The row goes at once, the process a moment later; streams in it are cut."""
        row = self.world.remove("model-instances", instance_id)
        task = self._starting.pop(instance_id, None)
        if task is not None:
            task.cancel()
        if row is None or row["worker_id"] is None:
            return
        node = self.core.nodes.get(row["worker_id"])
        if node is not None:
            self.core.later(self.core.timing.of("container_stop"), self._stop, node, instance_id)

    def _stop(self, node: SimNode, instance_id: int) -> None:
        self.core.spawn(node.stop_instance(instance_id, hard=node.knobs.hard_stop))

    def sync_model(self, model_id: int) -> None:
        """Recompute `ready_replicas` and `state`; the targets follow."""
        model = self.world.get("models", model_id)
        if model is None:
            return
        states = [row["state"] for row in self.world.where("model-instances", model_id=model_id)]
        ready = states.count("running")
        state = "running" if ready else "error" if "error" in states else "pending"
        changes: dict[str, Any] = {"ready_replicas": ready, "state": state}
        if ready or not model["replicas"]:
            changes["restarting_since"] = None
        before = (model["ready_replicas"], model["state"])
        self.world.change("models", model_id, **changes)
        if before != (ready, state):
            self.routes.model_changed(model_id)

    # --- one instance

    def set_state(self, instance_id: int, state: str, message: str = "") -> None:
        """Write a state; the model follows. An instance that is gone is left alone."""
        row = self.world.get("model-instances", instance_id)
        if row is not None:
            self.world.change("model-instances", instance_id, state=state, state_message=message)
            self.sync_model(row["model_id"])

    def _start(self, instance_id: int, first: str) -> None:
        self._starting[instance_id] = self.core.spawn(self._walk(instance_id, first))

    async def _step(self) -> None:
        await asyncio.sleep(self.core.timing.of("state_step"))

    async def _walk(self, instance_id: int, first: str) -> None:
        """pending → analyzing → scheduled → initializing → downloading → starting → running."""
        if first == "pending" and not await self._schedule(instance_id):
            return
        row = self.world.tables["model-instances"][instance_id]
        model = self.world.tables["models"][row["model_id"]]
        node = self.core.nodes[row["worker_id"]]
        await self._step()
        engine = await node.start_instance(dict(row), dict(model))
        port = node.instances[instance_id].port
        self.world.change("model-instances", instance_id, port=port, ports=[port], pid=10000 + instance_id)
        self.set_state(instance_id, "initializing")
        await self._step()
        self.set_state(instance_id, "downloading")
        path = self._model_file(node, model)
        await self._step()
        self.world.change("model-instances", instance_id, resolved_path=path, download_progress=100)
        self.set_state(instance_id, "starting")
        try:
            await engine.boot()
            await self._step()
        except EngineStartFailed:
            await node.stop_instance(instance_id)
            await self.exited(instance_id, "engine failed to start")
            return
        except EngineStopped:
            return  # killed while loading: whoever killed it reports
        self.set_state(instance_id, "running")
        self._starting.pop(instance_id, None)

    async def _schedule(self, instance_id: int) -> bool:
        row = self.world.tables["model-instances"][instance_id]
        model = self.world.tables["models"][row["model_id"]]
        await self._step()
        self.set_state(instance_id, "analyzing")
        await self._step()
        found = place(self.world, model)
        if isinstance(found, str):
            self.set_state(instance_id, "pending", found)
            self.core.later(self.core.timing.of("pending_rescan"), self._rescan, instance_id)
            return False
        worker, claim = found
        self.world.change(
            "model-instances",
            instance_id,
            worker_id=worker["id"],
            worker_name=worker["name"],
            worker_ip=worker["ip"],
            worker_advertise_address=worker["advertise_address"],
            gpu_indexes=[0],
            gpu_type="cuda",
            computed_resource_claim=claim,
        )
        self.set_state(instance_id, "scheduled")
        return True

    def _rescan(self, instance_id: int) -> None:
        row = self.world.get("model-instances", instance_id)
        if row is not None and row["state"] == "pending":
            self._start(instance_id, "pending")

    def _model_file(self, node: SimNode, model: Row) -> str:
        """One row per (worker, source); it outlives every deployment that used it."""
        keys = ("source", "local_path", "huggingface_repo_id", "model_scope_model_id")
        source = {key: model.get(key) for key in keys}
        path = str(model.get("local_path") or "/var/lib/gpustack/cache/sim")
        if self.world.one("model-files", worker_id=node.worker_id, **source) is None:
            size = node.knobs_for(model).weights_bytes or 5 * GIB
            if path not in node.gone:
                node.keep_file(path, size)
            extra = {"size": size, "state": "ready", "state_message": "", "download_progress": 100, "cleanup_on_delete": None}
            self.world.add("model-files", {**source, "worker_id": node.worker_id, "resolved_paths": [path], **extra})
        return path

    async def exited(self, instance_id: int, message: str) -> None:
        """An engine died by itself: `error`, then a restart with a raised count, unless the deployment says no."""
        row = self.world.get("model-instances", instance_id)
        if row is None:
            return
        self.set_state(instance_id, "error", message)
        model, node = self.world.tables["models"][row["model_id"]], self.core.nodes[row["worker_id"]]
        if model["restart_on_error"] and node.knobs.restart_delay is not None:
            self.core.later(node.knobs.restart_delay, self._restart, instance_id)

    def _restart(self, instance_id: int) -> None:
        row = self.world.get("model-instances", instance_id)
        if row is None or row["state"] != "error":
            return
        count = int(row["restart_count"] or 0) + 1
        self.world.change("model-instances", instance_id, restart_count=count, last_restart_time=timestamp())
        self.set_state(instance_id, "scheduled")
        self._start(instance_id, "scheduled")


def _new_instance(model: Row, name: str) -> Row:
    nothing = dict.fromkeys(
        (
            "worker_id",
            "worker_name",
            "worker_ip",
            "worker_advertise_address",
            "pid",
            "port",
            "resolved_path",
            "download_progress",
            "last_restart_time",
            "computed_resource_claim",
            "gpu_type",
            "draining_since",
        )
    )
    sources = ("source", "local_path", "huggingface_repo_id", "model_scope_model_id", "backend", "backend_version", "cluster_id")
    return {
        **nothing,
        **{key: model.get(key) for key in sources},
        "name": name,
        "model_id": model["id"],
        "model_name": model["name"],
        "ports": [],
        "gpu_indexes": [],
        "restart_count": 0,
        "state": "pending",
        "state_message": None,
    }
