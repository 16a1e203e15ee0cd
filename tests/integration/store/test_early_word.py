"""A word that is left before the store is loaded: the same row as the store's own, or none at all."""

from __future__ import annotations

import itertools
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from rollout.domain.state import Phase, Said, StepName
from rollout.engine.refuse import refuse
from rollout.store import Store, early, migrate

ID = "3f2a91c07d6e"


@pytest.fixture
def store(sqlite_path: Path, now):
    """On SQLite only: elsewhere the store's own way is the only one."""
    with Store.open(str(sqlite_path), now=now) as opened:
        yield opened


def leave(sqlite_path: Path, now, begins: str = ID, verb: str = "abort") -> early.Heard | None:
    return early.leave(str(sqlite_path), begins, verb, "ana \0", "why \ud800", now())


def test_it_knows_the_schema_of_this_release() -> None:
    """Who changes the schema looks at `early` too."""
    assert early.SCHEMA == migrate.HEAD


def test_it_is_the_row_that_the_store_would_have_written(store, make, now, sqlite_path) -> None:
    make.stored(store, ID)
    assert leave(sqlite_path, now, "3f2a") == early.Heard(ID, None)
    store.say(ID, "abort", "ana \0", "why \ud800", {})
    first, second = store.pending(ID)
    assert first == second.__class__(**{**vars(second), "id": first.id})


def test_it_tells_whose_lease_lasts(store, make, now, sqlite_path) -> None:
    make.stored(store, ID)
    store.claim(ID, make.owner(), 30)
    assert leave(sqlite_path, now) == early.Heard(ID, str(make.owner()))
    now.at += timedelta(seconds=30)
    assert leave(sqlite_path, now) == early.Heard(ID, None)


@pytest.mark.parametrize("begins", ["", "9", "3f2a91c07d6e0", "%"])
def test_nothing_is_left_for_a_rollout_that_is_not_there(store, make, now, sqlite_path, begins) -> None:
    make.stored(store, ID)
    assert leave(sqlite_path, now, begins) is None
    assert store.pending(ID) == []


def test_nothing_is_left_when_the_id_begins_two(store, make, now, sqlite_path) -> None:
    make.stored(store, ID)
    make.stored(store, "3f2a00000000", route="other")
    assert leave(sqlite_path, now, "3f2a") is None
    assert leave(sqlite_path, now, "3f2a9") is not None


@pytest.mark.parametrize("verb", early.VERBS)
@pytest.mark.parametrize("undone", [False, True], ids=["forward", "back"])
def test_nothing_is_left_where_the_engine_could_refuse_it(store, make, now, sqlite_path, verb, undone) -> None:
    """For every phase, step and verb: what is left early is never refused."""
    undo = Said(verb="rollback", actor="ana", reason="because", at=now()) if undone else None
    for number, (phase, step) in enumerate(itertools.product(Phase, StepName)):
        ended = now() if phase in (Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABORTED) else None
        state = make.stored(store, f"{number:012x}", route=f"r{number}", phase=phase, step=step, undo=undo, ended=ended)
        heard = leave(sqlite_path, now, state.id, verb)
        assert len(store.pending(state.id)) == (heard is not None)
        if heard is not None:
            refuse(state, verb)
    assert leave(sqlite_path, now, f"{0:012x}", "promote") is None


def test_a_file_that_is_no_store_of_this_release_is_left_alone(tmp_path: Path, now) -> None:
    empty, foreign, newer, text = (tmp_path / name for name in ("empty", "foreign", "newer", "text"))
    empty.touch()
    text.write_text("not a database, but long enough to be looked at" * 40, "utf-8")
    with sqlite3.connect(foreign) as raw:
        raw.execute("create table rollouts (id text)")
    raw.close()
    with Store.open(str(newer), now=now):
        pass
    with sqlite3.connect(newer) as raw:
        raw.execute("update rollout_version set version_num = '9999'")
    raw.close()
    for file in (empty, foreign, newer, text, tmp_path / "absent", tmp_path):
        assert leave(file, now) is None
    assert early.leave("postgresql://db/rollout", ID, "abort", "ana", "because", now()) is None
    assert empty.stat().st_size == 0
    assert not (tmp_path / "absent").exists()


def test_a_store_that_somebody_writes_is_waited_for(store, make, now, sqlite_path, monkeypatch) -> None:
    """And when that takes too long, nothing is left: the store's own way says who holds it."""
    make.stored(store, ID)
    monkeypatch.setattr(early, "WAIT_SECONDS", 0.1)
    with sqlite3.connect(sqlite_path) as raw:
        raw.execute("begin immediate")
        assert leave(sqlite_path, now) is None
        raw.rollback()
    raw.close()
    assert leave(sqlite_path, now) is not None
