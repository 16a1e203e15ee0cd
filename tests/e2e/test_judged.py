"""The judge, end to end: under live traffic an identical canary is promoted, and each defect is taken back for the right reason.

In every run three defects and an identical canary, one seed each, all at the same time on one sandbox. In `make accept` the whole matrix:
twenty seeds of each on the sandbox, two on the real server, with the replica's noise fitted on windows of an identical canary.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.site import Site
from tests.e2e.judged import DEFECTS, IDENTICAL, Defect, Outcome, recorded, rolled_out
from tests.e2e.support import KINDS, Row, opened

SEEDS = {"sandbox": 20, "lab": 2}
ALL_BUT = {"sandbox": 2, "lab": 0}
"""seeds that may go wrong"""
SMALL = ("identical", "ttft_double", "errors", "tail")
SLOW_BEATS = {"MIN": "100s", "DEADLINE": "300s"}
"""a real worker tells its memory every 30 s, the sandbox every 3 s: a leak shows after a few of those"""
LONG = {"sandbox": {"MIN": "80s", "DEADLINE": "240s"}, "lab": {"MIN": "420s", "DEADLINE": "600s"}}
"""time for a history that shows how memory differs by itself: a dozen readings"""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server for the tests of this file."""
    with opened(request.param, tmp_path_factory.mktemp("sandbox")) as found:
        yield found


@pytest.fixture(scope="module")
def history(site: Site, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Windows of an identical canary, recorded once for all rollouts of this file."""
    seen = rolled_out(site, tmp_path_factory.mktemp("history"), IDENTICAL, 999, changes=LONG[site.kind], patience=1200.0)
    rows = recorded(seen.windows)
    assert len(rows) > 40, seen.text
    assert len({(w["stable"]["memory_used"], w["canary"]["memory_used"]) for w in rows[1:]}) >= 12, "too few readings of memory"
    return rows


@pytest.mark.parametrize("site", [pytest.param("sandbox", id="sandbox")], indirect=True)
def test_one_seed_of_each(site: Site, tmp_path: Path) -> None:
    def one(name: str) -> Outcome:
        home = tmp_path / name
        home.mkdir()
        return rolled_out(site, home, DEFECTS[name], 1)

    with ThreadPoolExecutor(len(SMALL)) as pool:
        found = dict(zip(SMALL, pool.map(one, SMALL), strict=True))
    assert {name: seen.text for name, seen in found.items() if not seen.right(DEFECTS[name])} == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("site", KINDS, indirect=True)
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_every_defect_is_taken_back_for_the_right_reason(site: Site, history: list[Row], defect: Defect, tmp_path: Path) -> None:
    seeds, seen = SEEDS[site.kind], list[Outcome]()
    changes = SLOW_BEATS if site.kind == "lab" and defect.culprit == "memory" else {}
    for seed in range(1, seeds + 1):
        home = tmp_path / str(seed)
        home.mkdir()
        seen.append(rolled_out(site, home, defect, seed, history=history, changes=changes))
        print(f"{defect.name} seed {seed}: {seen[-1].text}")
    right = sum(one.right(defect) for one in seen)
    print(f"judge: defect={defect.name} right={right}/{seeds}")
    assert right >= seeds - ALL_BUT[site.kind], [one.text for one in seen if not one.right(defect)]
