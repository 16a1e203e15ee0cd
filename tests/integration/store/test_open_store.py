"""Opening: made once, found again, never mistaken for something else."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from rollout.errors import StoreError
from rollout.store import Store


def test_a_store_is_made_once_and_keeps_its_id(url, now, make) -> None:
    with Store.open(url, now=now) as first:
        make.stored(first)
        store_id = first.store_id
    with Store.open(url, create=False, now=now) as again:
        assert again.store_id == store_id
        assert again.load("r-7f3a").state == make.state()


def test_two_stores_have_two_ids(tmp_path, now) -> None:
    with Store.open(str(tmp_path / "a.db"), now=now) as one, Store.open(str(tmp_path / "b.db"), now=now) as two:
        assert one.store_id != two.store_id


def test_nothing_is_made_when_that_was_not_asked(url, now) -> None:
    with pytest.raises(StoreError, match="There is no store at") as caught:
        Store.open(url, create=False, now=now)
    assert "rollout run" in caught.value.hint


def test_no_file_is_left_by_a_refused_look(sqlite_path, now) -> None:
    with pytest.raises(StoreError):
        Store.open(str(sqlite_path), create=False, now=now)
    assert not sqlite_path.parent.exists()


def test_an_empty_file_is_a_beginning_not_damage(sqlite_path, now) -> None:
    """A process killed between making the file and its first write leaves that."""
    sqlite_path.parent.mkdir()
    sqlite_path.touch()
    with pytest.raises(StoreError, match="There is no store at"):
        Store.open(str(sqlite_path), create=False, now=now)
    with Store.open(str(sqlite_path), now=now) as store:
        assert store.store_id


def test_sqlite_keeps_every_commit_and_checks_references(sqlite_path, now) -> None:
    with Store.open(str(sqlite_path), now=now) as store, store._engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_postgresql_never_waits_for_ever(new_postgres_url, now) -> None:
    with Store.open(new_postgres_url(), now=now) as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "10s"
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "30s"


def test_a_store_in_memory_lives_as_long_as_it_is_open(now, make) -> None:
    with Store.open("sqlite://", now=now) as store:
        make.stored(store)
        assert store.verify("r-7f3a") == 1


def test_a_newer_schema_is_refused_and_left_alone(url, now, make) -> None:
    with Store.open(url, now=now) as store:
        make.stored(store)
        with store._writer.begin() as connection:
            connection.exec_driver_sql("UPDATE rollout_version SET version_num = '9041'")
    with pytest.raises(StoreError, match="written by a newer release") as caught:
        Store.open(url, now=now)
    assert "9041" in caught.value.why
    assert "Upgrade rollout" in caught.value.hint


def test_a_sqlite_file_of_another_program_is_refused_and_left_alone(tmp_path, now) -> None:
    path = tmp_path / "places.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE bookmarks (x)")
    other.close()
    with pytest.raises(StoreError, match="is not a rollout store") as caught:
        Store.open(str(path), now=now)
    assert "bookmarks" in caught.value.why
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    other.close()


def test_a_postgresql_schema_may_hold_other_tables_but_not_our_names(new_postgres_url, now) -> None:
    url = new_postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num text)")
        with Store.open(url, now=now) as store:
            assert store.store_id
    taken = new_postgres_url()
    with psycopg.connect(taken, autocommit=True) as connection:
        connection.execute("CREATE TABLE journal (x int)")
    with pytest.raises(StoreError, match="is not a rollout store"):
        Store.open(taken, now=now)


def test_a_postgresql_that_does_not_answer_is_named_without_its_password(now) -> None:
    with pytest.raises(StoreError, match="does not answer") as caught:
        Store.open("postgresql://ann:hunter2@127.0.0.1:1/rollouts", now=now)
    assert "127.0.0.1:1/rollouts" in caught.value.message
    assert "hunter2" not in caught.value.message + caught.value.why + caught.value.hint


def test_a_store_without_its_id_is_damaged(url, now) -> None:
    with Store.open(url, now=now) as store, store._writer.begin() as connection:
        connection.exec_driver_sql("DELETE FROM meta")
    with pytest.raises(StoreError, match="lost its id"):
        Store.open(url, now=now)


def test_processes_that_open_a_new_store_at_the_same_instant_share_it(url, now, tmp_path, new_postgres_url, forked) -> None:
    """10 tries, three processes each."""
    context = multiprocessing.get_context("fork")
    places = [new_postgres_url() if "postgres" in url else str(tmp_path / f"{n}.db") for n in range(10)]
    barrier, results = context.Barrier(3), context.Queue()

    def open_each() -> None:
        for place in places:
            barrier.wait(30)
            try:
                with Store.open(place, now=now) as store:
                    results.put((place, store.store_id))
            except Exception as error:
                results.put((place, repr(error)))

    processes = [forked(open_each) for _ in range(3)]
    found = [results.get(timeout=60) for _ in range(30)]
    for process in processes:
        process.join(30)
    assert len(set(found)) == 10
    assert not [text for _, text in found if "Error" in text]


def test_importing_the_package_does_not_import_a_database() -> None:
    code = "import rollout, sys; sys.exit(any(n in sys.modules for n in ('sqlmodel', 'sqlalchemy', 'alembic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parent).returncode == 0


def test_opening_a_store_that_is_up_to_date_does_not_import_alembic(sqlite_path, now) -> None:
    """Its import costs more than everything else that opening does."""
    Store.open(str(sqlite_path), now=now).close()
    code = (
        "import sys, datetime; from rollout.store import Store;"
        f"Store.open({str(sqlite_path)!r}, now=lambda: datetime.datetime.now(datetime.UTC)).close();"
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
