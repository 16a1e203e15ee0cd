"""A route on a server (the sandbox as a process, or the real one), and the `rollout` command as a process beside it.

What a test needs to see afterwards is read from the server and from the store's file, never from the process under test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import lab_description
from tests.contract.site import Site, unique

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
ROLLOUT = str(Path(sys.executable).with_name("rollout"))
OLD, NEW = "sim/vllm:1", "sim/vllm:2"
PATIENCE = 90.0
"""seconds that one thing may take on a machine that does something else too"""
HEAD = """
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {{name: {route}}}
gpustack:
  server: {url}
  management_key: {{env: MKEY}}
  inference_key: {{env: IKEY}}
route: {{name: {route}}}
"""
"""how every plan of these tests begins"""
PLAN = (
    HEAD
    + """\
change: {{unit: backend_image, to: {{image_name: "sim/vllm:2"}}}}
stable: [{{deployment: {stable}}}]
canary: {{sizing: {{worker: spark-02}}}}
stage: {{worker: staging, requests_per_cell: 2, prompt_tokens: [16], concurrency: [1, 2], output_tokens: 4}}
ladder: [25, 50, 100]
evidence:
  {{mode: sparse, window: 1s, min_requests: 1, min_time: 1s, min_time_before_full: 1s, deadline: 10m,
    probes: {{pairs: 10, batch: 5, warm_up: 1, max_tokens: 4}}}}
drain: {{quiet: 1s, deadline: 60s}}
window: {{duration: 2s}}
cleanup: {{approval: none}}
"""
)
VOLATILE = ("updated_at", "state", "state_message", "ready_replicas", "ready_targets", "targets", "role_status", "restarting_since")


LAB = lab_description() is not None
"""whether there is a real server; a module that only says something there is no test without it: `__test__ = LAB`"""
_LAB = [pytest.param("lab", id="lab", marks=pytest.mark.lab)] if LAB else []
KINDS = [pytest.param("sandbox", id="sandbox"), *_LAB]
"""parameters of a test that runs on the sandbox, and on the real server where there is one"""
REAL_FIRST = [pytest.param("sandbox", id="sandbox", marks=pytest.mark.slow), *_LAB]
"""the same where a faster test has said it on the sandbox already: there in `make accept` only"""
SANDBOX_FIRST = [
    pytest.param("sandbox", id="sandbox"),
    *(pytest.param(*one.values, id=one.id, marks=(*one.marks, pytest.mark.slow)) for one in _LAB),
]
"""the same where every run says it on the sandbox: on the real server in `make accept` only"""


@contextmanager
def opened(kind: str, folder: Path, **engine: Any) -> Iterator[Site]:
    """A server of that kind; what a test made on it is gone afterwards. The sandbox is a process of its own."""
    with ExitStack() as stack:
        described = lab_description() if kind == "lab" else stack.enter_context(sandbox(folder, **engine))
        assert described is not None
        site = Site(described, kind)
        stack.callback(site.close)
        stack.callback(site.cleanup)
        yield site


@contextmanager
def sandbox(folder: Path, scale: float = 0.1, **engine: Any) -> Iterator[Row]:
    """The sandbox's description while its process lives. A background error of the fake server fails the test."""
    ready = folder / "sandbox.json"
    line = [
        sys.executable,
        "-m",
        "rollout.testing.serve",
        "--ready-file",
        str(ready),
        "--scale",
        str(scale),
        "--engine",
        json.dumps(engine),
    ]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait(ready.exists, "the sandbox listens", alive=process)
        yield dict(json.loads(ready.read_text("utf-8")))
    finally:
        process.terminate()
        code = process.wait(20)
        ready.unlink(missing_ok=True)
    assert code == 0


