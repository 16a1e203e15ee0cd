"""The person at the terminal: writes a plan, runs the real `rollout` command as a process, reads its screen and its store.

It knows keys and a folder of its own; it never touches the server itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from rollout.clock import SystemClock
from rollout.domain.state import RolloutState
from rollout.errors import StoreError
from rollout.store import Store

Row = dict[str, Any]
ROLLOUT = str(Path(sys.executable).with_name("rollout"))
COMPRESSED: Row = {
    "evidence": {
        "mode": "sparse",
        "window": "2s",
        "min_requests": 10,
        "min_time": "3s",
        "min_time_before_full": "8s",
        "probes": {"pairs": 120, "batch": 10, "max_tokens": 4},
    },
    "stage": {"worker": "staging", "prompt_tokens": [64], "concurrency": [1, 4], "requests_per_cell": 4, "output_tokens": 8},
    "drain": {"quiet": "2s", "deadline": "5m"},
    "window": {"duration": "3s"},
    "cleanup": {"approval": "none"},
    "ready_within": "60s",
}
"""Margins and error bounds are the product's own; only durations are shorter than anybody would choose."""


class Operator:
    """`described` is the lab's description; plan, store and screen live in `folder`."""

    def __init__(self, described: Mapping[str, Any], route: str, folder: Path) -> None:
        self.described, self.route, self.folder = dict(described), route, folder
        self._store, self._screen = folder / "rollout.db", folder / "screen.txt"
        self._processes: list[subprocess.Popen[str]] = []

    def plan(self, stable: list[str], *, worker: str = "spark-02", change: Row | None = None, **parts: Any) -> str:
        """A plan file for the route, as a path; `parts` are merged into COMPRESSED, part by part."""
        body: Row = {
            "apiVersion": "rollout/v1",
            "kind": "RolloutPlan",
            "metadata": {"name": self.route},
            "gpustack": {
                "server": self.described["server_url"],
                "inference": self.described["inference_url"],
                "management_key": {"env": "LAB_MANAGEMENT_KEY"},
                "inference_key": {"env": "LAB_INFERENCE_KEY"},
            },
            "route": {"name": self.route},
            "change": change or {"unit": "backend_image", "to": {"image_name": "sim/vllm:2"}},
            "stable": [{"deployment": name} for name in stable],
            "canary": {"sizing": {"worker": worker}},
        }
        for key, part in {**COMPRESSED, **parts}.items():
            merge = isinstance(part, dict) and "skip" not in part
            body[key] = {**COMPRESSED.get(key, {}), **part} if merge else part
        path = self.folder / "plan.yaml"
        path.write_text(yaml.safe_dump(body, sort_keys=False), "utf-8")
        return str(path)

    def environ(self) -> dict[str, str]:
        """The command's environment: the keys, a store of its own, nothing of the caller's settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k != "CI"}
        keys = {"LAB_MANAGEMENT_KEY": self.described["management_key"], "LAB_INFERENCE_KEY": self.described["inference_key"]}
        return {**kept, **keys, "HOME": str(self.folder), "ROLLOUT_STORE": str(self._store), "ROLLOUT_ACTOR": "lab", "COLUMNS": "160"}

    def command(self, *args: str, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        """`rollout ARGS` to its end."""
        line = [ROLLOUT, *args]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, env=self.environ(), timeout=timeout, check=False)

    def say(self, verb: str, reason: str) -> None:
        """A verb with its reason to the active rollout; LabError when the command refuses."""
        done = self.command(verb, self.state().id, "--reason", reason)
        if done.returncode:
            raise LabError(f"rollout {verb} ended with {done.returncode}", done.stderr[-500:], "see the screen")

    def start(self, *args: str) -> subprocess.Popen[str]:
        """`rollout ARGS` in the background; what it shows goes to `screen()`."""
        with self._screen.open("a", encoding="utf-8") as screen:
            process = subprocess.Popen([ROLLOUT, *args], cwd=self.folder, stdout=screen, stderr=screen, text=True, env=self.environ())
        self._processes.append(process)
        return process

    def screen(self) -> str:
        """What the commands of `start` have shown so far."""
        return self._screen.read_text("utf-8") if self._screen.exists() else ""

    def state(self) -> RolloutState:
        """The newest rollout as the store has it now; LabError when there is none."""
        found = self.states()
        if not found:
            raise LabError("no rollout in the store", self.screen()[-500:], "see why the command did not begin one")
        return found[0]

    def states(self) -> list[RolloutState]:
        """All rollouts of the store, newest first; none before the first command has made it."""
        try:
            with Store.open(str(self._store), create=False, now=SystemClock().now) as store:
                return [row.state for row in store.list()]
        except StoreError:
            return []

    def until(self, true: Callable[[RolloutState], Any], what: str, seconds: float = 120.0) -> RolloutState:
        """Wait for the newest rollout to be somewhere. LabError with the screen when it is not within `seconds`, or when it has ended."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.states()
            if found and true(found[0]):
                return found[0]
            if time.monotonic() > deadline or (found and found[0].terminal):
                raise LabError(f"not within {seconds:g} s: {what}", self.screen()[-3000:], "read the screen above")
            time.sleep(0.2)

    def run(self, *args: str, code: int, seconds: float = 300.0) -> None:
        """`rollout ARGS` to its end, on the screen; LabError when it ends with another code."""
        ended = self.finished(self.start(*args), seconds)
        if ended != code:
            raise LabError(f"rollout {args[0]} ended with {ended}, not {code}", self.screen()[-3000:], "read the screen above")

    def finished(self, process: subprocess.Popen[str], seconds: float = 300.0) -> int:
        """The exit code of a command of `start`; LabError with its screen when it does not end."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"rollout did not end within {seconds:g} s", self.screen()[-3000:], "read the screen above") from error

    def journal(self) -> list[Row]:
        """The newest rollout's journal, as `rollout journal --json` prints it."""
        done = self.command("journal", self.state().id, "--json")
        return list(json.loads(done.stdout))

    def close(self) -> None:
        """End every command that still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
