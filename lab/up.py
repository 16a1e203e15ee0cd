"""`python -m lab.up --json FILE`: bring the lab up, describe it in FILE, stay until SIGTERM or Ctrl-C, then stop everything."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from lab.environment import versions
from lab.errors import LabError
from lab.stack import Lab, to_stderr


class _Stopped(Exception):
    """A signal asked us to end while the lab was still coming up."""


def main(argv: list[str] | None = None) -> int:
    """0 after a requested stop, 1 when a part failed or ended by itself."""
    parser = argparse.ArgumentParser(prog="python -m lab.up", description="the real GPUStack on loopback, in the foreground")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where to write URLs, keys and pids")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    choose(parser)
    arguments = parser.parse_args(argv)
    asked = threading.Event()
    coming_up = True

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        first = not asked.is_set()
        asked.set()
        if coming_up and first:
            raise _Stopped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        with Lab(keep=arguments.keep, gpustack=arguments.gpustack, gateway=arguments.gateway == "on") as lab:
            coming_up = False
            lab.write(arguments.json)
            try:
                return _watch(lab, asked)
            finally:
                arguments.json.unlink(missing_ok=True)
    except _Stopped:
        return 0
    except LabError as error:
        to_stderr(f"lab: {error}")
        return 1


def choose(parser: argparse.ArgumentParser) -> None:
    """The two options that say which lab it is to be."""
    known = versions()
    parser.add_argument("--gpustack", choices=known, default=known[0], help="version of the server")
    parser.add_argument("--gateway", choices=("off", "on"), default="off", help="inference by the server itself, or through a gateway")


def _watch(lab: Lab, asked: threading.Event) -> int:
    while not asked.wait(1.0):
        for child, meant in ((lab.postgres.child, False), (lab.server.child, lab.server.killed)):
            if child is not None and not child.alive and not meant:
                to_stderr(f"lab: {child.name} ended with {child.process.returncode}\n{child.tail()}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
