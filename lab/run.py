"""`python -m lab.run -- COMMAND`: run a command (a test run, a benchmark) against a fresh lab, then stop the lab.

The command finds the lab's description file in `$ROLLOUT_LAB`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.errors import LabError
from lab.remote import VARIABLE
from lab.stack import Lab, to_stderr

USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """The command's exit code; 1 when the lab did not come up, 128 + N when a signal ended us."""
    command = list(sys.argv[1:] if argv is None else argv)
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        to_stderr("usage: python -m lab.run -- COMMAND [ARGUMENT…]")
        return USAGE
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory() as folder, Lab() as lab:
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
