"""Who ticks a rollout, and whether that process still lives. Reads the process table only; never ends a process."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

_UNKNOWN = "?"
"""start time where there is no /proc: then only existence is judged"""


@dataclass(frozen=True)
class Owner:
    """A process: host name, process id, and a token that tells it from a later process with the same id."""

    host: str
    pid: int
    token: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(host=platform.node() or "localhost", pid=pid, token=f"{_started(pid) or _UNKNOWN}.{_system()}")

    @classmethod
    def parse(cls, text: str) -> Owner:
        """From `host:pid:start-token`. ValueError otherwise."""
        host, pid, token = text.rsplit(":", 2)
        return cls(host=host, pid=int(pid), token=token)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.token}"

    def alive(self) -> bool:
        """False only when this process is surely gone. On another host, after a reboot, in another container: True, its lease decides."""
        started, _, system = self.token.rpartition(".")
        if self.host != (platform.node() or "localhost") or system != _system():
            return True
        if started == _UNKNOWN:
            return _exists(self.pid)
        return _started(self.pid) == started


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot (`/proc/<pid>/stat`, field 22); None: gone, a zombie, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may itself hold blanks and parentheses
    return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> bool:
    if os.name != "posix":  # there signal 0 is no question but an order
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _system() -> str:
    """Which process table we see: two containers may share a host name, and process ids start anew at each boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "0"
    return hashlib.sha256(f"{boot} {space}".encode()).hexdigest()[:8]
