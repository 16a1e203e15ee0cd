"""The real GPUStack server on loopback: starts it from its cached environment, waits until it is ready, stops it by pid.

Built-in observability and embedded worker are off. Without a kubeconfig so is the gateway: the server itself routes. With one it
renders for an external gateway. The log file is kept in the folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx

from lab.environment import Environment
from lab.ports import HOST, free_ports
from lab.processes import Child, clean_environ, spawn, wait_until

ADMIN_PASSWORD = "Lab_admin-1"
REGISTRATION_TOKEN = "lab-registration-token"
READY_SECONDS = 180
LAUNCHER = Path(__file__).with_name("loopback.py")


@dataclass(frozen=True)
class Ports:
    """Every port the server wants; `gateway` and `tls` are unused but must be free."""

    api: int
    metrics: int
    proxy: int
    gateway: int
    tls: int

    @classmethod
    def free(cls) -> Ports:
        return cls(*free_ports(5))


@dataclass
class Server:
    """One server. Restarting keeps its ports, its data folder and its database."""

    environment: Environment
    folder: Path
    database_url: str
    ports: Ports = field(default_factory=Ports.free)
    extra_env: dict[str, str] = field(default_factory=dict)
    kubeconfig: Path | None = None
    child: Child | None = None
    killed: bool = False  # by us: not a failure of the lab

    @property
    def url(self) -> str:
        """API and, with the gateway disabled, inference too."""
        return f"http://{HOST}:{self.ports.api}"

    @property
    def metrics_url(self) -> str:
        """The exporter (`/metrics`, `/metrics/targets`)."""
        return f"http://{HOST}:{self.ports.metrics}"

    def launch(self) -> None:
        """Start the process and return at once."""
        data = self.folder / "server"
        data.mkdir(exist_ok=True)
        self.killed = False
        self.child = spawn(
            "gpustack",
            [self.environment.python, "-I", LAUNCHER, *self._arguments(data)],
            log=self.folder / "gpustack.log",
            env=clean_environ({"GPUSTACK_BOOTSTRAP_WITH_EMBEDDED_SOURCES": "true", "HOME": str(data), **self.extra_env}),
            cwd=data,
        )

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Until `/readyz` answers 200; LabError with the log's tail when it does not."""
        assert self.child is not None
        with httpx.Client(trust_env=False, timeout=2) as http:
            wait_until(lambda: _ready(http, self.url), self.child, seconds, "the GPUStack server did not start")

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self.child is not None:
            self.child.stop(timeout=2)  # its own shutdown sometimes hangs; nothing here is worth waiting for

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.killed = True
        if self.child is not None:
            self.child.kill()

    def _arguments(self, data: Path) -> list[str]:
        numbers = {
            "--port": self.ports.gateway,
            "--tls-port": self.ports.tls,
            "--api-port": self.ports.api,
            "--proxy-port": self.ports.proxy,
            "--metrics-port": self.ports.metrics,
        }
        mode = ["disabled"] if self.kubeconfig is None else ["external", "--gateway-kubeconfig", str(self.kubeconfig)]
        arguments = ["start", "--gateway-mode", *mode, "--disable-worker", "--disable-update-check"]
        arguments += ["--disable-builtin-observability", "--disable-openapi-docs"]
        arguments += [part for flag, port in numbers.items() for part in (flag, str(port))]
        arguments += ["--database-url", self.database_url, "--advertise-address", HOST, "--data-dir", str(data)]
        return [*arguments, "--bootstrap-password", ADMIN_PASSWORD, "--token", REGISTRATION_TOKEN]


def _ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False
