"""The schema: what the tables say, what the migrations make, and stores of earlier releases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from rollout.store import Store, migrate
from rollout.store.tables import Table

RELEASED = sorted((Path(__file__).parent / "data").glob("store-*.sql"))


def test_migrations_make_what_the_tables_say(store) -> None:
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_one_active_rollout_a_route_is_the_databases_own_rule(store) -> None:
    indexes = {index["name"]: index for index in inspect(store._engine).get_indexes("rollouts")}
    found = indexes["one_active_per_route"]
    assert found["unique"]
    assert found["column_names"] == ["server", "route"]
    assert str(found["dialect_options"][f"{store._engine.dialect.name}_where"]) == "active"


def test_the_known_revisions_are_those_that_exist() -> None:
    config = Config()
    config.set_main_option("script_location", "rollout.store:migrations")
    config.set_main_option("path_separator", "os")
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(revisions)) == migrate.KNOWN


def test_there_is_a_store_of_each_released_schema() -> None:
    assert [path.stem.removeprefix("store-") for path in RELEASED] == list(migrate.KNOWN)


@pytest.mark.parametrize("dump", RELEASED, ids=lambda path: path.stem)
def test_a_rollout_of_an_earlier_release_goes_on(tmp_path, now, make, dump) -> None:
    """The dump holds a running rollout with an open intent and a command that waits."""
    path = tmp_path / "store.db"
    old = sqlite3.connect(path)
    old.executescript(dump.read_text(encoding="utf-8"))
    old.close()
    with Store.open(str(path), create=False, now=now) as store:
        found = store.load("r-old")
        assert found.state.intent is not None
        assert found.plan_text.startswith("kind: RolloutPlan")
        assert [c.verb for c in store.pending("r-old")] == ["pause"]
        rows = store.verify("r-old")
        fence = store.claim("r-old", make.owner(), 30, force=True)
        assert fence == found.fence + 1
        done = make.event("went on", "outcome", facts={"receipt": 1})
        store.append("r-old", fence, [done], found.state.model_copy(update={"intent": None}), consumed=[1])
        assert store.verify("r-old") == rows + 1
        assert store.pending("r-old") == []
        assert store.find_report("sha256:spec", 10**9).report == {"floor": 8}
