"""Two `rollout run` of one route, started at the same instant: never two winners, and the loser writes nothing but its claim."""

from __future__ import annotations

import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contract.site import Site
from tests.e2e.support import KINDS, Case, case, opened

TRIES = {"sandbox": 10, "lab": 3}
"""tries with one store, and as many with two"""
AT_ONCE = 3
SLOW_WRITE = 0.7
"""seconds by which every other try on the sandbox delays the first marker: it then lands after the other one was read back"""
TAKEN, DONE = 30, 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stores", [("one.db", "one.db"), ("one.db", "two.db")], ids=["one store", "two stores"])
def test_of_two_that_start_at_the_same_instant_one_goes_on(kind: str, stores: tuple[str, str], tmp_path: Path) -> None:
    """With one store exactly one wins, with two at most one; whoever loses exits with 30."""
    with opened(kind, tmp_path) as site, ThreadPoolExecutor(AT_ONCE) as pool:
        folders = [tmp_path / str(n) for n in range(TRIES[kind])]
        found = list(pool.map(lambda n: _try(site, folders[n], stores, delayed=n % 2 == 1), range(TRIES[kind])))
    winners = [codes.count(DONE) for codes in found]
    print(f"claims: {kind} {len(set(stores))} store(s): {Counter(winners)} winners in {len(found)} tries")
    assert all(sorted(codes) in ([DONE, TAKEN], [TAKEN, TAKEN]) for codes in found), found
    assert max(winners) == 1
    if stores[0] == stores[1]:
        assert min(winners) == 1


def _try(site: Site, folder: Path, stores: tuple[str, str], *, delayed: bool) -> list[int]:
    """Exit codes of both."""
    folder.mkdir()
    with case(site, folder) as made:
        if delayed and site.kind == "sandbox":
            made.fault(kind="delay", method="PUT", path=f"/v2/model-routes/{made.row['id']}$", seconds=SLOW_WRITE)
        line = ("run", str(made.plan), "--until", "stage")
        both: list[subprocess.Popen[str]] = [made.start(*line, store=store) for store in stores]
        codes = [made.over(process) for process in both]
        said = [made.said(process) for process in both]
        assert set(codes) <= {DONE, TAKEN}, said
        _only_claims(made, stores)
        _no_loser_is_left(made, stores)
        return codes


def _only_claims(made: Case, stores: tuple[str, str]) -> None:
    """What reached the server is at most one marker for each rollout, and nothing else."""
    ours = made.own_writes()
    markers = Counter(w["body"].get("meta", {}).get("rollout", {}).get("nonce") for w in ours if w["method"] == "PUT")
    assert None not in markers
    assert sum(markers.values()) == len(ours), ours
    assert set(markers.values()) <= {1}
    assert len(markers) <= len(set(stores))
    assert made.targets() == [(made.stable, 100)]
    assert made.made() == []


def _no_loser_is_left(made: Case, stores: tuple[str, str]) -> None:
    """The store that lost holds no rollout that is still under way, and the marker is the winner's."""
    marker: dict[str, Any] = made.site.route(made.row["id"])["meta"]["rollout"]
    query = "select id, json_extract(state, '$.facts.nonce') from rollouts where active and route = ?"
    active = [row for store in dict.fromkeys(stores) for row in made.ask(query, made.route, store=store)]
    assert [nonce for _, nonce in active] == [marker["nonce"]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_route_that_is_held_is_refused_from_any_store_and_nothing_is_written(kind: str, tmp_path: Path) -> None:
    """While one process ticks it: this plan and another, from its store and from one that knows nothing. Also after a kill."""
    with opened(kind, tmp_path) as site, case(site, tmp_path) as held:
        owner = held.run()
        held.until(lambda s: s["step"] != "declare", "the route is claimed", alive=owner)
        other = tmp_path / "other.yaml"
        other.write_text(held.plan.read_text("utf-8").replace("[25, 50, 100]", "[50, 100]"), "utf-8")
        lines = [("run", str(plan), "--until", "completed") for plan in (held.plan, other)]
        refused = [held.start(*line, store=store) for line in lines for store in (held.store, "foreign.db")]
        said = [(held.over(process), held.said(process)) for process in refused]
        assert [code for code, _ in said] == [TAKEN] * 4, said
        assert all(line in text for _, text in said for line in (held.route,))
        owner.kill()
        owner.wait()
        before = held.shape(), len(held.writes())
        late = held.command("run", str(held.plan), "--until", "stage", store="foreign.db")
        assert late.returncode == TAKEN, late.stderr
        assert (held.shape(), len(held.writes())) == before
        assert {w["body"]["meta"]["rollout"]["id"] for w in held.writes() if (w["body"] or {}).get("meta", {}).get("rollout")} <= {held.id}
