"""How long a rollback of a live canary takes on the real server, ours beside the bare API calls, in turns: `python -m benchmarks.rollback`.

Both are commands as a person starts them, process start included: `rollout rollback ID` beside a running `rollout run`, and the script
in `bare_rollback`. Users ask the route all the while, and they are who is believed: the canary's share is 0 from the first request on
behind which none was answered by it. That time is the last line. When whoever went back had proved it by 20 own requests, sent in
the same manner by both, is the line before. Uses the lab that `$ROLLOUT_LAB` names, else starts one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from lab import session
from lab.scenario import Scenario, wrote

REPETITIONS = 11
USERS = 4
PAUSE = 0.02
"""seconds between an answer and a user's next request: enough to see the moment, not so many that the server has no time left"""
SHARE = 900
"""the canary's weight beside stable's 100: it answers nine of ten, so the last answer tells the moment to some 20 ms"""
FAST = {"SIM_TTFT_BASE": "0.02", "SIM_LOAD_FACTOR": "0"}
PLAN: dict[str, Any] = {"stage": {"skip": "this measures the way back"}, "ladder": [90, 100]}
OURS, BARE = "ours", "bare"


@dataclass(frozen=True)
class Took:
    """Seconds since the command was started: until users no longer met the canary, until that was proved, until the command ended."""

    zero: float
    proved: float
    whole: float

    def __str__(self) -> str:
        return f"share 0 for users after {self.zero:.2f} s, proved after {self.proved:.2f} s, command over after {self.whole:.2f} s"


@dataclass
class Users:
    """Clients that ask a route one request after another while the block runs. `seen`: when each request was sent, and who answered."""

    scene: Scenario
    seen: list[tuple[float, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Users:
        self.threads = [threading.Thread(target=self._ask) for _ in range(USERS)]
        for thread in self.threads:
            thread.start()
        time.sleep(1.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        time.sleep(0.0 if kind else 0.5)
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _ask(self) -> None:
        headers = {"Authorization": f"Bearer {self.scene.described['user_key']}"}
        with httpx.Client(base_url=self.scene.described["inference_url"], headers=headers, timeout=60, trust_env=False) as client:
            while not self.over.is_set():
                sent = time.time()
                answer = self.scene.ask(client=client)
                self.seen.append((sent, str(answer.json()["model"]) if answer.status_code == 200 else f"{answer.status_code}"))
                time.sleep(PAUSE)

    def zero(self, canary: str) -> float:
        """When the first request was sent behind which none was answered by the canary. Fails when a user was refused."""
        refused = [who for _, who in self.seen if who.isdigit()]
        if refused:
            raise SystemExit(f"{len(refused)} users were refused")
        last = max(sent for sent, who in self.seen if who == canary)
        return min(sent for sent, _ in self.seen if sent > last)


class Bench:
    """One route on the lab; each repetition begins with a canary at 90 % and ends with stable alone."""

    def __init__(self, scene: Scenario) -> None:
        self.scene = scene
        self.stable, self.hand = scene.deploy("stable", worker="spark-01", **FAST), scene.deploy("hand", worker="spark-02", **FAST)
        scene.route({self.stable: 100})
        self.plan = scene.operator.plan([self.stable], **PLAN)

    def ours(self) -> Took:
        """`rollout rollback ID`, said to the process that runs the rollout."""
        operator, known = self.scene.operator, len(self.scene.operator.states())
        owner = operator.start("run", self.plan)
        self.scene.until(lambda: len(operator.states()) > known or owner.poll() is not None, "the rollout began")
        state = operator.until(lambda s: s.fact("0.seen") is not None, "the canary takes requests")
        with Users(self.scene) as users:
            began = time.time()
            done = operator.command("rollback", state.id, "--reason", "measured")
            ended = time.time()
        if done.returncode:
            raise SystemExit(done.stderr)
        operator.finished(owner, 30)
        verified = operator.state().fact("undo.verified")
        shown = datetime.fromisoformat(verified["at"]).timestamp()
        canary = state.fact("receipts")["pairs"][0]["canary"]
        return Took(users.zero(canary) - began, shown - began, ended - began)

    def bare(self) -> Took:
        """The script of a careful person."""
        route, stable = self.scene.the_route(), self.scene.targets()[self.stable]
        targets = [
            {"id": stable["id"], "model_id": stable["model_id"], "weight": 100},
            {"model_id": self.scene.model(self.hand)["id"], "weight": SHARE},
        ]
        wrote(self.scene.api.put(f"/v2/model-routes/{route['id']}", json={"name": route["name"], "targets": targets}))
        self.scene.until(lambda: all(t["state"] == "active" for t in self.scene.targets().values()), "both targets are active")
        line = [sys.executable, "-m", "benchmarks.bare_rollback", self.scene.described["server_url"], route["name"], self.hand]
        with Users(self.scene) as users:
            began = time.time()
            done = subprocess.run(line, env=self.scene.operator.environ(), capture_output=True, text=True, check=False)
            ended = time.time()
        if done.returncode:
            raise SystemExit(done.stderr)
        return Took(users.zero(self.hand) - began, float(done.stdout) - began, ended - began)


def main() -> None:
    """Print each repetition, and the medians in the last line."""
    took: dict[str, list[Took]] = {OURS: [], BARE: []}
    with session() as lab, tempfile.TemporaryDirectory() as folder, Scenario(lab.description(), "rollback", Path(folder)) as scene:
        bench = Bench(scene)
        measure: dict[str, Callable[[], Took]] = {OURS: bench.ours, BARE: bench.bare}
        for number in range(REPETITIONS):
            for side in (OURS, BARE) if number % 2 == 0 else (BARE, OURS):
                took[side].append(measure[side]())
                print(f"{number + 1}/{REPETITIONS} {side}: {took[side][-1]}", flush=True)
    print(f"proved by own requests: {_medians(took, 'proved')}")
    print(f"rollback: {_medians(took, 'zero')}")


def _medians(took: dict[str, list[Took]], what: str) -> str:
    ours, bare = (statistics.median(getattr(t, what) for t in took[side]) for side in (OURS, BARE))
    return f"ratio={ours / bare:.2f} ours_s={ours:.2f} bare_s={bare:.2f}"


if __name__ == "__main__":
    main()
