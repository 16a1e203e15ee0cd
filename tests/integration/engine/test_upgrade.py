"""The tool is upgraded in the middle of a canary: a store of the schema before, with a plan of that release, goes on to its end.

`data/mid-canary-0001.sql` was written by the release before the seal; beside it stands the platform as it was then.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, StepName
from rollout.store import Store, migrate
from rollout.testing.memory import Deployment, Route, Target
from tests.integration.engine.harness import Case

DATA = Path(__file__).parent / "data"
ID = "4f58719c15ed"


def upgraded(folder: Path) -> tuple[Case, dict[str, Any]]:
    """This release over the old store and the platform as it stood; and what a rollback must restore."""
    world: dict[str, Any] = json.loads((DATA / "mid-canary-0001.json").read_text("utf-8"))
    case = Case(folder)
    case.store.close()
    (folder / "rollout.db").unlink()
    with closing(sqlite3.connect(folder / "rollout.db")) as old:
        old.executescript((DATA / "mid-canary-0001.sql").read_text("utf-8"))
        assert old.execute("SELECT version_num FROM rollout_version").fetchone() == (migrate.KNOWN[-2],)
    case.clock.time = datetime.fromisoformat(world["now"])
    platform = case.platform
    platform.deployments, platform.routes, platform._ids = {}, {}, world["ids"]
    for name, found in world["deployments"].items():
        deployment = Deployment(found["id"], found["spec"], found["ready_at"], requests=found["requests"], errors=found["errors"])
        deployment.ttft = {float(edge): count for edge, count in found["ttft"]}
        platform.deployments[name] = deployment
    for name, found in world["routes"].items():
        platform.routes[name] = Route(found["id"], name, [Target(*target) for target in found["targets"]], found["meta"], found["policy"])
    platform._last = case.clock.time.timestamp()
    case.store = Store.open(str(folder / "rollout.db"), create=False, now=case.clock.now)
    return case, world["before"]


def test_what_the_release_before_stored_is_read_whole(tmp_path: Path) -> None:
    case, _ = upgraded(tmp_path)
    stored = case.store.load(ID)
    assert (stored.state.phase, stored.state.step) == (Phase.RUNNING, StepName.CANARY)
    assert "key_life" not in stored.plan["guards"]
    assert case.store.verify(ID) == 48
    assert [one.state.id for one in case.store.list(active_only=True)] == [ID]


def test_it_goes_on_and_is_promoted_and_completed(tmp_path: Path) -> None:
    case, _ = upgraded(tmp_path)
    written = len(case.platform.writes)
    state = case.run(ID)
    assert (state.phase, state.exit_code) == (Phase.COMPLETED, 0)
    canary = next(iter(case.platform.deployments))
    assert list(case.platform.deployments) == [canary]
    assert {t.deployment: t.weight for t in case.platform.routes["chat"].targets}.keys() == {canary}
    assert not any(verb in ("mark_route", "create_deployment") for verb, _ in case.platform.writes[written:]), "nothing is done twice"
    assert case.store.verify(ID) > 48


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_it_can_go_back(tmp_path: Path, verb: str) -> None:
    case, before = upgraded(tmp_path)
    case.service().say(ID, verb, "ana", "the new release is not trusted yet")
    state = case.run(ID)
    assert state.phase is (Phase.ABORTED if verb == "abort" else Phase.ROLLED_BACK)
    shape = case.shape()
    assert shape["deployments"] == before["deployments"]
    assert {name: list(found) for name, found in shape["routes"].items()} == before["routes"]


def test_the_same_plan_file_goes_on_with_it_and_starts_nothing(tmp_path: Path) -> None:
    case, _ = upgraded(tmp_path)
    assert case.start().state.id == ID


def test_the_row_is_sealed_by_the_first_write_of_this_release(tmp_path: Path) -> None:
    case, _ = upgraded(tmp_path)
    case.run(ID, lambda state: state.step is StepName.SHIFT)
    case.store.close()
    with closing(sqlite3.connect(tmp_path / "rollout.db")) as raw:
        assert raw.execute("SELECT version_num FROM rollout_version").fetchone() == (migrate.HEAD,)
        assert len(raw.execute("SELECT seal FROM rollouts").fetchone()[0]) == 64
