"""Handles on the lab's workers: turn knobs, crash an engine, kill the node, bring it back. One for our own, one for a lab elsewhere."""

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
RESTART_SECONDS = 200


class WorkerKnobs:
    """What can be said to a worker over HTTP, whoever runs it. `url` is the worker's API, `metrics_url` its metrics port."""

    name: str
    url: str
    metrics_url: str

    def state(self) -> dict[str, Any]:
        """`GET /_sim`: memory, knobs, live and finished instances with their counters."""
        return answer(httpx.get(f"{self.url}/_sim", timeout=10, trust_env=False))

    def control(self, body: dict[str, Any]) -> dict[str, Any]:
        """A raw `POST /_sim`; returns the state afterwards."""
        return answer(httpx.post(f"{self.url}/_sim", json=body, timeout=10, trust_env=False))

    def set(self, *, model: str | None = None, image: str | None = None, **changes: Any) -> dict[str, Any]:
        """Turn knobs. Engine knobs (`rollout.testing.knobs`) go to one deployment, to one image, or to all; node knobs to the node."""
        known = self.state()["knobs"]
        body: dict[str, Any] = {key: value for key, value in changes.items() if key in known}
        engine = {key: value for key, value in changes.items() if key not in known}
        if engine:
            body |= {"knobs": engine, **({"model": model} if model else {}), **({"image": image} if image else {})}
        return self.control(body)

    def crash(self, instance: int | str) -> dict[str, Any]:
        """Kill one engine, by instance id or name."""
        found = [row["id"] for row in self.state()["instances"] if instance in (row["id"], row["name"])]
        if not found:
            raise LabError(f"cannot crash {instance}", f"it does not run on {self.name}", "look at `state()`")
        return self.control({"crash": found[0]})


@dataclass
class Worker(WorkerKnobs):
    """A worker process of ours. `facts`: driver_version, os_version, kernel, worker_version, mem_gib; used at the next launch."""

    name: str
    folder: Path
    server_url: str
    facts: dict[str, Any] = field(default_factory=dict)
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    child: Child | None = None

    def __post_init__(self) -> None:
        self.url, self.metrics_url = (f"http://{HOST}:{port}" for port in self.ports)

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

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/version", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@dataclass
class RemoteWorker(WorkerKnobs):
    """A worker of a lab that another process runs; killing and restarting go through that lab's control port."""

    name: str
    url: str
    metrics_url: str
    control_url: str

    def kill(self) -> None:
        ask(self.control_url, "kill", self.name)

    def restart(self, **facts: Any) -> None:
        ask(self.control_url, "restart", self.name, facts)


def ask(control_url: str, verb: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """`POST {control_url}/{verb}/{name}`; returns when it is done."""
    return answer(httpx.post(f"{control_url}/{verb}/{name}", json=body or {}, timeout=RESTART_SECONDS, trust_env=False))


def answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON of a control answer; LabError when it was refused."""
    if response.status_code != 200:
        raise LabError("the control call was refused", response.text[:300], f"look at what {response.request.url} accepts")
    return dict(response.json())
