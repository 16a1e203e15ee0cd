"""The rollback window with the real command, on the sandbox and on the real server: parked, back from it, and no way back."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from tests.contract.site import Site
from tests.e2e.support import OLD, REAL_FIRST, SANDBOX_FIRST, Case, case, opened

ROLLED_BACK, HOLDING, OPEN, IMPOSSIBLE = 10, 11, 22, 23
REASON = ("--reason", "users complain")
WINDOW = {"{duration: 2s}": "{duration: 1h, keep: parked, warm: 1s, approval: none}"}
LOAD = 3.0
"""seconds the old image takes to load"""


def _parked(made: Case) -> subprocess.Popen[str]:
    """Promoted and parked, with somebody who ticks the window."""
    owner = made.start("run", str(made.plan), "--until", "promoted")
    made.fact("0.seen", alive=owner)
    assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
    assert made.over(owner) == 0, made.said(owner)
    ticking = made.run()
    made.until(lambda s: s["facts"].get("restorable", {}).get(made.stable, {}).get("word") == "by_loading", "parked", alive=ticking)
    assert made.site.instances(made.deployment["id"]) == []
    return ticking


def _slow_to_load(site: Site, seconds: float) -> None:
    site.node("spark-01", knobs={"start_delay": seconds}, image=OLD)


@pytest.mark.parametrize("kind", REAL_FIRST)
def test_rollback_from_parked_restores_service_and_shows_the_time(kind: str, tmp_path: Path) -> None:
    """The owner ends with 10, the command with 0; stable is loaded, then serves; no user is refused meanwhile."""
    with opened(kind, tmp_path) as site:
        _slow_to_load(site, LOAD)
        with case(site, tmp_path, WINDOW) as made:
            ticking = _parked(made)
            screen = made.command("status", made.id).stdout
            assert f"{made.stable}: restorable by loading, about" in " ".join(screen.split())
            seen = json.loads(made.command("status", made.id, "--json").stdout)["window"]["sides"][0]
            assert LOAD <= seen["seconds"] < LOAD + 20
            with site.load(made.route, 1) as users:
                done = made.command("rollback", made.id, *REASON)
            assert done.returncode == 0, done.stderr
            assert made.over(ticking) == ROLLED_BACK, made.said(ticking)
            assert [who for who in users if who.isdigit()] == []
            assert users[-1] == made.stable
            assert made.shape() == made.before
            told = made.said(ticking)
            assert f"load {made.stable} again: replicas 0 -> 1, about" in told
            assert f"{made.stable} is loaded: it took" in told
            assert made.command("journal", made.id, "--verify").returncode == 0
        _slow_to_load(site, 0.0)


@pytest.mark.parametrize("kind", REAL_FIRST)
def test_files_deleted_in_the_window_are_announced_and_the_rollback_is_refused(kind: str, tmp_path: Path) -> None:
    """`run` ends with 11 and says what is gone; `rollback` with 23 before it touches anything, with a plan that is valid."""
    with opened(kind, tmp_path) as site, case(site, tmp_path, WINDOW) as made:
        ticking = _parked(made)
        path = made.deployment["local_path"]
        (row,) = [
            row
            for row in site.get("/v2/model-files?perPage=1000")["items"]
            if row["local_path"] == path and row["worker_id"] == site.worker("spark-01")["id"]
        ]
        assert site.admin.delete(f"/v2/model-files/{row['id']}?cleanup=true").status_code == 200
        assert made.over(ticking) == HOLDING, made.said(ticking)
        assert f"the files of {made.stable} are gone: {path} on spark-01" in made.said(ticking)
        written = len(made.own_writes())
        refused = made.command("rollback", made.id, *REASON)
        assert refused.returncode == IMPOSSIBLE
        assert f"{path} on spark-01" in refused.stderr
        assert len(made.own_writes()) == written
        back = made.home / "back.yaml"
        back.write_text(refused.stderr[refused.stderr.index("{") :], "utf-8")
        assert made.command("validate", str(back)).returncode == 0
        assert json.loads(back.read_text("utf-8"))["change"]["to"] == {"image_name": OLD}
        assert made.state()["undo"] is None


@pytest.mark.parametrize("kind", SANDBOX_FIRST)
def test_a_window_is_extended_and_then_cleaned_up(kind: str, tmp_path: Path) -> None:
    """It would have ended 4 s earlier; what goes is on the screen before it goes."""
    with opened(kind, tmp_path) as site, case(site, tmp_path, {"{duration: 2s}": "{duration: 20s}"}) as made:
        owner = made.start("run", str(made.plan), "--until", "promoted")
        made.fact("0.seen", alive=owner)
        assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
        assert made.over(owner) == 0, made.said(owner)
        assert made.command("tick", made.id).returncode == 0
        assert made.command("extend-window", made.id, "--by", "4s", "--reason", "still unsure").returncode == 0
        assert made.command("extend-window", made.id, "--until", "2020-01-01", "--reason", "no").returncode == OPEN
        before = made.state()["facts"]["window"]["at"]
        done = made.command("run", made.id, "--until", "completed")
        assert done.returncode == 0, done.stderr
        began = made.state()["facts"]["cleanup.began"]["at"]
        assert (datetime.fromisoformat(began) - datetime.fromisoformat(before)).total_seconds() >= 24
        assert f"what goes: deployment {made.stable} (1 replicas)" in done.stderr
        assert made.command("extend-window", made.id, "--by", "8s", "--reason", "too late").returncode == IMPOSSIBLE
