"""The lab's own tools hold what the lab promises: pins, processes, database, simulated worker. No real server here."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web

from lab import LabError, environment, run
from lab.down import belongs
from lab.node_server import NodeClient, open_session
from lab.ports import FIRST, LAST, free_ports
from lab.postgres import Postgres, reachable_copy
from lab.processes import clean_environ, spawn, stop_pid, wait_until
from lab.stack import scratch
from lab.worker import SimWorker
from rollout.testing.node import SimNode
from rollout.testing.node_http import NodeServer

ROOT = Path(__file__).resolve().parents[2]


def until(what: Any, seconds: float = 15.0) -> Any:
    """The first true answer of `what()`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)
    return answer


# --- pins and the environment


def test_pins_name_the_server_in_the_lock_and_nothing_heavy() -> None:
    pins = environment.read_pins()
    locked = pins.lock.read_text("utf-8")
    assert f"gpustack=={pins.gpustack}\n" in locked
    assert not re.search(r"^(torch|vllm|nvidia-c)", locked, re.MULTILINE)
    assert "://" not in locked


def test_every_version_has_a_lock_of_its_own_and_the_default_comes_first() -> None:
    known = environment.versions()
    assert known[0] == environment.read_pins().gpustack
    for version in known:
        pins = environment.read_pins(version=version)
        assert f"gpustack=={version}\n" in pins.lock.read_text("utf-8")
        assert "sqlalchemy==2.0" in pins.lock.read_text("utf-8").lower()
    assert len({environment.read_pins(version=v).digest for v in known}) == len(known) >= 2
    with pytest.raises(LabError, match=r"no GPUStack 1\.0\.0"):
        environment.read_pins(version="1.0.0")


def test_a_changed_pin_names_another_environment(tmp_path: Path) -> None:
    pins = environment.read_pins()
    other = tmp_path / "other.lock"
    other.write_text(pins.lock.read_text("utf-8").replace("aiohttp", "aiohttq"), "utf-8")
    assert len({pins.digest, replace(pins, lock=other).digest, replace(pins, gpustack="2.3.1").digest}) == 3


def fake_build(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> list[str]:
    """Stands in for venv, pip and compileall; the list holds what was asked."""
    asked: list[str] = []

    def pretend(command: list[str], _say: Any, check: bool = True) -> None:
        asked.append(command[2])
        if command[1:3] == ["-m", "venv"]:
            Path(command[3], "bin").mkdir(parents=True)
        if fails and command[2] == "pip":
            raise LabError("the lab's environment could not be built", "no index", "try again")

    monkeypatch.setattr(environment, "_run", pretend)
    return asked


def test_two_builders_build_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = fake_build(monkeypatch)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(environment.ensure(lambda _: None, root=tmp_path).path)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert asked == ["venv", "pip", "compileall"]
    assert len(set(found)) == 1
    assert (found[0] / environment.MARKER).exists()


def test_a_failed_build_leaves_nothing_and_the_next_one_starts_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_build(monkeypatch, fails=True)
    with pytest.raises(LabError, match="could not be built"):
        environment.ensure(lambda _: None, root=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith(".")] == []
    fake_build(monkeypatch)
    built = environment.ensure(lambda _: None, root=tmp_path).path
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [built]


def test_a_folder_without_the_marker_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = fake_build(monkeypatch)
    pins = environment.read_pins()
    (tmp_path / f"gpustack-{pins.gpustack}-{pins.digest}").mkdir()
    environment.ensure(lambda _: None, root=tmp_path)
    assert "pip" in asked


# --- ports and processes


def test_free_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(FIRST <= port <= LAST for port in ports)


def test_children_see_no_proxy_and_no_foreign_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "no_proxy", "GPUSTACK_TOKEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")
    assert {"HTTPS_PROXY", "no_proxy", "GPUSTACK_TOKEN", "PYTHONPATH"}.isdisjoint(clean_environ())
    assert clean_environ({"GPUSTACK_A": "1"})["GPUSTACK_A"] == "1"


