"""The command as a process: cheap help, clean pipes, three-line errors, Ctrl-C detaches, committed reference pages."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.cli import docs
from rollout.domain.state import Event, Phase, RolloutState, StepName
from rollout.store import Store

ROLLOUT = str(Path(sys.executable).with_name("rollout"))
HEAVY = ("httpx", "sqlmodel", "sqlalchemy", "pydantic", "rich", "yaml", "asyncio", "numpy", "rollout.engine", "rollout.domain")
NOW = datetime(2026, 3, 1, 2, 20, tzinfo=UTC)
PLAN = """
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {name: chat-2}
gpustack: {server: "http://127.0.0.1:9", management_key: {env: MKEY}, inference_key: {env: IKEY}}
route: {name: chat}
change: {unit: backend_image, to: {image_name: "sim/vllm:2"}}
stable: [{deployment: chat-a}]
stage: {worker: staging}
"""


def rollout(home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROLLOUT, *args], capture_output=True, text=True, env=environ(home, **env), timeout=60, check=False)


def environ(home: Path, **env: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k not in ("CI", "NO_COLOR", "XDG_STATE_HOME")}
    return {**kept, "HOME": str(home), "COLUMNS": "100", **env}


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A store with one running rollout and three journal entries; its path."""
    where = str(tmp_path / "r.db")
    state = RolloutState(
        id="3f2a91c07d6e",
        name="chat-2",
        server="http://gpustack.lan",
        route="chat",
        plan_digest="d",
        phase=Phase.RUNNING,
        step=StepName.ATTACH,
        created=NOW,
        entered=NOW,
    )
    with Store.open(where, now=lambda: NOW) as store:
        store.create(state, {}, "", Event(kind="created", at=NOW, actor="ana", text="plan chat-2"))
    return where


def test_root_help_imports_nothing_of_weight(tmp_path: Path) -> None:
    code = "import sys; from rollout.cli.app import main; main(['--help']); print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ(tmp_path), check=True)
    loaded = set(done.stderr.split())
    assert [name for name in HEAVY if name in loaded] == []


def test_the_reference_pages_are_up_to_date() -> None:
    root = Path(__file__).parents[2]
    assert (root / docs.CLI).read_text("utf-8") == docs.cli_page(), "stale: run `python -m rollout.cli.docs`"
    assert (root / docs.CODES).read_text("utf-8") == docs.codes_page(), "stale: run `python -m rollout.cli.docs`"


def test_a_status_is_read_from_the_store_and_its_json_is_one_document(tmp_path: Path, stored: str) -> None:
    done = rollout(tmp_path, "status", "3f2a", "--json", "--store", stored)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"]["name"] == "attach"
    assert done.stderr == ""
    assert rollout(tmp_path, "list", "--json", ROLLOUT_STORE=stored).stdout.count("3f2a91c07d6e") >= 1


def test_a_pipe_gets_no_escapes_and_neither_does_no_color(tmp_path: Path, stored: str) -> None:
    for env in ({}, {"NO_COLOR": "1", "FORCE_COLOR": ""}):
        done = rollout(tmp_path, "status", "3f2a", "--store", stored, **env)
        assert done.stdout.startswith("RUNNING")
        assert "\x1b" not in done.stdout + done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, stored: str) -> None:
    for verb in ("schema", f"status 3f2a --json --store {stored}"):
        line = f"{ROLLOUT} {verb} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environ(tmp_path), timeout=60, check=True)
        assert (done.stdout, done.stderr) == ("141\n", "")


def test_an_output_that_cannot_be_written_is_said(tmp_path: Path, stored: str) -> None:
    line = f"{ROLLOUT} status 3f2a --json --store {stored} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environ(tmp_path), timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the output could not be written\n  why:  No space left on device\n")


