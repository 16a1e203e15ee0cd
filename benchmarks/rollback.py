"""How long a rollback of a live canary takes on the real server, ours beside the bare API calls, in turns: `python -m benchmarks.rollback`.

Both start as the command that a person starts. Users ask the route all the while; the canary's share is 0 from the first request on
behind which none was answered by it. Uses the lab that `$ROLLOUT_LAB` names, else starts one.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import session
from lab.operator import ROLLOUT
from lab.scenario import Scenario

REPETITIONS = 5
USERS = 3
PLAN = {
    "stage": {"skip": "this measures the way back"},
    "ladder": [50, 100],
    "window": {"duration": "10m"},
}


@dataclass(frozen=True)
class Took:
    """Seconds since the command was started."""

    zero: float
    """until the canary's share was 0, as users saw it"""
    proved: float
    """until whoever went back had seen it by own requests"""
    whole: float
    """until the command ended"""


class Users:
    """Clients without a pause; (sent, who answered) of each request."""

    def __init__(self, scene: Scenario) -> None:
        self._scene, self._over = scene, threading.Event()
        self.seen: list[tuple[float, str]] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(USERS)]

    def __enter__(self) -> Users:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with self._scene._client("user_key") as client:
            while not self._over.is_set():
                sent = time.time()
                answer = self._scene.ask(client=client)
                self.seen.append((sent, str(answer.json()["model"]) if answer.status_code == 200 else str(answer.status_code)))

    def zero(self, canary: str) -> float:
        """The instant behind which nobody was answered by the canary."""
        last = max(sent for sent, who in self.seen if who == canary)
        return min(sent for sent, _ in self.seen if sent > last)


def ours(scene: Scenario, users: Users) -> Took:
    rollout_id = scene.operator.state().id
    canary = f"r{rollout_id[:8]}"
    began = time.time()
    done = scene.operator.command("rollback", rollout_id, "--reason", "measured")
    ended = time.time()
    assert done.returncode == 0, done.stderr
    proved = scene.operator.states()[0].fact("undo.proved")["at"]
    from datetime import datetime
    return Took(users.zero(next(w for _, w in users.seen if canary in w)) - began, datetime.fromisoformat(proved).timestamp() - began, ended - began)


def main() -> None:
    with session() as lab, tempfile.TemporaryDirectory() as folder, Scenario(lab.description(), "bench", Path(folder)) as scene:
        stable = scene.deploy("a", worker="spark-01", SIM_TTFT_BASE="0.02", SIM_LOAD_FACTOR="0")
        hand = scene.deploy("b", worker="spark-02", SIM_TTFT_BASE="0.02", SIM_LOAD_FACTOR="0")
        scene.route({stable: 100})
        route = scene.the_route()
        plan = scene.operator.plan([stable], **PLAN)
        ids = {row["name"]: row["id"] for row in scene.rows("models")}
        o, b = [], []
        for n in range(REPETITIONS):
            owner = scene.operator.start("run", plan)
            scene.operator.until(lambda s: s.fact("0.seen") is not None, "canary")
            with Users(scene) as users:
                time.sleep(1)
                o.append(ours(scene, users))
                time.sleep(0.5)
            print("ours", o[-1], len(users.seen), owner.wait(20), flush=True)
            t = scene.targets()
            scene.api.put(f"/v2/model-routes/{route['id']}", json={"name": scene.name, "targets": [{"id": t[stable]["id"], "model_id": ids[stable], "weight": 100}, {"model_id": ids[hand], "weight": 100}]}).raise_for_status()
            scene.until(lambda: all(r["state"] == "active" for r in scene.targets().values()), "joined")
            with Users(scene) as users:
                time.sleep(1)
                began = time.time()
                done = subprocess.run([sys.executable, "-m", "benchmarks.bare_rollback", scene.described["server_url"], scene.name, hand], env=scene.operator.environ(), capture_output=True, text=True)
                ended = time.time()
                assert done.returncode == 0, done.stderr
                time.sleep(0.5)
            gone, proved = map(float, done.stdout.split())
            b.append(Took(users.zero(hand) - began, proved - began, ended - began))
            print("bare", b[-1], len(users.seen), flush=True)
        for f in ("zero", "proved", "whole"):
            x, y = (statistics.median(getattr(t, f) for t in l) for l in (o, b))
            print(f, round(x, 3), round(y, 3), round(x / y, 2))

if __name__ == "__main__":
    main()
