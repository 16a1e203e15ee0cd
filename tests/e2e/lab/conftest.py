"""Plays are staged once a session, three at a time on one lab, and only those that a selected test looks at.

Without `ROLLOUT_LAB` the tests of this folder are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from lab.scenario import Scenario
from tests.conftest import lab_description
from tests.e2e.lab.plays import PLAYS, Seen

AT_ONCE = 3

if lab_description() is None:
    collect_ignore_glob = ["test_*.py"]


class Stage:
    """The plays that were asked for, running or done."""

    def __init__(self, names: set[str], folder: Path, described: dict[str, Any]) -> None:
        self._folder, self._described = folder, described
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="play")
        # The longest first: what is short fills the gaps.
        self._seen: dict[str, Future[Seen]] = {name: self._pool.submit(self._play, name) for name in PLAYS if name in names}

    def _play(self, name: str) -> Seen:
        folder = self._folder / name
        folder.mkdir()
        with Scenario(self._described, name.replace("_", "-"), folder) as scene:
            return PLAYS[name](scene)

    def seen(self, name: str) -> Seen:
        return self._seen[name].result()

    def quiet(self) -> None:
        """Until none of them runs any more: a fault of the whole lab must meet nobody else."""
        wait(self._seen.values())

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


STAGE = pytest.StashKey[Stage]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The plays begin before the first test and their tests come late, so that nobody waits for them."""
    described = lab_description()
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ()) if name in PLAYS}
    asked = any("stage" in getattr(item, "fixturenames", ()) for item in session.items)
    if described is not None and asked and not session.config.option.collectonly:
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # what the fixture hands out
        session.config.stash[STAGE] = Stage(wanted, factory.mktemp("plays"), described)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if STAGE in session.config.stash:
        session.config.stash[STAGE].close()


@pytest.fixture(scope="session")
def stage(pytestconfig: pytest.Config) -> Stage:
    return pytestconfig.stash[STAGE]


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scenario]:
    """A scenario of the test's own."""
    described = lab_description()
    assert described is not None
    with Scenario(described, request.node.name.removeprefix("test_")[:24].strip("_").replace("_", "-"), tmp_path) as made:
        yield made


def _play(name: str) -> Any:
    @pytest.fixture(name=name, scope="session")
    def of(stage: Stage) -> Seen:
        return stage.seen(name)

    return of


healthy = _play("healthy")
bad_canary = _play("bad_canary")
dark = _play("dark")
two_targets = _play("two_targets")
abort_in_the_second = _play("abort_in_the_second")
assert set(PLAYS) <= set(globals()), "every play is a fixture"
