"""`python -m rollout.testing.serve`: the sandbox as a process of its own, for tests that kill the command under test.

Writes a JSON file when it is ready (urls, keys, pid; the lab's words) and runs until SIGTERM or SIGINT. Loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rollout.testing.gpustack.flavour import DEFAULT, FLAVOURS
from rollout.testing.sandbox import Sandbox


def write_ready(path: Path, described: dict[str, Any]) -> None:
    """Appear complete or not at all; keys inside, so for the owner only."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(described, file, indent=1)
    draft.replace(path)


async def serve(port: int, ready_file: Path | None, scale: float, engine: dict[str, Any], version: str = DEFAULT) -> None:
    """Run until a signal arrives."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    box = Sandbox(scale=scale, engine=engine, version=version)
    await box.start(port)
    described = {**box.describe(), "pid": os.getpid()}
    if ready_file is not None:
        await asyncio.to_thread(write_ready, ready_file, described)
    sys.stdout.write(f"{box.url}\n")
    sys.stdout.flush()
    await stop.wait()
    await box.stop()


def main() -> None:
    """Command line of the sandbox process."""
    parser = argparse.ArgumentParser(prog="python -m rollout.testing.serve", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port of the fake GPUStack (0: any)")
    parser.add_argument("--ready-file", type=Path, help="JSON written when everything listens")
    parser.add_argument("--scale", type=float, default=0.1, help="1.0: as slow as the real server")
    parser.add_argument("--engine", type=json.loads, default={}, help="engine knobs as JSON, e.g. '{\"slots\": 64}'")
    parser.add_argument("--version", choices=sorted(FLAVOURS), default=DEFAULT, help="of the server that is stood in for")
    args = parser.parse_args()
    asyncio.run(serve(args.port, args.ready_file, args.scale, args.engine, args.version))


if __name__ == "__main__":
    main()
