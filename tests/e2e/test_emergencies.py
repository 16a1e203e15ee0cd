"""The verbs for emergencies as real commands: on the sandbox, and on the real server where there is one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.site import Site, unique
from tests.e2e.support import NEW, PATIENCE, REAL_FIRST, SANDBOX_FIRST, Case, case, kill, opened, wait

REFUSED, HALTED, FENCED, IMPOSSIBLE = 3, 13, 31, 23
REASON = ("--reason", "the night before the holidays")
KEYS = ("--management-key", "env:MKEY", "--inference-key", "env:IKEY")
LONG = {"{duration: 2s}": "{duration: 10m}"}
NO_STAGE = {"stage: {worker: staging,": 'stage: {skip: "staging has tests of its own",'}


@pytest.fixture(scope="module", params=SANDBOX_FIRST)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for the tests of this module; the real one in `make accept`."""
    with opened(request.param, tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture(scope="module", params=REAL_FIRST)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The same; on the sandbox in `make accept` only, since the engine's own tests say it too."""
    with opened(request.param, tmp_path_factory.mktemp("real")) as found:
        yield found


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One sandbox for what is only tried there."""
    with opened("sandbox", tmp_path_factory.mktemp("sandbox")) as found:
        yield found


@contextmanager
def fresh(site: Site, folder: Path, changes: dict[str, str] | None = None) -> Iterator[Case]:
    """A route of its own; staging has tests of its own. Deployments that were made by hand are gone afterwards."""
    with case(site, folder, {**NO_STAGE, **(changes or {})}) as made:
        yield made
        for row in site.get("/v2/models?perPage=1000")["items"]:
            if row["name"].startswith(f"hand-{made.route}"):
                site.admin.delete(f"/v2/models/{row['id']}")


def place(made: Case) -> list[str]:
    return ["--server", made.site.described["server_url"], *KEYS]


def by_hand(made: Case, weight: int, image: str = NEW) -> str:
    """A canary that a person made beside stable."""
    found = made.site.deploy(unique(f"hand-{made.route}"), worker="spark-02", image_name=image, local_path=made.deployment["local_path"])
    kept = [{"id": t["id"], "model_id": t["model_id"], "weight": t["weight"]} for t in made.site.target_list(made.row["id"])]
    body = {"name": made.route, "targets": [*kept, {"model_id": found["id"], "weight": weight}]}
    assert made.site.api.put(f"/v2/model-routes/{made.row['id']}", json=body).status_code == 200
    made.site.settled(made.row)
    return str(found["name"])


@contextmanager
def judged(site: Site, folder: Path, changes: dict[str, str] | None = None) -> Iterator[Case]:
    """A rollout in the canary step, whose owner was killed."""
    with fresh(site, folder, changes) as made:
        owner = made.run()
        made.fact("0.seen", alive=owner)
        assert kill(owner)
        yield made


def promoted(made: Case) -> None:
    """On to the window, where nobody ticks."""
    assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
    owner = made.start("run", made.id, "--until", "promoted")
    assert made.over(owner) == 0, made.said(owner)


# --- init


def test_init_writes_a_plan_that_lacks_one_value(site: Site, tmp_path: Path) -> None:
    with fresh(site, tmp_path) as made:
        line = ["init", made.route, *place(made), "--unit", "backend_image", "-o", "new.yaml"]
        done = made.command(*line)
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "new.yaml").read_text("utf-8")
        assert not any(site.described[key] in text for key in ("management_key", "inference_key"))
        lacks = made.command("validate", "new.yaml")
        assert lacks.returncode == REFUSED
        assert "1 finding" in lacks.stderr
        assert made.command(*line).returncode == 2, "it is not overwritten"
        (tmp_path / "new.yaml").write_text(text.replace("to: {}", 'to: {image_name: "sim/vllm:2"}'), "utf-8")
        assert made.command("validate", "new.yaml").returncode == 0
        planned = made.command("plan", "new.yaml")
        assert planned.returncode == 0, planned.stdout
        assert made.shape() == made.before
        assert made.own_writes() == []


# --- adopt


def test_adopt_goes_on_at_the_rung_and_a_rollback_leaves_the_hand_made_deployment(real: Site, tmp_path: Path) -> None:
    """40 beside 100 lies between the rungs 25 % and 50 %: lowered to 33 beside 100; users are served all the while."""
    with fresh(real, tmp_path) as made:
        hand = by_hand(made, 50)
        dry = made.command("adopt", str(made.plan), "--canary", hand, "--dry-run")
        assert dry.returncode == 0, dry.stdout
        assert "lowered to rung 1" in " ".join(dry.stdout.split())
        with real.load(made.route, 1) as users:
            owner = made.start("adopt", str(made.plan), "--canary", hand, *REASON)
            made.fact("0.seen", alive=owner)
            assert made.targets() == sorted([(hand, 33), (made.stable, 100)])
            done = made.command("rollback", made.id, *REASON)
            assert done.returncode == 0, done.stderr
        assert [who for who in users if who.isdigit()] == []
        assert made.shape() == made.before
        assert hand in made.names().values()


def test_adopt_killed_again_and_again_becomes_the_new_stable(sandbox: Site, tmp_path: Path) -> None:
    """A few lives, each killed after some more journal rows; the same command goes on, and nothing is made twice."""
    with fresh(sandbox, tmp_path) as made:
        hand = by_hand(made, 33)
        line = ["adopt", str(made.plan), "--canary", hand, *REASON, "--until", "completed", "--patience", "0s"]
        for rows in (2, 6, 9, 14, 20, 26):
            process = made.start(*line)
            wait(lambda rows=rows: len(made.journal()) >= rows, f"{rows} rows", alive=process)
            assert kill(process)
            assert len(made.made()) == len(set(made.made()))
        process = made.start(*line)
        made.fact("0.seen", alive=process)
        assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
        assert made.over(process) == 0, made.said(process)
        assert made.ids() == [made.id]
        assert made.targets() == [(hand, 100)]
        assert made.made() == []
        assert made.stable not in made.names().values()
        assert made.command("journal", made.id, "--verify").returncode == 0


def test_adopt_refuses_what_is_not_the_plan(sandbox: Site, tmp_path: Path) -> None:
    with fresh(sandbox, tmp_path) as made:
        hand = by_hand(made, 33, image="sim/vllm:3")
        since = len(made.own_writes())
        done = made.command("adopt", str(made.plan), "--canary", hand, *REASON)
        assert done.returncode == REFUSED
        assert "image_name: the plan means sim/vllm:2, found sim/vllm:3" in done.stderr
        assert len(made.own_writes()) == since


# --- takeover


def test_takeover_then_rollback_with_another_store(real: Site, tmp_path: Path) -> None:
    """0 and held; the former owner comes back and ends with 31; the rollback by id restores the snapshot."""
    with judged(real, tmp_path) as made:
        done = made.command("takeover", made.route, *place(made), *REASON, store="other.db")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("holding")
        taken = made.ids("other.db")[-1]
        assert made.over(made.run()) == FENCED
        assert made.command("rollback", taken, *REASON, store="other.db").returncode == 0
        assert made.shape() == made.before


def test_takeover_with_the_plan_goes_on_to_the_end(real: Site, tmp_path: Path) -> None:
    with judged(real, tmp_path) as made:
        canary = f"{made.stable}-r{made.id[:8]}"
        line = ["takeover", made.route, "--plan", str(made.plan), *REASON, "--until", "completed", "--patience", "0s"]
        lives = [made.start(*line, store="other.db")]
        wait(lambda: len(made.journal("other.db")) >= 5, "it has begun", alive=lives[0])
        assert kill(lives[0])
        lives.append(made.start(*line, store="other.db"))
        wait(lambda: any(r["text"].startswith("window ") for r in made.journal("other.db")), "it judges", alive=lives[1])
        taken = made.ids("other.db")
        assert len(taken) == 1
        assert made.command("promote", taken[0], "--reason", "the judge has tests of its own", store="other.db").returncode == 0
        assert made.over(lives[1]) == 0, made.said(lives[1])
        assert made.targets() == [(canary, 100)]
        assert made.made() == [canary]


# --- stable-only


def test_stable_only_beside_a_live_owner(real: Site, tmp_path: Path) -> None:
    """No plan and an empty store; no user is refused, the owner ends with 31, and what is left over is named."""
    with fresh(real, tmp_path) as made:
        owner = made.run()
        made.fact("0.seen", alive=owner)
        canary = f"{made.stable}-r{made.id[:8]}"
        with made.site.load(made.route, 1) as users:
            done = made.command("stable-only", made.route, "--stable", made.stable, *place(made), *REASON, store="other.db")
        assert done.returncode == 0, done.stderr
        assert made.over(owner) == FENCED, made.said(owner)
        assert [who for who in users if who.isdigit()] == []
        assert made.targets() == [(made.stable, 100)]
        assert canary in done.stdout.splitlines()[0]
        assert "to put it back" in done.stdout
        assert {k: v for k, v in made.shape().items() if k != "made"} == {k: v for k, v in made.before.items() if k != "made"}


def test_stable_only_brings_a_stable_back_that_had_left(site: Site, tmp_path: Path) -> None:
    """At 100 %: it is asked, joins, is active, and only then the other one leaves. The printed call puts it back."""
    with judged(site, tmp_path, LONG) as made:
        promoted(made)
        there = made.targets()
        with made.site.load(made.route, 1) as users:
            done = made.command("stable-only", made.route, "--stable", made.stable, *place(made), *REASON)
        assert done.returncode == 0, done.stderr
        assert [who for who in users if who.isdigit()] == []
        assert made.targets() == [(made.stable, 100)]
        put_back = next(row for row in done.stdout.splitlines() if row.strip().startswith("curl"))
        assert bash(made, put_back).returncode == 0
        made.site.settled(made.row)
        assert made.targets() == there


def test_stable_only_without_a_stable_that_serves_changes_nothing(real: Site, tmp_path: Path) -> None:
    with judged(real, tmp_path) as made:
        made.crash_stable(None)
        made.site.until(lambda: all(t["state"] != "active" for t in made.site.target_list(made.row["id"]) if t["weight"] == 100), "lost")
        there, since = made.targets(), len(made.own_writes())
        for store in ("other.db", made.store):
            done = made.command("stable-only", made.route, "--stable", made.stable, *place(made), *REASON, store=store)
            assert done.returncode == HALTED, done.stderr
        assert (made.targets(), len(made.own_writes())) == (there, since)
        made.revive()
        assert made.command("stable-only", made.route, "--stable", made.stable, *place(made), *REASON).returncode == 0
        assert made.targets() == [(made.stable, 100)]


@pytest.mark.parametrize("wrong", ["NOWHERE", "HOME"])
def test_a_wrong_key_that_was_named_once_is_not_named_for_ever(sandbox: Site, tmp_path: Path, wrong: str) -> None:
    """One that cannot be read, and one that the server refuses: the same command with the right one does it."""
    with fresh(sandbox, tmp_path) as made:
        by_hand(made, 10)
        line = ["stable-only", made.route, "--stable", made.stable, *REASON]
        mistaken = ["--server", sandbox.described["server_url"], "--management-key", f"env:{wrong}", "--inference-key", "env:IKEY"]
        assert made.command(*line, *mistaken).returncode == REFUSED
        assert len(made.ids()) == (0 if wrong == "NOWHERE" else 1), "without a key nothing is begun"
        done = made.command(*line, *place(made))
        assert done.returncode == 0, done.stderr
        assert made.targets() == [(made.stable, 100)]
        assert len(made.ids()) == 1
        assert made.command("journal", made.id, "--verify").returncode == 0


def test_stable_only_killed_between_writes_goes_on(sandbox: Site, tmp_path: Path) -> None:
    with fresh(sandbox, tmp_path) as made:
        by_hand(made, 10)
        by_hand(made, 5)
        line = ["stable-only", made.route, "--stable", made.stable, *place(made), *REASON]
        for rows in (3, 6, 9, 12):
            process = made.start(*line)
            wait(lambda rows=rows: len(made.journal()) >= rows, f"{rows} rows", alive=process)
            assert kill(process)
            assert (made.stable, 100) in made.targets()
        process = made.start(*line)
        assert made.over(process) == 0, made.said(process)
        assert made.targets() == [(made.stable, 100)]
        assert len(made.ids()) == 1
        assert made.shape() == made.before


# --- rollback --print


def bash(made: Case, text: str) -> subprocess.CompletedProcess[str]:
    """The printed lines, by a person's shell; no stream runs, so nothing is waited for."""
    keys = {"ROLLOUT_MANAGEMENT_KEY": made.site.described["management_key"], "ROLLOUT_INFERENCE_KEY": made.site.described["inference_key"]}
    env = {"PATH": os.environ["PATH"], **made.environ(), **keys, "DRAIN_SECONDS": "0"}
    return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("where", ["rung", "window"])
def test_the_printed_calls_restore_the_snapshot(real: Site, where: str, tmp_path: Path) -> None:
    """From the store and from the marker alone they are the same; run by bash, under users, they undo everything."""
    with judged(real, tmp_path, LONG) as made:
        if where == "window":
            promoted(made)
        since = len(made.own_writes())
        stored = made.command("rollback", made.id, "--print")
        assert stored.returncode == 0, stored.stderr
        marked = made.command("rollback", "--route", made.route, *place(made), "--print", store="empty.db")
        assert calls(stored.stdout) == calls(marked.stdout)
        assert len(made.own_writes()) == since, "printing changes nothing"
        assert not any(made.site.described[key] in stored.stdout for key in ("management_key", "inference_key"))
        with made.site.load(made.route, 1) as users:
            done = bash(made, stored.stdout)
            time.sleep(0.5)
        assert done.returncode == 0, done.stderr
        assert "remove the marker" in done.stdout.splitlines()[-1], "it says what it does"
        assert [who for who in users if who.isdigit()] == []
        assert users[-1] == made.stable
        assert made.shape() == made.before
        again = made.command("rollback", "--route", made.route, *place(made), "--print")
        assert again.returncode == 2, "no marker is left"


def test_the_printed_calls_stop_where_stable_does_not_serve(sandbox: Site, tmp_path: Path) -> None:
    """13, and nothing is taken from the canary."""
    with judged(sandbox, tmp_path) as made:
        told = made.command("rollback", made.id, "--print")
        made.crash_stable(None)
        made.site.until(lambda: all(t["state"] != "active" for t in made.site.target_list(made.row["id"]) if t["weight"] == 100), "lost")
        there = made.targets()
        done = bash(made, told.stdout.replace("seq 60", "seq 2").replace("-lt 60", "-lt 2"))
        assert done.returncode == HALTED, done.stderr
        assert "Stop here" in done.stderr
        assert made.targets() == there
        made.revive()


def test_the_printed_calls_delete_nothing_that_another_route_sends_to(sandbox: Site, tmp_path: Path) -> None:
    """Users of that route are served on; the marker stays until a person has taken the deployment out of it."""
    with judged(sandbox, tmp_path) as made:
        canary = next(key for key, name in made.names().items() if name == f"{made.stable}-r{made.id[:8]}")
        other = sandbox.new_route({canary: 100} if canary is not None else {})
        text = made.command("rollback", made.id, "--print").stdout.replace("seq 60", "seq 2").replace("-lt 60", "-lt 2")
        done = bash(made, text)
        assert done.returncode == HALTED, done.stderr
        assert "take it out of there first. Stop here" in done.stderr
        assert made.targets() == [(made.stable, 100)]
        assert sandbox.ask(str(other["name"])).status_code == 200
        assert sandbox.admin.delete(f"/v2/model-routes/{other['id']}").status_code == 200
        assert bash(made, made.command("rollback", made.id, "--print").stdout).returncode == 0
        assert made.shape() == made.before


def calls(text: str) -> list[str]:
    """The lines without what depends on the moment and on where the keys are."""
    return [row for row in text.splitlines() if row and not row.startswith(("#", "export", ": "))]
