"""A lab that another process runs, seen through its description file; and `session`, which takes that one or starts its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from lab.bootstrap import Keys
from lab.errors import LabError
from lab.handles import RemoteWorker, answer, ask
from lab.stack import Lab

VARIABLE = "ROLLOUT_LAB"  # names the description file of a running lab


class Remote:
    """The same handles as `Lab`, for a lab that is not ours to stop."""

    def __init__(self, file: Path) -> None:
        try:
            self._first: dict[str, Any] = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise LabError(f"{file} does not describe a lab", str(error), "start one with `make lab`") from error
        self.control_url = str(self._first["control_url"])

    @property
    def keys(self) -> Keys:
        return Keys(*(str(self._first[f"{name}_key"]) for name in ("management", "inference", "user")))

    @property
    def version(self) -> str:
        return str(self._first["version"])

    @property
    def mode(self) -> str:
        """`disabled` or `external`: how the server's gateway runs."""
        return str(self._first["mode"])

    def description(self) -> dict[str, Any]:
        """The lab as it is now: pids change over restarts."""
        return answer(httpx.get(self.control_url, timeout=10, trust_env=False))

    def worker(self, name: str) -> RemoteWorker:
        """A worker by name; LabError when there is none."""
        for row in self._first["workers"]:
            if row["name"] == name:
                return RemoteWorker(name, row["url"], row["metrics_url"], self.control_url)
        raise LabError(f"no worker {name}", "the lab does not have it", "look at the description file")

    def kill_server(self) -> None:
        ask(self.control_url, "kill", "gpustack")

    def restart_server(self) -> None:
        ask(self.control_url, "restart", "gpustack")


@contextmanager
def session() -> Iterator[Lab | Remote]:
    """The lab that `$ROLLOUT_LAB` describes, left as it is afterwards; without it a lab of our own, stopped afterwards."""
    if file := os.environ.get(VARIABLE):
        yield Remote(Path(file))
        return
    with Lab() as lab:
        yield lab
