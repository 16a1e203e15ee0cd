"""The contract tests' servers: the sandbox always, the real GPUStack of the lab when `ROLLOUT_LAB` names it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rollout.testing.sandbox import Sandbox
from tests.conftest import lab_description
from tests.contract.site import Row, Site, unique

SCALE = 0.5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        servers = [pytest.param("sandbox", id="sandbox")]
        if lab_description() is not None:
            servers.append(pytest.param("lab", id="lab", marks=pytest.mark.lab))
        metafunc.parametrize("server", servers, scope="session", indirect=True)


@pytest.fixture(scope="session")
def sandbox_description() -> Iterator[dict[str, Any]]:
    """A sandbox in a thread of its own, for the whole session."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    box = Sandbox(scale=SCALE, engine={"slots": 64, "ttft_base": 0.02})
    asyncio.run_coroutine_threadsafe(box.start(), loop).result(10)
    yield box.describe()
    asyncio.run_coroutine_threadsafe(box.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Kind and description of the server under test."""
    if request.param == "sandbox":
        return "sandbox", request.getfixturevalue("sandbox_description")
    described = lab_description()
    assert described is not None
    return "lab", described


@pytest.fixture
def gpustack(server: tuple[str, dict[str, Any]]) -> Iterator[Site]:
    """A site for one test; what the test made is gone afterwards."""
    kind, described = server
    site = Site(described, kind)
    try:
        yield site
        site.cleanup()
    finally:
        site.close()


@dataclass(frozen=True)
class Pair:
    """Two ready deployments on two nodes that no test may change."""

    a: Row
    b: Row

    @property
    def names(self) -> tuple[str, str]:
        return self.a["name"], self.b["name"]


@pytest.fixture(scope="session")
def pair(server: tuple[str, dict[str, Any]]) -> Iterator[Pair]:
    """Deployments for tests that only need something to route to."""
    kind, described = server
    site = Site(described, kind)
    try:
        a = site.deploy(unique("pair-a"), wait=False)
        b = site.deploy(unique("pair-b"), wait=False, worker="spark-02")
        for row in (a, b):
            site.ready(row["id"])
        yield Pair(a, b)
        site.cleanup()
    finally:
        site.close()
