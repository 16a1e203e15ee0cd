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
    if "gpustack_kind" in metafunc.fixturenames:
        servers = [pytest.param("sandbox", id="sandbox")]
        if lab_description() is not None:
            servers.append(pytest.param("lab", id="lab", marks=pytest.mark.lab))
        metafunc.parametrize("gpustack_kind", servers)


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


class Sites:
    """Clients and shared deployments per server, made when first needed, kept for the session (test order is random)."""

    def __init__(self, sandbox: dict[str, Any]) -> None:
        self._sandbox = sandbox
        self._sites: dict[str, Site] = {}
        self._pairs: dict[str, tuple[Site, Pair]] = {}

    def site(self, kind: str) -> Site:
        if kind not in self._sites:
            self._sites[kind] = Site(self._described(kind), kind)
        return self._sites[kind]

    def pair(self, kind: str) -> Pair:
        if kind not in self._pairs:
            site = Site(self._described(kind), kind)
            try:
                a = site.deploy(unique("pair-a"), wait=False)
                b = site.deploy(unique("pair-b"), wait=False, worker="spark-02")
                for row in (a, b):
                    site.ready(row["id"])
            except BaseException:
                site.cleanup()
                site.close()
                raise
            self._pairs[kind] = (site, Pair(a, b))
        return self._pairs[kind][1]

    def close(self) -> None:
        for site, _ in self._pairs.values():
            site.cleanup()
        for site in [*self._sites.values(), *(site for site, _ in self._pairs.values())]:
            site.close()

    def _described(self, kind: str) -> dict[str, Any]:
        described = self._sandbox if kind == "sandbox" else lab_description()
        assert described is not None
        return dict(described)


@dataclass(frozen=True)
class Pair:
    """Two ready deployments on two nodes that no test may change."""

    a: Row
    b: Row

    @property
    def names(self) -> tuple[str, str]:
        return self.a["name"], self.b["name"]


@pytest.fixture(scope="session")
def sites(sandbox_description: dict[str, Any]) -> Iterator[Sites]:
    """All servers of this test run."""
    found = Sites(sandbox_description)
    yield found
    found.close()


@pytest.fixture
def gpustack(gpustack_kind: str, sites: Sites) -> Iterator[Site]:
    """A server for one test; what the test made is gone afterwards."""
    site = sites.site(gpustack_kind)
    yield site
    site.cleanup()


@pytest.fixture
def pair(gpustack_kind: str, sites: Sites) -> Pair:
    """Deployments for tests that only need something to route to."""
    return sites.pair(gpustack_kind)