def python(code: str, tmp_path: Path, name: str = "child") -> Any:
    """A child that runs `code`."""
    return spawn(name, [sys.executable, "-c", textwrap.dedent(code)], log=tmp_path / f"{name}.log", env=clean_environ(), cwd=tmp_path)


def test_stop_kills_what_ignores_the_request(tmp_path: Path) -> None:
    child = python("import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)", tmp_path)
    wait_until(lambda: "up" in child.tail(), child, 10, "no start")
    assert child.stop(timeout=0.3) < 5
    assert child.process.returncode == -signal.SIGKILL


def test_a_child_that_ends_early_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    child = python("raise SystemExit('port is taken')", tmp_path)
    with pytest.raises(LabError, match="port is taken"):
        wait_until(lambda: False, child, 10, "it did not start")


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from lab.processes import clean_environ, spawn
        child = spawn("c", ["sleep", "60"], log=Path({str(tmp_path)!r}, "c.log"), env=clean_environ(), cwd=Path("/"))
        print(child.pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait(10)
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text("utf-8"))


def test_stop_pid_ends_a_process_of_somebody_else_and_knows_one_that_is_gone(tmp_path: Path) -> None:
    child = python("import time; time.sleep(60)", tmp_path)
    assert stop_pid(child.pid, timeout=5)
    child.process.wait(5)
    assert stop_pid(child.pid)


def test_down_does_not_touch_a_pid_that_now_is_somebody_else() -> None:
    assert not belongs(os.getpid(), "gpustack")
    assert not belongs(os.getpid(), "spark-01")
    assert not belongs(2**22 - 1, "lab")


def test_run_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--"]) == 2
    assert "usage" in capsys.readouterr().err


# --- PostgreSQL


def test_postgresql_serves_on_loopback_and_keeps_its_data_over_a_restart() -> None:
    database = Postgres(scratch())
    database.start()
    try:
        with psycopg.connect(database.url) as connection:
            connection.execute("create table kept (n int)")
            assert connection.execute("show fsync").fetchone() == ("off",)
            assert connection.execute("show listen_addresses").fetchone() == ("127.0.0.1",)
        database.stop()
        database.start()
        with psycopg.connect(database.url) as connection:
            assert connection.execute("select count(*) from kept").fetchone() == (0,)
    finally:
        database.stop()
        shutil.rmtree(database.folder)


def test_binaries_in_a_closed_folder_are_copied_to_where_another_user_may_run_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "closed" / "pg"
    binary = package / "pginstall18" / "bin" / "postgres"
    binary.parent.mkdir(parents=True)
    binary.touch(mode=0o700)
    package.with_name("pg.libs").mkdir()
    (tmp_path / "closed").chmod(0o700)
    monkeypatch.setattr("lab.postgres.os.geteuid", lambda: 0)
    copy = reachable_copy(binary.parent.parent, tmp_path / "scratch")
    assert (copy / "bin" / "postgres").stat().st_mode & 0o777 == 0o755
    assert copy.parent.with_name("pg.libs").is_dir()


# --- the simulated worker against a server of three tables