def test_the_journal_is_verified_and_a_changed_row_is_found(tmp_path: Path, stored: str) -> None:
    assert rollout(tmp_path, "journal", "3f2a", "--verify", "--store", stored).returncode == 0
    with sqlite3.connect(stored) as raw:
        for (name,) in raw.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            raw.execute(f"drop trigger {name}")
        raw.execute("update journal set text = 'nothing happened' where seq = 1")
    raw.close()
    done = rollout(tmp_path, "journal", "3f2a", "--verify", "--store", stored)
    assert done.returncode == 13
    assert "row 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_word_reaches_the_store_with_actor_and_reason(tmp_path: Path, stored: str) -> None:
    done = rollout(tmp_path, "pause", "3f2a", "--reason", "incident 7", "--store", stored, "--actor", "ana")
    assert done.returncode == 0, done.stderr
    with Store.open(stored, now=lambda: NOW) as store:
        (said,) = store.pending("3f2a91c07d6e")
    assert (said.verb, said.actor, said.reason) == ("pause", "ana", "incident 7")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (("status", "3f2a", "--store", "{absent}"), 2),
        (("status", "ffff", "--store", "{stored}"), 2),
        (("validate", "{absent}.yaml"), 3),
        (("rollback", "--route", "chat", "--server", "http://127.0.0.1:9", "--reason", "r", "--store", "{stored}"), 3),
        (("nonsense",), 2),
    ],
)
def test_every_error_has_three_lines_and_no_traceback(tmp_path: Path, stored: str, line: tuple[str, ...], code: int) -> None:
    done = rollout(tmp_path, *(part.format(stored=stored, absent=tmp_path / "absent") for part in line))
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert [word for word in ("error: ", "  why:  ", "  next: ") if word not in done.stderr] == []


def test_a_key_that_cannot_be_read_begins_nothing_that_stands_in_the_way_of_the_corrected_plan(tmp_path: Path) -> None:
    """The name of a variable was mistyped: the plan is refused, and the store knows of nothing that holds the route."""
    plan, where = tmp_path / "plan.yaml", str(tmp_path / "r.db")
    plan.write_text(PLAN, "utf-8")
    for verb in (["run"], ["adopt", "--canary", "chat-new", "--reason", "r"]):
        done = rollout(tmp_path, *verb, str(plan), "--store", where, IKEY="x")
        assert done.returncode == 3
        assert "the environment variable MKEY is not set" in done.stderr
    listed = rollout(tmp_path, "list", "--json", "--store", where)
    assert json.loads(listed.stdout) == []


def test_a_reading_verb_makes_no_store(tmp_path: Path) -> None:
    absent = tmp_path / "absent.db"
    rollout(tmp_path, "list", "--store", str(absent))
    assert not absent.exists()


def test_an_unexpected_error_is_logged_and_told_in_three_lines(tmp_path: Path, stored: str) -> None:
    code = "import sys; from rollout.cli import app, status; status.status.__globals__['output'] = None; sys.exit(app.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "status", "3f2a", "--store", stored, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ(tmp_path), timeout=60, check=False)
    log = tmp_path / ".local" / "state" / "rollout" / "rollout.log"
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(log) in done.stderr
    assert "AttributeError" in log.read_text("utf-8")
    shown = subprocess.run(command, capture_output=True, text=True, env=environ(tmp_path, ROLLOUT_DEBUG="1"), timeout=60, check=False)
    assert "Traceback" in shown.stderr


@pytest.mark.parametrize("verb", [("wait", "--until", "promoted"), ("watch",)])
def test_ctrl_c_ends_with_130_and_touches_nothing(tmp_path: Path, stored: str, verb: tuple[str, ...]) -> None:
    name, *rest = verb
    process = subprocess.Popen(
        [ROLLOUT, name, "3f2a", *rest, "--store", stored], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ(tmp_path)
    )
    outlet = process.stderr if name == "wait" else process.stdout
    assert outlet is not None
    assert outlet.readline()  # it is at work
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in told
