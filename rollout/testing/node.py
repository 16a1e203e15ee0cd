"""A simulated node: unified memory shared by the OS and every engine, and the instances that run on it.

Life of instances and numbers only; the node's HTTP face is `node_http`, its unified metrics page `node_metrics`. It never
talks to a GPUStack server: whoever owns the node (the in-process fake, or a simulated worker) reports for it.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from rollout.testing.engine import SimEngine
from rollout.testing.knobs import GIB, Knobs, env_knobs

_HEADER = re.compile(r"^model-(\d+)-(\d+)")


@dataclass
class Running:
    """One instance on a node: what was asked for, its engine, its listener."""

    instance: dict[str, Any]
    model: dict[str, Any]
    engine: SimEngine
    port: int
    runner: web.AppRunner | None


@dataclass
class NodeKnobs:
    """How the node itself is sick. `dead_metrics`: off, hang, error."""

    healthy: bool = True
    heartbeats: bool = True
    hard_stop: bool = True
    dead_metrics: str = "off"
    mem_used: int | None = None  # overrides the memory model, bytes
    restart_delay: float | None = 1.0  # seconds until a crashed instance is started again; None: never
    latency: float = 0.0  # added to each proxied request
    deletes: bool = True  # off: a file's row goes, its bytes stay


@dataclass
class SimNode:
    """A worker host. `ip` and ports are what it announces; bytes and seconds throughout."""

    name: str
    ip: str = "127.0.0.1"
    mem_gib: int = 128
    port: int = 0
    metrics_port: int = 0
    port_base: int = 0  # 0: any free port
    listen: bool = True  # off: instances answer in process only, no socket is opened
    os_bytes: int = 12 * GIB
    driver_version: str = "580.95.05"
    os_version: str = "24.04"
    kernel: str = "6.11.0-1016-nvidia"
    worker_version: str = "v2.3.0"
    worker_id: int = 0
    worker_uuid: str = ""
    base_knobs: dict[str, Any] = field(default_factory=dict)
    image_knobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_knobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    knobs: NodeKnobs = field(default_factory=NodeKnobs)
    instances: dict[int, Running] = field(default_factory=dict)
    on_exit: Callable[[int, str], Awaitable[None]] | None = None  # (instance id, message) when an engine dies by itself
    files: dict[str, int] = field(default_factory=dict)  # model files on disk: path -> bytes
    gone: set[str] = field(default_factory=set)  # paths that were deleted; nothing starts from them
    finished: dict[str, dict[str, int]] = field(default_factory=dict)  # counters of stopped instances by instance name

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._next_port = self.port_base
        self._closing: set[asyncio.Future[None]] = set()

    # --- memory

    @property
    def mem_total(self) -> int:
        return self.mem_gib * GIB

    @property
    def mem_used(self) -> int:
        """OS plus every engine, or the override."""
        if self.knobs.mem_used is not None:
            return self.knobs.mem_used
        return min(self.mem_total, self.os_bytes + sum(run.engine.memory_bytes() for run in self.instances.values()))

    @property
    def mem_available(self) -> int:
        """MemAvailable, the only number to trust on unified memory."""
        return self.mem_total - self.mem_used

    # --- disk

    def keep_file(self, path: str, size: int) -> None:
        """A model's files were downloaded, or found."""
        self.files[path] = size
        self.gone.discard(path)

    def drop_file(self, path: str) -> None:
        """The server told the worker to delete a path."""
        if self.knobs.deletes:
            self.files.pop(path, None)
            self.gone.add(path)

    # --- what the worker tells the server

    def status(self) -> dict[str, Any]:
        """Body of `POST /v2/worker-status` (contract 4.1)."""
        memory = {
            "total": self.mem_total,
            "used": self.mem_used,
            "utilization_rate": 100 * self.mem_used / self.mem_total,
            "is_unified_memory": True,
        }
        return {
            "hostname": self.name,
            "ip": self.ip,
            "advertise_address": self.ip,
            "ifname": "lo",
            "port": self.port,
            "metrics_port": self.metrics_port,
            "worker_uuid": self.worker_uuid,
            "machine_id": f"m-{self.name}",
            "proxy_mode": "worker",
            "system_reserved": {"ram": 0, "vram": 0},
            "state_message": None,
            "status": self._hardware(memory),
        }

    def registration(self) -> dict[str, Any]:
        """Body of `POST /v2/workers`: the status, who it is, and the label that makes a second registration the same worker."""
        labels = {"os": "linux", "arch": "arm64", "worker-name": self.name, "gpustack.existence-check": "true"}
        return {**self.status(), "name": self.name, "worker_version": self.worker_version, "labels": labels}

    def _hardware(self, memory: dict[str, Any]) -> dict[str, Any]:
        gpu = {
            "vendor": "nvidia",
            "type": "cuda",
            "index": 0,
            "device_index": 0,
            "device_chip_index": 0,
            "arch_family": "Blackwell",
            "name": "NVIDIA GB10",
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, self.name)}",
            "driver_version": self.driver_version,
            "runtime_version": "13.0",
            "compute_capability": "12.1",
            "core": {"total": 6144, "utilization_rate": 3.0},
            "memory": memory,
            "temperature": 41.0,
            "power": 140.0,
            "power_used": 12.0,
        }
        used = 300 * GIB + sum(self.files.values())
        disk = {"total": 1000 * GIB, "used": used, "free": 1000 * GIB - used, "available": 950 * GIB - used}
        return {
            "cpu": {"total": 20, "utilization_rate": 2.0},
            "memory": memory,
            "swap": {"total": 0, "used": 0, "utilization_rate": 0},
            "filesystem": [{"name": "/dev/nvme0n1p2", "mount_point": "/", "mount_from": "/dev/nvme0n1p2", **disk}],
            "os": {"name": "Ubuntu", "version": self.os_version},
            "kernel": {"name": "Linux", "release": self.kernel, "version": "#16", "architecture": "aarch64"},
            "uptime": {"uptime": time.monotonic() - self._started, "boot_time": "2026-11-01 00:00:00"},
            "gpu_devices": [gpu],
        }

    # --- instances

    def knobs_for(self, model: dict[str, Any]) -> Knobs:
        """The node's base, `--max-num-seqs`, the image table, the deployment's `SIM_*` environment, per-model knobs; the last wins."""
        changes: dict[str, Any] = dict(self.base_knobs)
        for parameter in model.get("backend_parameters") or []:
            if str(parameter).startswith("--max-num-seqs="):
                changes["slots"] = int(str(parameter).partition("=")[2])
        for key in ("backend_version", "image_name"):
            changes |= self.image_knobs.get(str(model.get(key)), {})
        changes |= env_knobs(model.get("env") or {})
        changes |= self.model_knobs.get(str(model.get("name")), {})
        return Knobs().updated(changes)

    async def start_instance(self, instance: dict[str, Any], model: dict[str, Any]) -> SimEngine:
        """Create the engine and its own listener; the caller awaits `engine.boot()`. An instance that is here already is returned."""
        known = self.instances.get(int(instance["id"]))
        if known is not None and not known.engine.stopped:
            return known.engine
        knobs = self.knobs_for(model)
        if model.get("local_path") in self.gone:
            knobs = knobs.updated({"fail_start": True})
        engine = SimEngine(str(instance["name"]), str(model["name"]), knobs, on_crash=self._crashed)
        run = self.instances[int(instance["id"])] = Running(instance, model, engine, 0, None)
        if self.listen:
            run.runner = web.AppRunner(engine.app(), access_log=None, handler_cancellation=True)
            await run.runner.setup()
            run.port = await self._listen(run.runner, instance.get("port"))
        return engine

    async def _listen(self, runner: web.AppRunner, wanted: int | None) -> int:
        """Bind the wanted port (adoption), else the next free one from the port base."""
        while True:
            port = wanted or self._next_port
            site = web.TCPSite(runner, self.ip, port)
            try:
                await site.start()
            except OSError:
                if not wanted and not self.port_base:
                    raise
                wanted = None
                self._next_port += 1
                continue
            if self.port_base and not wanted:
                self._next_port += 1
            return port or int(runner.addresses[-1][1])

    async def stop_instance(self, instance_id: int, hard: bool = True) -> None:
        """Stop a container: hard cuts what is in flight at once, soft lets it finish in the background of its listener."""
        run = self.instances.pop(instance_id, None)
        if run is None:
            return
        run.engine.stop(hard=hard)
        self.finished[run.engine.name] = counters(run.engine)
        if hard:
            await self._close(run)
        else:
            task = asyncio.ensure_future(self._close(run))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, run: Running) -> None:
        """Let the listener go when nothing is in flight any more, and keep the last counters."""
        await run.engine.drained()
        if run.runner is not None:
            await run.runner.cleanup()
        self.finished[run.engine.name] = counters(run.engine)

    async def crash_instance(self, instance_id: int) -> None:
        """Kill one engine as an out-of-memory killer does; `on_exit` is told."""
        if instance_id in self.instances:
            self.instances[instance_id].engine.crash()

    async def _crashed(self, engine: SimEngine) -> None:
        for instance_id, run in list(self.instances.items()):
            if run.engine is engine:
                await self.stop_instance(instance_id)
                if self.on_exit is not None:
                    await self.on_exit(instance_id, f"engine {engine.name} exited with code 137")

    def find(self, header: str | None) -> Running | None:
        """The instance a proxy header names (`model-<model id>-<instance id>.static`), or None."""
        match = _HEADER.match(header or "")
        return self.instances.get(int(match.group(2))) if match else None

    def set_knobs(self, changes: dict[str, Any], *, model: str | None = None, image: str | None = None) -> None:
        """Change the engines of a model or an image (all without either), running or started later. ValueError for unknown knobs."""
        Knobs().updated(changes)
        if image is not None:
            self.image_knobs.setdefault(image, {}).update(changes)
        if model is not None:
            self.model_knobs.setdefault(model, {}).update(changes)
        for run in self.instances.values():
            images = (run.model.get("image_name"), run.model.get("backend_version"))
            if (model is None or run.model["name"] == model) and (image is None or image in images):
                run.engine.knobs = run.engine.knobs.updated(changes)


def counters(engine: SimEngine) -> dict[str, int]:
    """What one engine has counted since its start."""
    names = ("inflight", "running", "waiting", "total", "served", "errors", "cut", "aborted")
    return {name: int(getattr(engine, name)) for name in names}
