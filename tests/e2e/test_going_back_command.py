"""Going back with the real command, on the sandbox and on the real server: beside a live owner, alone, and without any store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.support import REAL_FIRST, SANDBOX_FIRST, Case, Row, case, opened, wait

ABORTED, HALTED, HOLDING, FENCED = 10, 13, 11, 31
REASON = ("--reason", "users complain")


def _judging(made: Case) -> Row:
    """A live `rollout run` whose canary takes users' requests."""
    owner = made.run()
    return {"owner": owner, "state": made.fact("0.seen", alive=owner)}


@pytest.mark.parametrize("kind", REAL_FIRST)
def test_abort_in_the_canary_beside_its_owner(kind: str, tmp_path: Path) -> None:
    """The command ends with 0 once all is as it was, the owner with 10; users are served all the while."""
    with opened(kind, tmp_path) as site, case(site, tmp_path) as made:
        owner = _judging(made)["owner"]
        with site.load(made.route, 1) as users:
            done = made.command("abort", made.id, *REASON)
            assert done.returncode == 0, done.stderr
            assert made.over(owner) == ABORTED, made.said(owner)
        assert [who for who in users if who.isdigit()] == []
        assert users[-1] == made.stable
        assert made.shape() == made.before
        assert made.command("journal", made.id, "--verify").returncode == 0


@pytest.mark.parametrize("kind", SANDBOX_FIRST)
def test_rollback_from_the_window_when_nobody_ticks(kind: str, tmp_path: Path) -> None:
    """The command carries it out itself: stable is back with its weight before the canary leaves, and no user is refused."""
    with opened(kind, tmp_path) as site, case(site, tmp_path, {"{duration: 2s}": "{duration: 10m}"}) as made:
        owner = made.start("run", str(made.plan), "--until", "promoted")
        made.fact("0.seen", alive=owner)
        assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
        assert made.over(owner) == 0, made.said(owner)
        assert [name for name, _ in made.targets()] == [f"{made.stable}-r{made.id[:8]}"]
        with site.load(made.route, 1) as users:
            done = made.command("rollback", made.id, *REASON)
        assert done.returncode == 0, done.stderr
        assert [who for who in users if who.isdigit()] == []
        assert made.shape() == made.before
        assert made.command("rollback", made.id, *REASON).returncode == 23


@pytest.mark.parametrize("kind", REAL_FIRST)
def test_stable_lost_in_the_canary_halts_and_nothing_is_written_until_it_serves_again(kind: str, tmp_path: Path) -> None:
    """13, again 13, and, once stable is back and has answered a probe, the rollout goes on to its end."""
    with opened(kind, tmp_path) as site, case(site, tmp_path) as made:
        owner = _judging(made)["owner"]
        made.crash_stable(None)
        assert made.over(owner) == HALTED, made.said(owner)
        written, shape = len(made.own_writes()), made.targets()
        again = made.command("run", str(made.plan), "--until", "completed")
        assert again.returncode == HALTED, again.stderr
        assert "stable_lost" in again.stdout.replace(" ", "_")
        assert (len(made.own_writes()), made.targets()) == (written, shape)
        made.revive()
        probed = made.fact("0.seen")["facts"].get("halt.probe")
        on = made.run()
        assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0
        assert made.over(on) == 0, made.said(on)
        texts = [row["text"] for row in made.journal()]
        back = texts.index(f"{made.stable} serves again")
        assert any(f"{made.stable} is active again: does it answer?" in text for text in texts[:back])
        assert probed is None or probed["ok"] == 0


@pytest.mark.parametrize("kind", REAL_FIRST)
def test_rollback_of_a_route_with_an_empty_store_takes_it_from_its_owner(kind: str, tmp_path: Path) -> None:
    """The marker on the server is enough; the former owner exits with 31 and writes nothing after the takeover."""
    with opened(kind, tmp_path) as site, case(site, tmp_path) as made:
        owner = _judging(made)["owner"]
        line = [
            "--route",
            made.route,
            "--server",
            site.described["server_url"],
            "--management-key",
            "env:MKEY",
            "--inference-key",
            "env:IKEY",
        ]
        with site.load(made.route, 1) as users:
            done = made.command("rollback", *line, *REASON, store="empty.db")
        assert done.returncode == 0, done.stderr
        assert made.over(owner) == FENCED, made.said(owner)
        assert [who for who in users if who.isdigit()] == []
        assert made.shape() == made.before
        taken = [w for w in made.own_writes() if (w["body"] or {}).get("meta", {}).get("rollout")]
        late = made.own_writes()[made.own_writes().index(taken[-1]) + 1 :] if taken else []
        assert all(w["method"] == "DELETE" or set(w["body"]) <= {"name", "meta"} for w in late), late
        held = [row[0] for row in made.ask("select exit_code from rollouts where route = ?", made.route)]
        assert held == [FENCED]


@pytest.mark.slow
def test_abort_while_it_holds_and_nobody_ticks(tmp_path: Path) -> None:
    """`run` ended with 11 at a gate; the abort carries itself out."""
    with (
        opened("sandbox", tmp_path) as site,
        case(site, tmp_path, {"cleanup:": "gates: {approve_before: [canary]}\ncleanup:"}) as made,
    ):
        assert made.over(made.run()) == HOLDING
        wait(lambda: made.state()["hold"], "the hold is stored")
        done = made.command("abort", made.id, *REASON)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("aborted")
        assert made.shape() == made.before
