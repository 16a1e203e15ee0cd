"""The whole lab as one object: PostgreSQL, the real server, the simulated workers, the keys; up in order, down in reverse."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.bootstrap import Keys, make_keys, wait_workers
from lab.control import Control
from lab.environment import ensure, read_pins
from lab.errors import LabError
from lab.gateway import Gateway
from lab.gpustack import ADMIN_PASSWORD, Server
from lab.handles import Worker
from lab.postgres import Postgres

WORKERS = ("spark-01", "spark-02", "staging")
PREFIX = "rollout-lab-"
KEPT = "KEEP"


def to_stderr(line: str) -> None:
    """Where the lab speaks by default."""
    print(line, file=sys.stderr, flush=True)


class Lab:
    """`with Lab() as lab:` — a fresh lab, gone afterwards. Start it in the main thread: its processes die with the thread.

    `gpustack` is a version of `versions.toml`, the default one when None; with `gateway` inference goes through a router of its own.
    `keep` leaves the folder with the logs; `server_env` is added to the server's environment (`GPUSTACK_…`).
    """

    def __init__(
        self,
        workers: tuple[str, ...] = WORKERS,
        *,
        gpustack: str | None = None,
        gateway: bool = False,
        keep: bool = False,
        server_env: dict[str, str] | None = None,
        say: Callable[[str], None] = to_stderr,
    ) -> None:
        self.keep, self.say, self.timings = keep, say, dict[str, float]()
        self._server_env, self._names = server_env or {}, workers
        self._asked, self._through = gpustack, gateway
        self.gateway: Gateway | None = None
        self.workers: dict[str, Worker] = {}
        self.control: Control | None = None

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Bring everything up; what already runs is stopped again when a part fails."""
        began = time.monotonic()
        with self._timed("environment"):
            environment = ensure(self.say, read_pins(version=self._asked))
        sweep()
        self.folder = scratch()
        if self.keep:
            (self.folder / KEPT).touch()
        self.postgres = Postgres(self.folder)
        try:
            with self._timed("postgresql"):
                self.postgres.start()
            config = self._start_gateway() if self._through else None
            self.server = Server(environment, self.folder, self.postgres.url, extra_env=self._server_env, kubeconfig=config)
            self._start_server_and_workers()
            self.control = Control(self.description, self._act)
        except BaseException:
            self.stop()
            raise
        self.timings["all"] = round(time.monotonic() - began, 1)
        at = f"{self.server.url}, gateway at {self.gateway.url}" if self.gateway else self.server.url
        self.say(f"lab: up in {self.timings['all']} s, gpustack {self.version} at {at}, logs in {self.folder}")

    def _start_gateway(self) -> Path:
        """Before the server, which ends when it finds no Kubernetes API."""
        with self._timed("gateway"):
            self.gateway = Gateway(self.folder)
            self.gateway.launch()
        return self.gateway.kubeconfig

    def _start_server_and_workers(self) -> None:
        with self._timed("server"):
            self.server.launch()
            for name in self._names:  # while the server loads: they register as soon as it answers
                self.workers[name] = Worker(name, self.folder, self.server.url)
                self.workers[name].launch()
            self.server.wait_ready()
        with self._timed("keys"):
            self.keys: Keys = make_keys(self.server.url)
        with self._timed("workers"):
            wait_workers(self.server.url, self.keys.management, set(self._names))

    def stop(self) -> None:
        """Stop everything, bounded to half a minute, usually 3 s, and remove the folder unless it is to be kept. Safe to repeat."""
        began = time.monotonic()
        if self.control is not None:
            self.control.close()
            self.control = None
        for worker in self.workers.values():
            worker.kill()  # first: a node that is switched off, and nobody reports to a server that ends
        if hasattr(self, "server"):
            self.server.stop()
        if self.gateway is not None:
            self.gateway.stop()
        self.postgres.stop()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.say(f"lab: down in {time.monotonic() - began:.1f} s")

    @property
    def version(self) -> str:
        """The pinned version of the server, without a leading v."""
        return self.server.environment.version

    def worker(self, name: str) -> Worker:
        """A worker by name; LabError when there is none."""
        if name not in self.workers:
            raise LabError(f"no worker {name}", f"the lab has {', '.join(self.workers)}", "use one of these names")
        return self.workers[name]

    def kill_server(self) -> None:
        """SIGKILL the server; workers and database stay."""
        self.server.kill()

    def restart_server(self) -> None:
        """A new server process on the same ports and database; kills the old one when it lives. Returns when it is ready."""
        self.server.kill()
        self.server.launch()
        self.server.wait_ready()

    def _act(self, verb: str, name: str, body: dict[str, Any]) -> None:
        """A request of the control port."""
        if name == "gpustack" and verb in ("kill", "restart"):
            self.kill_server() if verb == "kill" else self.restart_server()
        elif verb == "kill":
            self.worker(name).kill()
        elif verb == "restart":
            self.worker(name).restart(**body)
        else:
            raise LabError(f"unknown request {verb}", "the control port knows kill and restart", "use one of these")

    def description(self) -> dict[str, Any]:
        """What a client needs to know, as `python -m lab.up --json` writes it."""
        workers = [{"name": w.name, "url": w.url, "metrics_url": w.metrics_url, "pid": w.pid} for w in self.workers.values()]
        children = {"postgresql": self.postgres.child, "gpustack": self.server.child}
        if self.gateway is not None:
            children |= {"kube": self.gateway.kube, "router": self.gateway.router}
        pids = {name: child.pid for name, child in children.items() if child is not None}
        return {
            "server_url": self.server.url,
            "inference_url": self.gateway.url if self.gateway else self.server.url,
            "mode": "external" if self.gateway else "disabled",
            "gateway": self.gateway.described() if self.gateway else None,
            "metrics_url": self.server.metrics_url,
            "admin_password": ADMIN_PASSWORD,
            "management_key": self.keys.management,
            "inference_key": self.keys.inference,
            "user_key": self.keys.user,
            "workers": workers,
            "version": self.version,
            "control_url": self.control.url if self.control else "",
            "pids": {"lab": os.getpid(), **pids, **{w.name: w.pid for w in self.workers.values()}},
            "folder": str(self.folder),
            "timings": self.timings,
        }

    def write(self, path: Path) -> None:
        """Write the description; a reader sees all of it or nothing. It holds keys: readable by its owner only."""
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.touch(mode=0o600)
        temp.write_text(json.dumps(self.description(), indent=1) + "\n", "utf-8")
        temp.replace(path)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.timings[what] = round(time.monotonic() - began, 2)
        self.say(f"lab: {what} {self.timings[what]} s")


def scratch() -> Path:
    """A new folder that other users may enter, for the database runs as one of them when we are root."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    folder.chmod(0o755)
    return folder


def sweep() -> None:
    """Remove folders of labs whose process is gone and that nobody asked to keep."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and not (folder / KEPT).exists():
            shutil.rmtree(folder, ignore_errors=True)
