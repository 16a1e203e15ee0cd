"""A file that cannot be used is named, with a way out, whatever is wrong with it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from rollout.errors import RolloutError, StoreDamaged, StoreError
from rollout.store import Store


@pytest.fixture
def path(sqlite_path, now, make) -> Path:
    """A store with a rollout and some fifty rows, closed."""
    with Store.open(str(sqlite_path), now=now) as store:
        state = make.stored(store)
        fence = store.claim(state.id, make.owner(), 30)
        for number in range(50):
            store.append(state.id, fence, [make.event(f"row {number}", pad="x" * 400)], state)
    assert not sqlite_path.with_name("store.db-wal").exists()
    return sqlite_path


def told(error: StoreError, path: object) -> None:
    assert isinstance(error, StoreError)
    assert str(path) in error.message
    assert error.why
    assert error.hint


@pytest.mark.parametrize("content", [b"kind: RolloutPlan\n" * 100, bytes(8192), b"\x7fELF" + os.urandom(9000), b"x"])
def test_garbage(sqlite_path, now, content) -> None:
    sqlite_path.parent.mkdir()
    sqlite_path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(str(sqlite_path), now=now)
    told(caught.value, sqlite_path)
    assert sqlite_path.read_bytes() == content


@pytest.mark.parametrize("part", [0.9, 0.5, 0.2, 0.05, 0.01])
def test_truncated(path, now, part) -> None:
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(StoreError) as caught, Store.open(str(path), now=now) as store:
        store.verify("r-7f3a")
    told(caught.value, path)


def test_truncated_to_whole_pages(path, now) -> None:
    os.truncate(path, 4096 * 3)
    with pytest.raises(StoreError, match="is damaged") as caught:
        Store.open(str(path), now=now)
    told(caught.value, path)


def test_a_page_overwritten(path, now) -> None:
    """Found by SQLite or by the chain, never taken for good."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(12, size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    with pytest.raises(StoreError), Store.open(str(path), now=now) as store:
        store.verify("r-7f3a")


@pytest.mark.parametrize("make_it", [Path.mkdir, lambda path: path.symlink_to(path.with_name("loop"))])
def test_not_a_file(tmp_path, now, make_it) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "it.db")
    make_it(tmp_path / "it.db")
    with pytest.raises(StoreError) as caught:
        Store.open(str(tmp_path / "it.db"), now=now)
    told(caught.value, tmp_path / "it.db")


def test_a_folder_that_cannot_be_made(tmp_path, now) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        Store.open(str(tmp_path / "file" / "store.db"), now=now)
    told(caught.value, tmp_path / "file" / "store.db")


def test_a_read_only_store_is_read_but_not_written(path, now, make) -> None:
    with Store.open(f"sqlite:///file:{path}?mode=ro&uri=true", now=now) as store:
        assert store.load("r-7f3a").state == make.state()
        with pytest.raises(StoreError, match="is read-only") as caught:
            store.claim("r-7f3a", make.owner(), 30)
    told(caught.value, path)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that any user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_without_the_right_to_write(path, outside, now, make, forked) -> None:
    """File and folder belong to another user."""
    theirs = outside / "store.db"
    shutil.copy(path, theirs)
    theirs.chmod(0o444)
    answer = outside / "answer"
    answer.touch()
    answer.chmod(0o666)

    def try_it() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            with Store.open(str(theirs), now=now) as store:
                store.claim("r-7f3a", make.owner(), 30)
        except RolloutError as error:
            answer.write_text(f"{type(error).__name__}|{error.message}|{error.hint}")

    outside.chmod(0o555)
    forked(try_it).join(30)
    outside.chmod(0o755)
    kind, message, hint = answer.read_text().split("|")
    assert kind == "StoreError"
    assert str(theirs) in message
    assert "write" in hint


def test_locked_by_a_writer(path, now, make) -> None:
    """Readers go on; a writer is told after its wait."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store.open(f"sqlite:///{path}?timeout=0.1", now=now) as store:
        assert store.verify("r-7f3a") == 51
        with pytest.raises(StoreError, match="is locked by another process") as caught:
            store.say("r-7f3a", "pause", "ann", "look", {})
        other.execute("ROLLBACK")
        assert store.say("r-7f3a", "pause", "ann", "look", {}) == 1
    other.close()
    told(caught.value, path)


def test_locked_altogether(path, now) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="is locked by another process") as caught:
        Store.open(f"sqlite:///{path}?timeout=0.1", now=now)
    other.close()
    told(caught.value, path)


def test_a_full_disk_leaves_the_last_whole_state_and_more_room_lets_it_go_on(path, now, make) -> None:
    with Store.open(str(path), now=now) as store:
        state = make.state(facts={"n": 0})
        fence = store.claim(state.id, make.owner(), 30)
        store._engine.dispose()
        limit = path.stat().st_size // 4096 + 2
        full = lambda connection, _record: connection.execute(f"PRAGMA max_page_count={limit}")  # noqa: E731
        event.listen(store._engine, "connect", full)
        written = 0

        def write() -> StoreError | None:
            try:
                store.append(state.id, fence, [make.event(pad="x" * 3000)] * 2, make.state(facts={"n": written}))
            except StoreError as error:
                return error
            return None

        while (error := write()) is None:
            written += 1
        assert "its disk is full" in error.message
        told(error, path)
        assert store.verify(state.id) == 51 + 2 * written
        assert store.load(state.id).state.facts == ({"n": written - 1} if written else {})
        event.remove(store._engine, "connect", full)
        store._engine.dispose()
        assert write() is None
        assert store.verify(state.id) == 51 + 2 * (written + 1)


@pytest.mark.parametrize(
    "lost", [Path.unlink, lambda p: p.rename(p.with_name("away.db")), "replaced"], ids=["deleted", "moved", "replaced"]
)
def test_a_file_that_goes_away_while_it_is_open_is_missed_before_anything_more_is_written(path, now, make, lost) -> None:
    with Store.open(str(path), now=now) as store:
        state = store.load("r-7f3a").state
        fence = store.claim(state.id, make.owner(), 30, force=True)
        if lost == "replaced":
            shutil.copy(path, path.with_name("copy.db"))
            path.with_name("copy.db").rename(path)
        elif lost == "moved":
            path.rename(path.with_name("away.db"))
        else:
            path.unlink()
        for use in (lambda: store.append(state.id, fence, [make.event("one more")], state), lambda: store.load(state.id), store.list):
            with pytest.raises(StoreDamaged, match="was deleted or moved while it was in use") as caught:
                use()
            told(caught.value, path)
            assert caught.value.exit_code == 13


def test_a_store_by_a_relative_name_stays_the_same_file(path, now, monkeypatch) -> None:
    monkeypatch.chdir(path.parent)
    with Store.open(path.name, now=now) as store:
        monkeypatch.chdir("/")
        assert store.load("r-7f3a").state.id == "r-7f3a"