def wait(true: Callable[[], Any], what: str, seconds: float = PATIENCE, *, alive: subprocess.Popen[Any] | None = None) -> Any:
    """Poll until something is true and answer it; fails when `alive` ends before."""
    deadline = time.monotonic() + seconds
    while not (seen := true()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        assert alive is None or alive.poll() is None, f"ended with {alive.returncode} before: {what}"
        time.sleep(0.02)
    return seen


@dataclass
class Case:
    """One route with one stable deployment, a plan that replaces it, and the commands of one person."""

    site: Site
    home: Path
    changes: dict[str, str] = field(default_factory=dict)
    """texts of the plan and what stands there instead"""
    deployed: Row = field(default_factory=dict)
    """fields of stable's deployment; with `enable_model_route` its own route is the one that is rolled out"""
    template: str = PLAN
    store: str = "r.db"
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    since: int = 0
    """management writes that the sandbox had seen before"""

    def __post_init__(self) -> None:
        self.deployment: Row = self.site.deploy(unique("old"), **{"worker": "spark-01", "image_name": OLD, **self.deployed})
        self.stable = str(self.deployment["name"])
        own = [row for row in self.site.get("/v2/model-routes?perPage=1000")["items"] if row["name"] == self.stable]
        weights, meta = {self.deployment["id"]: 100}, {"team": "search", "tier": 2}
        self.row: Row = own[0] if own else self.site.new_route(weights, name=unique("live"), meta=meta)
        self.route = str(self.row["name"])
        text = self.template.format(route=self.route, url=self.site.described["server_url"], stable=self.stable)
        for old, new in self.changes.items():
            assert old in text, old
            text = text.replace(old, new)
        self.plan = self.home / f"{self.route}.yaml"
        self.plan.write_text(text, "utf-8")
        self.before = self.shape()
        self.since = len(self.writes())

    # --- the command

    def environ(self, store: str | None = None) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k not in ("CI", "NO_COLOR", "XDG_STATE_HOME")}
        keys = {"MKEY": self.site.described["management_key"], "IKEY": self.site.described["inference_key"]}
        return {**kept, **keys, "HOME": str(self.home), "ROLLOUT_STORE": str(self.home / (store or self.store)), "ROLLOUT_ACTOR": "ana"}

    def command(self, *args: str, store: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        env = self.environ(store)
        return subprocess.run([ROLLOUT, *args], cwd=self.home, capture_output=True, text=True, env=env, timeout=PATIENCE, check=False)

    def start(self, *args: str, store: str | None = None) -> subprocess.Popen[str]:
        """A command that goes on; what it says goes to a file beside the store."""
        log = self.home / f"{self.route}-{len(self.processes)}.log"
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen([ROLLOUT, *args], cwd=self.home, stdout=out, stderr=out, text=True, env=self.environ(store))
        self.processes.append(process)
        return process

    def run(self, *args: str, store: str | None = None) -> subprocess.Popen[str]:
        """`rollout run` of the plan, towards its end."""
        return self.start("run", str(self.plan), "--until", "completed", "--patience", "0s", *args, store=store)

    def said(self, process: subprocess.Popen[str]) -> str:
        """What a started command said."""
        return (self.home / f"{self.route}-{self.processes.index(process)}.log").read_text("utf-8")

    def over(self, process: subprocess.Popen[str], seconds: float = PATIENCE) -> int:
        """The exit code of a command that ends by itself."""
        return process.wait(seconds)

    def close(self) -> None:
        """No process of ours outlives its test."""
        for process in self.processes:
            process.kill()
            process.wait()

    # --- the store, read from outside

    def ask(self, query: str, *values: Any, store: str | None = None) -> list[tuple[Any, ...]]:
        """Rows of the store's file; none while it does not exist."""
        file = self.home / (store or self.store)
        if not file.exists() or not file.stat().st_size:
            return []
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as raw:
            if not raw.execute("select 1 from sqlite_master where name = 'journal'").fetchone():
                return []
            return raw.execute(query, values).fetchall()

    def ids(self, store: str | None = None) -> list[str]:
        """Rollouts of this route in the store, oldest first."""
        return [str(row[0]) for row in self.ask("select id from rollouts where route = ? order by created", self.route, store=store)]

    @property
    def id(self) -> str:
        return self.ids()[-1]

    def journal(self, store: str | None = None) -> list[Row]:
        """The journal of this route's rollouts."""
        query = (
            "select kind, text, data from journal where rollout_id in (select id from rollouts where route = ?) order by rollout_id, seq"
        )
        return [{"kind": k, "text": t, "data": json.loads(d)} for k, t, d in self.ask(query, self.route, store=store)]

    def state(self) -> Row:
        """The state of the last rollout as it is stored; empty before there is one."""
        found = self.ask("select state from rollouts where route = ? order by created desc limit 1", self.route)
        return dict(json.loads(found[0][0])) if found else {}

    def until(self, true: Callable[[Row], Any], what: str, *, alive: subprocess.Popen[str] | None = None, seconds: float = PATIENCE) -> Row:
        """Wait for a stored state."""

        def look() -> Row | None:
            seen = self.state()
            return seen if seen and true(seen) else None

        return dict(wait(look, what, seconds, alive=alive))

    def fact(self, key: str, *, alive: subprocess.Popen[str] | None = None) -> Row:
        """Wait until a fact of the rollout is known."""
        return self.until(lambda s: s["facts"].get(key) is not None, f"fact {key}", alive=alive)

    # --- the server

    def writes(self) -> list[Row]:
        """Management writes since the case began; only the sandbox keeps them."""
        if self.site.kind != "sandbox":
            return []
        told = self.site.anonymous.get("/_log").json()["writes"]
        return list(told)[self.since :]

    def own_writes(self) -> list[Row]:
        """Those that name this route, its stable deployment, or a rollout of this route."""
        tags = [f"r{i[:8]}" for store in self.home.glob("*.db") for i in self.ids(store.name)]
        named = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in (self.stable, self.route, *tags)))
        path = f"/v2/model-routes/{self.row['id']}"
        return [w for w in self.writes() if w["path"] == path or named.search(json.dumps(w["body"]))]

    def fault(self, **fault: Any) -> None:
        """Arm a fault of the sandbox."""
        assert self.site.anonymous.post("/_fault", json=fault).status_code == 200

    def release(self) -> None:
        """Let what hangs go on."""
        assert self.site.anonymous.post("/_fault/release").status_code == 200

    def names(self) -> dict[int | None, str]:
        return {row["id"]: row["name"] for row in self.site.get("/v2/models?perPage=1000")["items"]}

    def targets(self) -> list[tuple[str, int]]:
        """(deployment, weight) of each target of the route, in order of the name."""
        names = self.names()
        return sorted((names.get(row.get("model_id"), "?"), row["weight"]) for row in self.site.target_list(self.row["id"]))

    def made(self) -> list[str]:
        """Names of deployments and private routes that this route's rollouts made and that exist now."""
        tags = tuple(f"r{i[:8]}" for store in self.home.glob("*.db") for i in self.ids(store.name))
        routes = [row["name"] for row in self.site.get("/v2/model-routes?perPage=1000")["items"]]
        return sorted(name for name in [*self.names().values(), *routes] if any(tag in name for tag in tags))

    def shape(self) -> Row:
        """Everything a rollback restores."""
        route = {k: v for k, v in self.site.route(self.row["id"]).items() if k not in VOLATILE}
        rows = [row for row in self.site.get("/v2/models?perPage=1000")["items"] if row["id"] == self.deployment["id"]]
        stable = [{k: v for k, v in row.items() if k not in VOLATILE} for row in rows]
        return {"targets": self.targets(), "route": route, "stable": stable, "made": self.made()}

    def crash_stable(self, restart: float | None) -> None:
        """Kill stable's engine; it comes back after `restart` seconds (None: when `revive` says so)."""
        found = self.site.engine(self.deployment)
        self.site.node("spark-01", restart_delay=restart, crash=found["id"])

    def revive(self) -> None:
        """The server makes a new instance of stable, as after a person deleted the dead one."""
        self.site.node("spark-01", restart_delay=1.0)
        for row in self.site.instances(self.deployment["id"]):
            self.site.admin.delete(f"/v2/model-instances/{row['id']}")
        self.site.ready(self.deployment["id"])

    def remove(self) -> None:
        """The route, its deployment, and what a rollout that was not ended left on the server."""
        names = {*self.made(), self.route, self.stable}
        for kind in ("model-routes", "models"):
            for row in self.site.get(f"/v2/{kind}?perPage=1000")["items"]:
                if row["name"] in names:
                    self.site.admin.delete(f"/v2/{kind}/{row['id']}")


@contextmanager
def case(site: Site, home: Path, changes: dict[str, str] | None = None, **more: Any) -> Iterator[Case]:
    """A case whose processes and remains are gone afterwards."""
    made = Case(site, home, changes or {}, **more)
    try:
        yield made
    finally:
        made.close()
        made.remove()


def kill(process: subprocess.Popen[str]) -> bool:
    """SIGKILL; whether it was alive to be killed."""
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL
