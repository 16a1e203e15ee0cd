"""Child processes of the lab: started in the background, logged to a file, ended by pid, dead when their parent is.

Linux only (parent-death signal). Start children from a thread that lives as long as they should: the kernel sends the
signal when the *thread* that started them ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: nothing may be imported between fork and exec
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without proxies, without the caller's Python, without GPUStack settings of the host; plus `extra`."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in _FOREIGN and not key.startswith("GPUSTACK_") and not key.lower().endswith("_proxy")
    }
    return {**kept, **(extra or {})}


@dataclass
class Child:
    """One running process and its log file."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, sig: signal.Signals = signal.SIGTERM, timeout: float = 15.0) -> float:
        """Ask it to end, kill it after `timeout` seconds; returns the seconds it took. Safe to repeat."""
        began = time.monotonic()
        if self.alive:
            self.process.send_signal(sig)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL, as a crash; returns when it is gone."""
        if self.alive:
            self.process.kill()
            self.process.wait(10)

    def tail(self, lines: int = 20) -> str:
        """The end of its log, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""


def spawn(
    name: str,
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    death_signal: signal.Signals = signal.SIGTERM,
    user: int | None = None,
) -> Child:
    """Start a child in a session of its own (a Ctrl-C reaches us, not it). `user`: uid and gid to run as, when we are root."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [os.fspath(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_die_with(death_signal, os.getpid()),  # noqa: PLW1509 - two system calls, loaded before the fork
            **as_user(user),
        )
    return Child(name, log, process)


def as_user(uid: int | None) -> dict[str, Any]:
    """Arguments for `subprocess` to run as a user with its primary group and no other; none at all for None."""
    return {} if uid is None else {"user": uid, "group": pwd.getpwuid(uid).pw_gid, "extra_groups": []}


def _die_with(sig: signal.Signals, parent: int) -> Callable[[], None]:
    def arm() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
        if os.getppid() != parent:  # it died before we could ask
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


def wait_until(ready: Callable[[], bool], child: Child, seconds: float, what: str, every: float = 0.05) -> None:
    """Poll until `ready`; LabError with the log's tail when the child ends or the time is over."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not child.alive:
            raise LabError(what, f"{child.name} ended with {child.process.returncode}\n{child.tail()}", f"read {child.log}")
        if time.monotonic() > deadline:
            raise LabError(what, f"{child.name} was not ready within {seconds:.0f} s\n{child.tail()}", f"read {child.log}")
        time.sleep(every)


def stop_pid(pid: int, timeout: float = 15.0) -> bool:
    """End a process that is not our child: SIGTERM, then SIGKILL. True when it is gone."""
    for sig, patience in ((signal.SIGTERM, timeout), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        try:
            os.kill(pid, sig)
            while time.monotonic() < deadline:
                if _zombie(pid):
                    return True
                os.kill(pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return True
    return False


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
