"""What `--store` may say, and how the store is named to people."""

from __future__ import annotations

import pytest

from rollout.errors import StoreError
from rollout.store.opening import describe, parse


def test_a_path_is_a_sqlite_file_whatever_signs_it_holds() -> None:
    url = parse("/srv/100%/a?b=c#d.db")
    assert url.get_backend_name() == "sqlite"
    assert describe(url) == "/srv/100%/a?b=c#d.db"


def test_home_is_expanded_and_a_relative_path_is_named_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert describe(parse("~/store.db")) == "/home/ann/store.db"
    assert describe(parse("store.db")).startswith("/")


@pytest.mark.parametrize("kind", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_postgresql_uses_psycopg(kind: str) -> None:
    assert parse(f"{kind}://u@h/d").drivername == "postgresql+psycopg"


def test_a_password_is_never_shown_wherever_it_stands() -> None:
    name = describe(parse("postgresql://ann:hunter2@db.example:5432/rollouts?password=hunter2&sslmode=require"))
    assert name == "postgresql://ann:***@db.example:5432/rollouts"


@pytest.mark.parametrize("url", ["mysql://u@h/d", "oracle://x", "://", "foo bar://x", "postgresql://h:port/d"])
def test_other_urls_are_refused_with_what_is_possible(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse(url)
    assert "postgresql://" in caught.value.hint
    assert caught.value.why
