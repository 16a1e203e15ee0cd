"""`python -m lab.down FILE`: stop a lab by the pids in its description, the way it would stop itself."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lab.processes import stop_pid
from lab.stack import sweep, to_stderr

PATIENCE = 40.0


def main(argv: list[str] | None = None) -> int:
    """0 when nothing of it runs any more, 1 when a process would not end, 2 when FILE does not describe a lab."""
    parser = argparse.ArgumentParser(prog="python -m lab.down", description="stop a lab that `python -m lab.up` started")
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args(argv).file
    try:
        pids: dict[str, int] = json.loads(file.read_text("utf-8"))["pids"]
    except (OSError, ValueError, KeyError) as error:
        to_stderr(f"lab: {file} does not describe a running lab: {error}")
        return 2
    left = [name for name in sorted(pids, key=lambda n: n != "lab") if belongs(pids[name], name) and not stop_pid(pids[name], PATIENCE)]
    file.unlink(missing_ok=True)
    sweep()
    if left:
        to_stderr(f"lab: still running: {', '.join(left)}")
    return 1 if left else 0


def belongs(pid: int, name: str) -> bool:
    """True when that pid still is the process the file means: a number may have been given to somebody else meanwhile."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return False
    marks = {"lab": "lab", "postgresql": "postgres", "gpustack": "loopback.py", "kube": "lab.kube --port", "router": "lab.router --kube"}
    return marks.get(name, "lab.worker --server") in command


if __name__ == "__main__":
    sys.exit(main())
