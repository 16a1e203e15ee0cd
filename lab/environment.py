"""Builds the GPUStack server's own virtual environment, once, outside the clone; later calls only find it.

The server's pins clash with ours, so it never shares the project's environment. The build happens in a folder beside the
final one and is renamed when complete: a half-built environment is never seen. This room must not start anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

HERE = Path(__file__).resolve().parent
MARKER = "complete.json"
BUILD_SECONDS = 900

Say = Callable[[str], None]


@dataclass(frozen=True)
class Pins:
    """What `versions.toml` says of one version of the server."""

    gpustack: str
    lock: Path
    postgresql: str

    @property
    def digest(self) -> str:
        """Twelve hex digits over everything that decides what the environment holds, the Python version included."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        text = "\n".join([self.gpustack, self.postgresql, python, self.lock.read_text("utf-8")])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_pins(path: Path = HERE / "versions.toml", version: str | None = None) -> Pins:
    """The pins of `version`, else of the default one; the lock file is named relative to `path`. LabError for one that is not there."""
    data = tomllib.loads(path.read_text("utf-8"))
    version = version or str(data["default"])
    if version not in data["gpustack"]:
        raise LabError(f"the lab has no GPUStack {version}", f"it knows {', '.join(sorted(data['gpustack']))}", f"see {path.name}")
    postgresql = f"{data['postgresql']['distribution']}-{data['postgresql']['version']}"
    return Pins(version, path.parent / data["gpustack"][version]["lock"], postgresql)


def versions(path: Path = HERE / "versions.toml") -> tuple[str, ...]:
    """The versions that can be asked for, the default first."""
    data = tomllib.loads(path.read_text("utf-8"))
    return (str(data["default"]), *sorted(v for v in data["gpustack"] if v != data["default"]))


def cache_root() -> Path:
    """`$ROLLOUT_LAB_CACHE`, else `~/.cache/rollout-lab`; made when missing."""
    root = Path(os.environ.get("ROLLOUT_LAB_CACHE") or Path.home() / ".cache" / "rollout-lab")
    root.mkdir(parents=True, exist_ok=True)
    return root


@dataclass(frozen=True)
class Environment:
    """A complete environment: `python` runs the pinned server."""

    path: Path
    version: str

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"


def ensure(say: Say, pins: Pins | None = None, root: Path | None = None) -> Environment:
    """The cached environment, built when missing (about a minute, once).

    Two callers do not collide: the second waits for the first and then finds its work. Raises LabError when the
    installation fails; nothing is left at the final place then.
    """
    pins = pins or read_pins()
    root = root or cache_root()
    final = root / f"gpustack-{pins.gpustack}-{pins.digest}"
    if (final / MARKER).exists():
        return Environment(final, pins.gpustack)
    with exclusive(root / f"{final.name}.lock", say, f"another process is building {final.name}"):
        if not (final / MARKER).exists():
            _build(final, pins, say)
    return Environment(final, pins.gpustack)


@contextmanager
def exclusive(lock: Path, say: Say, waiting: str) -> Iterator[None]:
    """Hold a file lock, which dies with the process; says once that it is waiting."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"lab: {waiting}, waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(final: Path, pins: Pins, say: Say) -> None:
    began = time.monotonic()
    for stale in final.parent.glob(f".{final.name}.*"):  # we hold the lock: whoever made these is gone
        shutil.rmtree(stale, ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    temp = final.parent / f".{final.name}.{os.getpid()}"
    say(f"lab: building the environment of gpustack {pins.gpustack} in {final} (once; about a minute)")
    python = temp / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(temp)], say)
    _run([str(python), "-m", "pip", *_PIP_QUIET, "install", "--no-deps", "--no-compile", "-r", str(pins.lock)], say)
    say(f"lab: installed after {time.monotonic() - began:.0f} s, compiling")
    # Compiled here for the final place, on every core: an interpreter that compiles on the way starts seconds later.
    _run([str(python), "-m", "compileall", "-q", "-j0", "-s", str(temp), "-p", str(final), str(temp / "lib")], say, check=False)
    took = round(time.monotonic() - began, 1)
    (temp / MARKER).write_text(json.dumps({"gpustack": pins.gpustack, "build_seconds": took}) + "\n", "utf-8")
    temp.rename(final)
    say(f"lab: environment ready after {took} s")


_PIP_QUIET = ("--disable-pip-version-check", "--no-input", "--quiet")


def _run(command: list[str], say: Say, check: bool = True) -> None:
    environ = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if check and done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        say(tail)
        raise LabError(
            "the lab's environment could not be built",
            f"`{' '.join(command[:4])} …` ended with {done.returncode}",
            "read the lines above; a package index must be reachable for the first build only",
        )


def main() -> None:
    """`python -m lab.environment [VERSION]`: build it now, print where it is."""
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    print(ensure(lambda line: print(line, file=sys.stderr), read_pins(version=asked)).path)


if __name__ == "__main__":
    main()
