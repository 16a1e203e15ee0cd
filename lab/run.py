"""`python -m lab.run [--gpustack VERSION] [--gateway on] -- COMMAND`: run a command (a test run) against a fresh lab, then stop it.

The command finds the lab's description file in `$ROLLOUT_LAB`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.errors import LabError
from lab.remote import VARIABLE
from lab.stack import Lab, to_stderr
from lab.up import choose

USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """The command's exit code; 1 when the lab did not come up, 128 + N when a signal ended us."""
    given = list(sys.argv[1:] if argv is None else argv)
    at = given.index("--") if "--" in given else len(given) if given[:1] and given[0].startswith("-") else 0
    parser = argparse.ArgumentParser(prog="python -m lab.run", usage="%(prog)s [--gpustack VERSION] [--gateway on] -- COMMAND [ARGUMENT…]")
    choose(parser)
    options, command = parser.parse_args(given[:at]), given[at + 1 if given[at : at + 1] == ["--"] else at :]
    if not command:
        to_stderr(parser.format_usage().strip())
        return USAGE
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        asked = Lab(gpustack=options.gpustack, gateway=options.gateway == "on")
        with tempfile.TemporaryDirectory() as folder, asked as lab:
            description = Path(folder) / "lab.json"
            lab.write(description)
            return _run(command, description)
    except LabError as error:
        to_stderr(f"lab: {error}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(command: list[str], description: Path) -> int:
    with subprocess.Popen(command, env={**os.environ, VARIABLE: str(description)}) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # it reached the command too: let it finish its own clean-up first
            process.wait()
            raise
        except BaseException:
            process.terminate()
            process.wait()
            raise


if __name__ == "__main__":
    sys.exit(main())