class FakeServer:
    """As much of the server as a worker sees; `events` is what its instance watch sends."""

    def __init__(self, instance: dict[str, Any], model: dict[str, Any]) -> None:
        self.instance, self.model = instance, model
        self.states: list[str] = []
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v2/workers", self.register)
        app.router.add_post("/v2/worker-heartbeat", self.nothing)
        app.router.add_post("/v2/worker-status", self.nothing)
        app.router.add_get("/v2/model-files", self.watch_files)
        app.router.add_get("/v2/model-instances", self.instances)
        app.router.add_get("/v2/model-instances/7", self.get)
        app.router.add_put("/v2/model-instances/7", self.put)
        app.router.add_get("/v2/models/3", self.get)
        return app

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self.model if "models" in request.path else self.instance)

    async def register(self, _request: web.Request) -> web.Response:
        return web.json_response({"id": 1, "worker_uuid": "u", "token": "t"})

    async def nothing(self, _request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def watch_files(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    async def instances(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"items": [self.instance]})
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            event = await self.events.get()
            text = json.dumps(event) + "\n\n"
            await response.write(text[:9].encode())  # in two pieces: a line is a line, wherever the packets end
            await response.write(text[9:].encode())

    async def put(self, request: web.Request) -> web.Response:
        self.instance = await request.json()
        self.states.append(self.instance["state"])
        self.say(2)
        return web.json_response(self.instance)

    def say(self, kind: int, **changes: Any) -> None:
        self.instance = {**self.instance, **changes}
        self.events.put_nowait({"type": kind, "id": 7, "data": dict(self.instance)})


async def eventually(what: Any) -> None:
    async with asyncio.timeout(10):
        while not what():  # noqa: ASYNC110 - what is waited for lives in another task's data
            await asyncio.sleep(0.01)


async def with_worker(server: FakeServer, story: Any) -> None:
    """Run `story(node)` beside a registered worker."""
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    node = SimNode("spark-01")
    face = NodeServer(node)
    await face.start()
    try:
        async with await open_session() as http:
            worker = asyncio.create_task(SimWorker(node, NodeClient(http, f"http://127.0.0.1:{runner.addresses[0][1]}", "r")).run())
            await story(node)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
    finally:
        await face.stop()
        await runner.cleanup()


def instance(**changes: Any) -> dict[str, Any]:
    row = {
        "id": 7,
        "name": "m-abc",
        "model_id": 3,
        "model_name": "m",
        "worker_id": 1,
        "state": "scheduled",
        "port": None,
        "restart_count": 0,
    }
    return {**row, **changes}


def test_worker_takes_an_instance_from_scheduled_to_running_and_stops_it_when_deleted() -> None:
    server = FakeServer(instance(), {"id": 3, "name": "m", "backend": "vLLM", "env": {"SIM_TPOT": "0.5"}})

    async def story(node: SimNode) -> None:
        server.say(1)
        await eventually(lambda: server.states == ["initializing"])
        assert server.instance["port"] == node.instances[7].port
        server.say(2, state="starting")
        server.say(2, state="starting")  # the server touches such a row more than once
        await eventually(lambda: server.states == ["initializing", "running"])
        assert node.instances[7].engine.knobs.tpot == 0.5
        server.say(3)
        await eventually(lambda: 7 not in node.instances)

    asyncio.run(with_worker(server, story))


def test_worker_adopts_what_ran_before_on_the_same_port() -> None:
    port = free_ports(1)[0]
    server = FakeServer(instance(state="running", port=port), {"id": 3, "name": "m", "backend": "vLLM"})

    async def story(node: SimNode) -> None:
        server.say(1)
        await eventually(lambda: 7 in node.instances and node.instances[7].port == port)  # known first, listening a moment later
        assert server.states == []

    asyncio.run(with_worker(server, story))


def test_worker_reports_a_crash_and_counts_the_restart() -> None:
    server = FakeServer(instance(), {"id": 3, "name": "m", "backend": "vLLM", "restart_on_error": True})

    async def story(node: SimNode) -> None:
        node.knobs.restart_delay = 0.01
        server.say(1)
        await eventually(lambda: server.states == ["initializing"])
        await node.crash_instance(7)
        await eventually(lambda: server.states[1:] == ["error", "scheduled", "initializing"])
        assert server.instance["restart_count"] == 1

    asyncio.run(with_worker(server, story))


def test_worker_refuses_a_knob_that_nobody_knows() -> None:
    server = FakeServer(instance(), {"id": 3, "name": "m", "env": {"SIM_TPOTT": "1"}})

    async def story(node: SimNode) -> None:
        server.say(1)
        await eventually(lambda: server.states == ["error"])
        assert "tpott" in server.instance["state_message"]
        assert node.instances == {}

    asyncio.run(with_worker(server, story))
