"""Whoever gets past the triggers is found by the chain: any single edit, on both databases."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout.errors import JournalBroken

COLUMNS = ["at", "kind", "actor", "text", "data", "prev_hash", "hash"]
ROWS = 6
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=27)


@pytest.fixture
def edit(store, make):
    """Runs one statement on a journal of six rows with its triggers off."""
    make.stored(store)
    fence = store.claim("r-7f3a", make.owner(), 30)
    events = [make.event(f"row {n}", receipt={"n": n, "weights": [1, 2.5]}) for n in range(2, ROWS + 1)]
    store.append("r-7f3a", fence, events, make.state())
    off = (
        [f"DROP TRIGGER journal_no_{what}" for what in ("update", "delete", "replace")]
        if store._engine.dialect.name == "sqlite"
        else ["ALTER TABLE journal DISABLE TRIGGER USER"]
    )
    with store._writer.begin() as connection:
        for statement in off:
            connection.exec_driver_sql(statement)

    mark = "?" if store._engine.dialect.name == "sqlite" else "%s"

    def run(statement: str, *values: object) -> int:
        with store._writer.begin() as connection:
            return connection.exec_driver_sql(statement.replace("?", mark), values).rowcount

    return run


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seq=st.integers(1, ROWS), column=st.sampled_from(COLUMNS), new=TEXT)
def test_any_single_edit_is_found(store, edit, seq, column, new) -> None:
    with store._engine.connect() as connection:
        old = connection.exec_driver_sql(f"SELECT {column} FROM journal WHERE seq = {seq}").scalar()
    edit(f"UPDATE journal SET {column} = ? WHERE seq = ?", new, seq)
    try:
        if new == old:
            assert store.verify("r-7f3a") == ROWS
        else:
            with pytest.raises(JournalBroken, match=f"broken at row {seq}\\."):
                store.verify("r-7f3a")
    finally:
        edit(f"UPDATE journal SET {column} = ? WHERE seq = ?", old, seq)
    assert store.verify("r-7f3a") == ROWS


@pytest.mark.parametrize("seq", range(1, ROWS + 1))
def test_a_row_removed_at_any_place_is_named(store, edit, seq) -> None:
    edit("DELETE FROM journal WHERE seq = ?", seq)
    with pytest.raises(JournalBroken, match=f"rollout r-7f3a is broken at row {seq}\\."):
        store.verify("r-7f3a")


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("DELETE FROM journal", 1),
        ("DELETE FROM journal WHERE seq > 3", 4),
        ("UPDATE journal SET seq = 7 WHERE seq = 3", 3),
        ("UPDATE journal SET seq = 0 WHERE seq = 1", 1),
        ('UPDATE journal SET data = \'{"receipt": {"n":4,"weights":[1,2.5]}}\' WHERE seq = 4', 4),
        ("INSERT INTO journal SELECT rollout_id, 7, at, kind, actor, text, data, hash, prev_hash FROM journal WHERE seq = 6", 7),
        ("UPDATE rollouts SET head_seq = 5", 6),
        ("UPDATE rollouts SET head_seq = 8", 7),
        ("UPDATE rollouts SET head_hash = prev_hash FROM journal WHERE seq = 6", 6),
    ],
)
def test_other_changes_are_found_too(store, edit, statement, row) -> None:
    assert edit(statement) > 0
    with pytest.raises(JournalBroken, match=f"broken at row {row}\\."):
        store.verify("r-7f3a")


def test_a_text_turned_into_bytes_is_found(store, edit) -> None:
    """SQLite keeps any type in any column."""
    statement = "UPDATE journal SET text = CAST(text AS BLOB) WHERE seq = 2"
    edit(statement if store._engine.dialect.name == "sqlite" else "UPDATE journal SET text = text || ' ' WHERE seq = 2")
    with pytest.raises(JournalBroken, match="broken at row 2"):
        store.verify("r-7f3a")


def test_a_broken_journal_is_still_readable(store, edit) -> None:
    edit("UPDATE journal SET actor = 'nobody' WHERE seq = 2")
    assert store.journal("r-7f3a")[1].actor == "nobody"
