"""What the root help costs beside what it cannot do without: `python -m benchmarks.help`.

`rollout --help` against `python -c 'import typer'`, by turns, in this very environment; medians of 9 after one of each to warm the disk.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

REPETITIONS = 9
HELP = (str(Path(sys.executable).with_name("rollout")), "--help")
TYPER = (sys.executable, "-c", "import typer")


def seconds(command: tuple[str, ...]) -> float:
    """How long a command takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Print both medians and their ratio."""
    pairs = [(seconds(HELP), seconds(TYPER)) for _ in range(REPETITIONS + 1)][1:]
    ours, typer = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    print(f"rollout --help {ours * 1000:.0f} ms, import typer {typer * 1000:.0f} ms")
    print(f"help: ratio={ours / typer:.2f}")


if __name__ == "__main__":
    main()
