"""A whole rollout with secrets that can be recognised: afterwards no sink holds one of them.

Sinks: the store's file and its log, the journal, everything that commands print, the log of unforeseen errors, what the HTTP and
database libraries log at their most talkative, the process list, and what is left on the server.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.site import Site
from tests.e2e.inside import Inside, keys
from tests.e2e.support import ROLLOUT, SANDBOX_FIRST, Case, case, opened

ENV = {
    "HF_TOKEN": "hf_canary7tokentokentoken",
    "LICENCE": "canary7licence7never",
    "DB": "postgres://ana:canary7database@db.lan/x",
    "SIM_SLOTS": "16",
}
TALKATIVE = ("httpx", "httpcore", "h11", "asyncio", "sqlalchemy.engine", "sqlalchemy.pool", "rollout", "tenacity", "alembic")


@pytest.fixture(scope="module", params=SANDBOX_FIRST)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with opened(request.param, tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def here(site: Site, tmp_path: Path) -> Iterator[Case]:
    with case(site, tmp_path) as made:
        made.site.admin.put(f"/v2/models/{made.deployment['id']}", json={**_put(made), "env": ENV}).raise_for_status()
        made.site.ready(made.deployment["id"])
        made.before = made.shape()
        yield made


def _put(made: Case) -> dict[str, object]:
    row = next(r for r in made.site.get("/v2/models?perPage=1000")["items"] if r["id"] == made.deployment["id"])
    return {key: row[key] for key in ("name", "source", "local_path", "backend", "replicas") if key in row}


def secrets(site: Site) -> list[str]:
    """What must be found nowhere: the keys by the part that their server never shows, and the values of the environment."""
    shown = site.described
    return [*(str(shown[name]).rpartition("_")[2] for name in ("management_key", "inference_key")), "canary7"]


def clean(text: str, words: list[str], sink: str) -> None:
    assert not [word for word in words if word in text], sink


def test_no_sink_holds_a_secret(here: Case, caplog: pytest.LogCaptureFixture) -> None:
    words = secrets(here.site)
    for name in TALKATIVE:
        caplog.set_level(logging.DEBUG, logger=name)
    inside = Inside(here)
    with keys(here.site):
        started = inside.start()
        windows = 0

        def point(name: str) -> None:
            nonlocal windows
            windows += "outcome done probe_pairs" in name
            if windows == 2 and "probe_pairs" in name:
                inside.say(started, "promote")

        state = inside.run(started, at=point)
    assert state.exit_code == 0, state
    assert "httpcore" in {record.name.partition(".")[0] for record in caplog.records}, "the library was heard"
    clean(caplog.text, words, "log lines")
    for file in here.home.glob("*.db*"):
        clean(file.read_bytes().decode("latin-1"), words, file.name)
    with closing(sqlite3.connect(here.home / here.store)) as raw:
        clean("\n".join(raw.iterdump()), words, "dump of the store")
    clean("\n".join(f"{event!r} {after!r}" for event, after in inside.events), words, "events")
    for line in (
        ["status", started],
        ["status", started, "--json"],
        ["list"],
        ["list", "--json"],
        ["journal", started],
        ["journal", started, "--json"],
        ["journal", started, "--verify"],
        ["validate", str(here.plan), "--json"],
        ["plan", str(here.plan)],
        ["plan", str(here.plan), "--json"],
        ["run", "no-such-plan.yaml"],
    ):
        done = here.command(*line)
        clean(done.stdout + done.stderr, words, " ".join(line))
    clean(json.dumps(here.site.get("/v2/model-routes?perPage=1000")), words, "routes on the server")
    assert "canary7" in json.dumps(here.site.get("/v2/models?perPage=1000")), "the canary took the environment over"


def test_neither_while_it_runs_nor_in_the_marker_nor_in_the_process_list(here: Case) -> None:
    words = secrets(here.site)
    process = here.start("run", str(here.plan), "--until", "completed", "--patience", "0s")
    here.fact("marker", alive=process)
    here.until(lambda s: s["step"] in ("canary", "shift", "cleanup"), "the canary", alive=process)
    clean(Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(), words, "process list")
    clean(json.dumps(here.site.route(here.row["id"])), words, "marker")
    clean(here.command("status", here.id, "--json").stdout, words, "status")
    for file in here.home.glob("*.db*"):
        clean(file.read_bytes().decode("latin-1"), words, file.name)
    done = here.command("promote", here.id, "--reason", "enough was seen")
    clean(done.stdout + done.stderr, words, "promote")
    assert here.over(process) == 0
    clean(here.said(process), words, "progress")


@pytest.mark.parametrize("debug", ["", "1"])
def test_neither_when_something_breaks(here: Case, debug: str) -> None:
    """A server that is away, one that refuses the key, and a fault of our own, with and without the traceback."""
    words = secrets(here.site)
    text = here.plan.read_text("utf-8")
    away = here.home / "away.yaml"
    away.write_text(text.replace(str(here.site.described["server_url"]), "http://127.0.0.1:9"))
    swapped = here.home / "swapped.yaml"
    swapped.write_text(text.replace("MKEY", "KEY").replace("IKEY", "MKEY").replace("env: KEY", "env: IKEY"))
    for line in (["plan", str(away)], ["plan", str(swapped)]):
        env = {**here.environ(), "ROLLOUT_DEBUG": debug}
        done = subprocess.run([ROLLOUT, *line], cwd=here.home, capture_output=True, text=True, env=env, timeout=90, check=False)
        assert done.returncode in (3, 20), done.stderr
        clean(done.stdout + done.stderr, words, " ".join(line))
    log = here.home / ".local" / "state" / "rollout" / "rollout.log"
    clean(log.read_text("utf-8") if log.exists() else "", words, "log of unforeseen errors")
