"""Options stand above the environment, the environment above the defaults."""

from __future__ import annotations

import pytest

from rollout.settings import Settings, place

HOME = {"HOME": "/home/ana", "USER": "ana"}


def test_the_default_store_and_log_are_in_the_state_folder() -> None:
    settings = Settings.read(env=HOME)
    assert settings.store == "/home/ana/.local/state/rollout/rollout.db"
    assert str(settings.log) == "/home/ana/.local/state/rollout/rollout.log"
    assert not settings.store_named
    assert Settings.read(env={**HOME, "XDG_STATE_HOME": "/state"}).store == "/state/rollout/rollout.db"


def test_the_option_wins_over_the_environment() -> None:
    env = {**HOME, "ROLLOUT_STORE": "/a.db", "ROLLOUT_ACTOR": "bot"}
    assert Settings.read(env=env).store == "/a.db"
    assert Settings.read(store="/b.db", env=env).store == "/b.db"
    assert Settings.read(env=env).actor == "bot"
    assert Settings.read(actor="eve", env=env).actor == "eve"


@pytest.mark.parametrize("url", ["postgresql://u@h/db", "postgresql+psycopg://h/db", "sqlite:///x.db", "sqlite:/x.db"])
def test_a_url_is_left_alone(url: str) -> None:
    assert place(url) == url


@pytest.mark.parametrize("path", ["runs/a.db", "./a:b.db", "/x/a.db"])
def test_a_path_becomes_absolute(path: str) -> None:
    assert place(path).startswith("/")


def test_under_ci_the_actor_is_who_pushed() -> None:
    settings = Settings.read(env={**HOME, "CI": "true", "GITHUB_ACTOR": "octo"})
    assert settings.actor == "github:octo"
    assert settings.ci
    assert Settings.read(env={**HOME, "GITLAB_USER_LOGIN": "max"}).actor == "gitlab:max"


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_a_switch_that_says_no_is_off(value: str) -> None:
    assert not Settings.read(env={**HOME, "CI": value, "ROLLOUT_DEBUG": value}).debug


def test_without_a_variable_the_actor_is_the_process_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.settings._login", lambda: "cron")
    assert Settings.read(env={"HOME": "/h"}).actor == "cron"
    assert Settings.read(env={"HOME": "/h", "LOGNAME": "ana"}).actor == "ana"
