"""The gateway's side of a lab: a Kubernetes API that the server renders into, and the router that carries out what it says."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from lab.handles import ROOT, answer
from lab.ports import HOST, free_ports
from lab.processes import Child, clean_environ, spawn, wait_until

START_SECONDS = 30


@dataclass
class Gateway:
    """Both processes. The API must listen before the server starts and outlive it: its objects are in memory."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    kube: Child | None = None
    router: Child | None = None

    @property
    def kubeconfig(self) -> Path:
        """What the server is started with."""
        return self.folder / "kubeconfig.json"

    @property
    def kube_url(self) -> str:
        return f"http://{HOST}:{self.ports[0]}"

    @property
    def url(self) -> str:
        """Where users send requests."""
        return f"http://{HOST}:{self.ports[1]}"

    def launch(self) -> None:
        """Start both; returns when both listen. LabError otherwise."""
        kube = ["lab.kube", "--port", str(self.ports[0]), "--kubeconfig", str(self.kubeconfig)]
        self.kube = self._spawn("kube", kube)
        wait_until(self.kubeconfig.exists, self.kube, START_SECONDS, "the lab's Kubernetes API did not start")
        self.router = self._spawn("router", ["lab.router", "--kube", self.kube_url, "--port", str(self.ports[1])])
        wait_until(self._routes, self.router, START_SECONDS, "the lab's router did not start")

    def stop(self) -> None:
        """End both. Safe to repeat."""
        for child in (self.router, self.kube):
            if child is not None:
                child.stop(timeout=2)

    def described(self) -> dict[str, Any]:
        """URLs for tests."""
        return {"kube_url": self.kube_url, "router_url": self.url}

    def _spawn(self, name: str, arguments: list[str]) -> Child:
        command = [sys.executable, "-m", *arguments]
        return spawn(name, command, log=self.folder / f"{name}.log", env=clean_environ({"PYTHONPATH": str(ROOT)}), cwd=ROOT)

    def _routes(self) -> bool:
        try:
            return httpx.get(f"{self.url}/_router/routes", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@dataclass(frozen=True)
class GatewayView:
    """A running gateway as a test sees it, from a lab's description."""

    kube_url: str
    router_url: str

    @classmethod
    def of(cls, described: dict[str, Any]) -> GatewayView:
        """KeyError when the lab has none."""
        return cls(described["gateway"]["kube_url"], described["gateway"]["router_url"])

    def shares(self, route_id: int) -> tuple[str, dict[int, int]]:
        """(`lb` or `percent`, weight by deployment id) as rendered for a route; no deployment when it is not rendered."""
        routes = answer(httpx.get(f"{self.router_url}/_router/routes", timeout=10, trust_env=False))
        found = routes.get(f"ai-route-route-{route_id}.internal", {"mode": "", "candidates": []})
        summed: dict[int, int] = {}
        for row in found["candidates"]:
            summed[row["model_id"]] = summed.get(row["model_id"], 0) + row["weight"]
        return found["mode"], summed

    def refuse_writes(self, match: str, *, status: int = 500, delay: float = 0.0, times: int = 1000) -> None:
        """Refuse (status 0: only delay) the next writes whose path holds `match`."""
        body = {"method": "PUT", "match": match, "status": status, "delay": delay, "times": times}
        httpx.post(f"{self.kube_url}/_fault", json=body, timeout=10, trust_env=False).raise_for_status()

    def heal(self) -> None:
        """No fault any more."""
        httpx.delete(f"{self.kube_url}/_fault", timeout=10, trust_env=False).raise_for_status()
