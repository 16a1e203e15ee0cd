"""Handles on what runs in the lab, for tests: turn a worker's knobs, kill it, bring it back."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from lab.errors import LabError
from lab.gpustack import REGISTRATION_TOKEN
from lab.ports import HOST, free_ports
from lab.processes import Child, clean_environ, spawn, wait_until

ROOT = Path(__file__).resolve().parent.parent
LISTEN_SECONDS = 30


@dataclass
class Worker:
    """One simulated worker process. `facts`: driver_version, os_version, kernel, worker_version, mem_gib; used at the next launch."""

    name: str
    folder: Path
    server_url: str
    facts: dict[str, Any] = field(default_factory=dict)
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    child: Child | None = None

    @property
    def url(self) -> str:
        """The worker's API, where the server sends inference and where `/_sim` is."""
        return f"http://{HOST}:{self.ports[0]}"

    @property
    def metrics_url(self) -> str:
        """The worker's metrics port (`/metrics`, `/metrics/raw`)."""
        return f"http://{HOST}:{self.ports[1]}"

    @property
    def pid(self) -> int:
        return self.child.pid if self.child else 0

    def launch(self) -> None:
        """Start the process and return at once. Ports stay the same over restarts, so the server finds the same worker."""
        command = [sys.executable, "-m", "lab.worker", "--server", self.server_url, "--token", REGISTRATION_TOKEN, "--name", self.name]
        command += ["--port", str(self.ports[0]), "--metrics-port", str(self.ports[1])]
        for fact, value in self.facts.items():
            command += [f"--{fact.replace('_', '-')}", str(value)]
        env = clean_environ({"PYTHONPATH": str(ROOT)})
        self.child = spawn(self.name, command, log=self.folder / f"{self.name}.log", env=env, cwd=ROOT)

    def wait_listening(self) -> None:
        """Until its API answers; LabError otherwise."""
        assert self.child is not None
        wait_until(self._answers, self.child, LISTEN_SECONDS, f"worker {self.name} did not start")

    def kill(self) -> None:
        """SIGKILL: the node is gone with every engine on it."""
        if self.child is not None:
            self.child.kill()

    def restart(self, **facts: Any) -> None:
        """A new process (killing the old one when it lives) that adopts its instances; `facts` are changed before."""
        self.kill()
        self.facts |= facts
        self.launch()
        self.wait_listening()

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop(timeout=5)

    def state(self) -> dict[str, Any]:
        """`GET /_sim`: memory, knobs, live and finished instances with their counters."""
        return _answer(httpx.get(f"{self.url}/_sim", timeout=10, trust_env=False))

    def set(self, *, model: str | None = None, image: str | None = None, **changes: Any) -> dict[str, Any]:
        """Turn knobs. Engine knobs (see `rollout.testing.knobs`) go to one deployment, to one image, or to all; node knobs to the node."""
        state = self.state()
        node = {key: value for key, value in changes.items() if key in state["knobs"]}
        engine = {key: value for key, value in changes.items() if key not in state["knobs"]}
        body: dict[str, Any] = dict(node)
        if engine:
            body |= {"knobs": engine, **({"model": model} if model else {}), **({"image": image} if image else {})}
        return self.control(body)

    def crash(self, instance: int | str) -> dict[str, Any]:
        """Kill one engine, by instance id or name."""
        found = [row["id"] for row in self.state()["instances"] if instance in (row["id"], row["name"])]
        if not found:
            raise LabError(f"cannot crash {instance}", f"it does not run on {self.name}", "look at `state()`")
        return self.control({"crash": found[0]})

    def control(self, body: dict[str, Any]) -> dict[str, Any]:
        """A raw `POST /_sim`."""
        return _answer(httpx.post(f"{self.url}/_sim", json=body, timeout=10, trust_env=False))

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/version", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def attach(row: dict[str, Any]) -> Worker:
    """A handle on a worker of a lab that somebody else runs (an entry of its description): knobs only, no process."""
    worker = Worker(row["name"], Path("/nonexistent"), "", ports=[0, 0])
    worker.ports = [int(row[key].rpartition(":")[2]) for key in ("url", "metrics_url")]
    return worker


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.status_code != 200:
        raise LabError("the worker refused the control call", response.text[:300], "see `rollout/testing/node_http.py` for its keys")
    return dict(response.json())
