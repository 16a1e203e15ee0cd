"""Stores that cannot be used, through the command: 20 when it may pass, 2 when the name is wrong, 13 when a person must look; never 1."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.store import Store
from tests.integration.badinput.said import Shell
from tests.integration.badinput.wire import Wire, site
from tests.unit.plan.kit import GOOD

DUMP = Path(__file__).parents[1] / "store" / "data" / "store-0002.sql"
ID = "r-old"


@pytest.fixture
def held(shell: Shell) -> Shell:
    """A shell whose store holds a running rollout."""
    with closing(sqlite3.connect(shell.store)) as made:
        made.executescript(DUMP.read_text("utf-8"))
        made.execute("PRAGMA journal_mode=WAL")
    return shell


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def cut(part: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (name TEXT)")


def edited(statement: str) -> Callable[[Path], None]:
    return lambda path: sql(path, statement)


SICK: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "gone": (Path.unlink, 2, "There is no store at"),
    "folder": (folder, 2, "is a folder"),
    "endless-link": (loop, 2, "cannot be opened"),
    "text": (lambda path: path.write_text("kind: RolloutPlan\n" * 100), 2, "is not a rollout store"),
    "one-byte": (lambda path: path.write_bytes(b"x"), 2, "is not a rollout store"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), 2, "is not a rollout store"),
    "binary": (lambda path: path.write_bytes(b"\x7fELF" + os.urandom(9000)), 2, "is not a rollout store"),
    "emptied": (lambda path: path.write_bytes(b""), 2, "There is no store at"),
    "anothers": (foreign, 2, "It holds tables of something else: songs"),
    "newer": (edited("UPDATE rollout_version SET version_num = '9041'"), 2, "Upgrade rollout"),
    "odd-version": (edited("UPDATE rollout_version SET version_num = 'x'"), 2, "this release knows up to"),
    "no-version": (edited("DELETE FROM rollout_version"), 2, "this release knows up to"),
    "cut-in-half": (cut(0.5), 13, "is damaged"),
    "cut-to-a-tenth": (cut(0.1), 13, "is damaged"),
    "no-id": (edited("DELETE FROM meta"), 13, "has lost its id"),
    "no-table": (edited("ALTER TABLE rollouts RENAME TO other"), 13, "cannot be used"),
    "no-column": (edited("ALTER TABLE rollouts RENAME COLUMN state TO other"), 13, "cannot be used"),
    "state-edited": (edited("UPDATE rollouts SET state = replace(state, 'running', 'promoted')"), 13, "changed by something else"),
    "state-is-a-list": (edited("UPDATE rollouts SET state = '[]', seal = NULL"), 13, "cannot be read"),
    "state-is-no-json": (edited("UPDATE rollouts SET state = 'oops'"), 13, "cannot be read"),
    "state-is-null": (edited("UPDATE rollouts SET state = 'null', seal = NULL"), 13, "cannot be read"),
    "state-is-deep": (edited("UPDATE rollouts SET state = replace(hex(zeroblob(100000)), '00', '[')"), 13, "cannot be read"),
    "phase-unknown": (
        edited("UPDATE rollouts SET state = replace(state, '\"running\"', '\"dancing\"'), seal = NULL"),
        13,
        "cannot be read",
    ),
    "plan-edited": (edited("UPDATE rollouts SET plan = '{}'"), 13, "changed by something else"),
    "active-edited": (edited("UPDATE rollouts SET active = 0"), 13, "changed by something else"),
    "time-edited": (edited("UPDATE rollouts SET lease_until = 'soon'"), 13, "cannot be read"),
}
READING, WRITING = ("status", ID), ("abort", ID, "--reason", "because it is wrong")


@pytest.mark.parametrize("line", [READING, WRITING], ids=["status", "abort"])
@pytest.mark.parametrize("name", SICK, ids=str)
def test_a_sick_store_is_named_with_the_way_out(held: Shell, name: str, line: tuple[str, ...]) -> None:
    make_sick, code, words = SICK[name]
    make_sick(held.store)
    said = held.fails(code, *line)
    assert words in said
    assert str(held.store) in said or ID in said or "value" in said


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("UPDATE journal SET text = 'nothing' WHERE seq = 2", 2),
        ("UPDATE journal SET data = '{}' WHERE seq = 2", 2),
        ("UPDATE journal SET actor = 'bob' WHERE seq = 1", 1),
        ("UPDATE journal SET data = 'oops' WHERE seq = 1", 1),
        ("DELETE FROM journal WHERE seq = 2", 2),
        ("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)", 0),
    ],
)
def test_an_edited_journal_is_found(held: Shell, statement: str, row: int) -> None:
    sql(held.store, statement)
    said = held.fails(13, "journal", ID, "--verify")
    assert f"is broken at row {row}" in said or not row


def test_a_journal_that_is_no_json_is_told_when_it_is_read(held: Shell) -> None:
    sql(held.store, "UPDATE journal SET data = 'oops' WHERE seq = 1")
    assert "cannot be read" in held.fails(13, "journal", ID)


@pytest.mark.parametrize("line", [READING, ("list",), ("journal", ID)], ids=["status", "list", "journal"])
def test_a_store_that_another_process_writes_is_read(held: Shell, line: tuple[str, ...]) -> None:
    with closing(sqlite3.connect(held.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert held.run(*line).code == 0


def test_a_store_that_another_process_locks_may_be_tried_again(held: Shell) -> None:
    with closing(sqlite3.connect(held.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = held.fails(20, "pause", ID, "--reason", "look at it first", "--store", f"sqlite:///{held.store}?timeout=0.1")
    assert "is locked by another process" in said
    assert "fuser" in said


def test_a_store_that_may_only_be_read_is_read_and_not_written(held: Shell) -> None:
    where = f"sqlite:///file:{held.store}?mode=ro&uri=true"
    assert held.run("status", ID, "--store", where).code == 0
    said = held.fails(20, "pause", ID, "--reason", "look at it first", "--store", where)
    assert "is read-only" in said


def test_a_full_disk_writes_nothing_by_halves(held: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sqlite3.connect

    def full(*args: object, **kwargs: object) -> sqlite3.Connection:
        made: sqlite3.Connection = real(*args, **kwargs)  # type: ignore[call-overload]
        made.execute(f"PRAGMA max_page_count={held.store.stat().st_size // 4096}")
        return made

    monkeypatch.setattr(sqlite3, "connect", full)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", full)
    said, heard = held.run("pause", ID, "--reason", "x" * 900), 0
    while said.code == 0 and heard < 50:
        said, heard = held.run("pause", ID, "--reason", "x" * 900), heard + 1
    assert said.code == 20
    assert "its disk is full" in said.err
    monkeypatch.undo()
    with Store.open(str(held.store), create=False, now=lambda: datetime.now(UTC)) as store:
        assert len([c for c in store.pending(ID) if c.verb == "pause"]) == 1 + heard
        assert store.verify(ID)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("mysql://ana@host/db", "'mysql' is not supported"),
        ("://", "cannot be read"),
        ("ana:canary7never@db.lan/x", "no KIND:// before them"),
        ("postgresql:ana:canary7never@db.lan/x", "no KIND:// before them"),
        ("postgresql://ana:canary7never@db.lan:port/x", "cannot be read"),
        ("postgresql://ana:canary7never@127.0.0.1:1/db", "does not answer"),
        ("file/in/the/way/rollout.db", "Not a directory"),
        ("a\0b.db", "cannot be opened"),
    ],
)
def test_a_name_that_leads_to_no_store(shell: Shell, where: str, words: str) -> None:
    Path("file").write_text("in the way")
    Path("plan.yaml").write_text(GOOD)
    code = 20 if "does not answer" in words else 2
    said = shell.fails(code, "run", "plan.yaml", "--store", where)
    assert words in said
    assert "canary7never" not in said


def test_a_plan_of_another_release_is_shown_and_not_carried_out(held: Shell) -> None:
    sql(held.store, "UPDATE rollouts SET plan = '{\"spec\": 1}', seal = NULL")
    assert held.run("status", ID).code == 0
    assert held.run("list", "--json").code == 0
    said = held.fails(3, "abort", ID, "--reason", "because it is wrong")
    assert "cannot be read by this release" in said
    assert "differs in `apiVersion`" in said


def test_a_missing_folder_is_made_for_a_new_store_and_not_for_a_question(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.engine.run.FIRST", 0.0)
    where = shell.home / "new" / "folder" / "rollout.db"
    shell.fails(2, "status", ID, "--store", str(where))
    assert not where.parent.exists()
    with Wire({"/": site()["/version"]}) as wire:
        Path("plan.yaml").write_text(GOOD.replace("http://127.0.0.1:30080", wire.url))
        assert shell.run("run", "plan.yaml", "--store", str(where)).code == 20
    assert where.is_file()


def test_a_damaged_store_is_left_as_it_is(held: Shell) -> None:
    cut(0.5)(held.store)
    before = held.store.read_bytes()
    for line in (READING, WRITING, ("tick", "--all")):
        held.fails(13, *line)
    assert held.store.read_bytes() == before
    copy = held.home / "copy.db"
    shutil.copy(held.store, copy)
    assert copy.read_bytes() == before


def test_one_edited_row_does_not_keep_the_others_from_their_ticks(held: Shell) -> None:
    columns = "name, server, plan_digest, plan, plan_text, phase, state, active, fence, created, head_seq, head_hash"
    sql(held.store, f"INSERT INTO rollouts (id, route, {columns}) SELECT 'r-other', 'other', {columns} FROM rollouts")
    sql(held.store, f"UPDATE rollouts SET plan_text = 'edited' WHERE id = '{ID}'", "UPDATE rollouts SET next_wake = NULL")
    said = held.run("tick", "--all", "--json")
    rows = {row["id"]: row for row in json.loads(said.out)}
    assert said.code == 13
    assert (rows[ID]["exit_code"], "changed by something else" in rows[ID]["summary"]) == (13, True)
    assert rows["r-other"]["exit_code"] == 3, "it was tried: the plan in the dump is of no release"
