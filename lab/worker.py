"""A simulated GPUStack worker: one process, a `SimNode` on loopback, reported to the real server as a real worker would.

Thin: memory, engines, HTTP and metrics are the node's; this file only carries rows between the server and the node. Killing
the process is killing the node: its engines die with it, and a new process adopts what the server says runs here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from lab.node_server import DELETED, NodeClient, Row, ServerSaidNo, forever, open_session
from rollout.testing.engine import EngineStartFailed, EngineStopped, SimEngine
from rollout.testing.knobs import GIB
from rollout.testing.node import SimNode
from rollout.testing.node_http import NodeServer

REPORT_SECONDS = 5.0  # heartbeat and status; a real worker's 30 s would only slow tests down
SYNC_SECONDS = 3.0  # the real worker's health loop
RETRY_SECONDS = 0.25
ADOPTED = ("initializing", "downloading", "starting", "running", "unreachable")


class SimWorker:
    """Carries instance and file rows between one server and one node."""

    def __init__(self, node: SimNode, client: NodeClient) -> None:
        self.node, self.client = node, client
        self._locks: dict[int, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._booted: dict[int, SimEngine] = {}
        node.on_exit = self._engine_died

    async def run(self) -> None:
        """Register (for ever: the server may be slow to come), then report, watch and reconcile until cancelled."""
        while not self.client.worker_id:
            try:
                row = await self.client.register(self.node.registration())
                self.node.worker_id, self.node.worker_uuid = int(row["id"]), str(row["worker_uuid"])
            except Exception:
                await asyncio.sleep(RETRY_SECONDS)
        self._say(f"registered as worker {self.client.worker_id}")
        await asyncio.gather(
            forever(self._report, REPORT_SECONDS, self._say),
            forever(self._reconcile, SYNC_SECONDS, self._say),
            forever(self._watch_instances, RETRY_SECONDS, self._say),
            forever(self._watch_files, RETRY_SECONDS, self._say),
        )

    # --- towards the server

    async def _report(self) -> None:
        if self.node.knobs.heartbeats:
            await self.client.call("POST", "/v2/worker-heartbeat")
            await self.client.call("POST", "/v2/worker-status", self.node.status())

    async def _reconcile(self) -> None:
        """What the real worker's health loop does: healthy but `unreachable` is running again; rows that are gone are stopped."""
        here = set(self.node.instances)
        rows = {int(row["id"]): row for row in await self.client.own("model-instances")}
        for instance_id in here - set(rows):
            await self.node.stop_instance(instance_id, hard=self.node.knobs.hard_stop)
        if not (self.node.knobs.heartbeats and self.node.knobs.healthy):
            return
        for instance_id, row in rows.items():
            run = self.node.instances.get(instance_id)
            if row["state"] == "unreachable" and run is not None and run.engine.ready:
                await self.client.change("model-instances", instance_id, state="running", state_message="")

    async def _engine_died(self, instance_id: int, message: str) -> None:
        """Report the crash; start again after the delay when the deployment asks for it (`restart_on_error`)."""
        row = await self.client.change("model-instances", instance_id, state="error", state_message=message)
        delay = self.node.knobs.restart_delay
        if row is None or delay is None:
            return
        model = await self._model_of(row)
        if not model.get("restart_on_error"):
            return
        await asyncio.sleep(delay)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        again = {"state": "scheduled", "state_message": "", "restart_count": (row.get("restart_count") or 0) + 1, "last_restart_time": now}
        await self.client.change("model-instances", instance_id, **again)

    # --- from the server

    async def _watch_instances(self) -> None:
        async for kind, row in self.client.watch("model-instances"):
            if kind == DELETED:
                # At once and outside the lock: the real worker stops the container without waiting for anything.
                self._spawn(self.node.stop_instance(int(row["id"]), hard=self.node.knobs.hard_stop))
            elif row.get("worker_id") == self.client.worker_id:
                self._spawn(self._follow(row))

    async def _watch_files(self) -> None:
        async for kind, row in self.client.watch("model-files"):
            if row.get("worker_id") != self.client.worker_id:
                continue
            path, size = str(row.get("local_path") or "/var/cache/sim"), int(row.get("size") or 5 * GIB)
            if kind == DELETED:
                if row.get("cleanup_on_delete"):  # a real worker too deletes from disk only then
                    self.node.drop_file(path)
            elif row.get("state") == "downloading":
                ready = {"state": "ready", "download_progress": 100, "size": size}
                self.node.keep_file(path, size)
                await self.client.change("model-files", int(row["id"]), **ready, resolved_paths=[path])
            else:
                self.node.keep_file(path, size)

    async def _follow(self, row: Row) -> None:
        """Bring the node in line with one instance row; rows of one instance are taken in order."""
        instance_id, state = int(row["id"]), row["state"]
        async with self._locks.setdefault(instance_id, asyncio.Lock()):
            if instance_id not in self.node.instances:
                if state == "scheduled":
                    await self._place(row, state="initializing")
                elif state in ADOPTED and row.get("port"):
                    await self._place(row)
            run = self.node.instances.get(instance_id)
            # Once per engine: the server touches a `starting` row more than once.
            if state == "starting" and run is not None and self._booted.get(instance_id) is not run.engine:
                self._booted[instance_id] = run.engine
                await self._boot(instance_id, run.engine)

    async def _place(self, row: Row, **fields: Any) -> None:
        """Start the engine and write where it listens. A deployment that asks for what no engine knows is an error row."""
        instance_id = int(row["id"])
        try:
            await self.node.start_instance(row, await self._model_of(row))
        except ValueError as error:
            await self.client.change("model-instances", instance_id, state="error", state_message=str(error))
            return
        port = self.node.instances[instance_id].port
        if fields or port != row.get("port"):
            where = {"port": port, "ports": [port], "pid": os.getpid()}
            if await self.client.change("model-instances", instance_id, **where, **fields) is None:
                await self.node.stop_instance(instance_id)

    async def _boot(self, instance_id: int, engine: SimEngine) -> None:
        """Load, then say running, or error when the engine does not come up."""
        try:
            await engine.boot()
            await self.client.change("model-instances", instance_id, state="running", state_message="")
        except EngineStartFailed:
            await self.node.stop_instance(instance_id)
            await self._engine_died(instance_id, "engine did not become ready: simulated start failure")
        except EngineStopped:
            self._say(f"instance {instance_id} was stopped while it was loading")

    async def _model_of(self, row: Row) -> Row:
        return dict(await self.client.call("GET", f"/v2/models/{row['model_id']}"))

    # --- plumbing

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except ServerSaidNo as error:
            self._say(error)
        except Exception as error:
            self._say(repr(error))

    def _say(self, what: object) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S} {self.node.name}: {what}", file=sys.stderr, flush=True)


async def serve(arguments: argparse.Namespace) -> None:
    """Run one worker until SIGTERM."""
    node = SimNode(name=arguments.name, port=arguments.port, metrics_port=arguments.metrics_port, mem_gib=arguments.mem_gib)
    for fact in ("driver_version", "os_version", "kernel", "worker_version"):
        if value := getattr(arguments, fact):
            setattr(node, fact, value)
    face = NodeServer(node)
    await face.start()
    async with await open_session() as http:
        worker = asyncio.create_task(SimWorker(node, NodeClient(http, arguments.server, arguments.token)).run())
        for sig in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(sig, worker.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await worker
        await face.stop()


def main() -> None:
    """`python -m lab.worker --server URL --token TOKEN --name NAME --port N --metrics-port N`."""
    parser = argparse.ArgumentParser(description="a simulated GPUStack worker on loopback")
    for name in ("server", "token", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "metrics-port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--mem-gib", type=int, default=128)
    for fact in ("driver-version", "os-version", "kernel", "worker-version"):
        parser.add_argument(f"--{fact}", default="")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
