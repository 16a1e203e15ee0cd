"""The contract tests' servers: the sandbox always, the real GPUStack of the lab when `ROLLOUT_LAB` names it.

What differs by version or by gateway mode is its own test, marked `only(since=, before=, gateway=)`: for other servers it is not there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rollout.testing.sandbox import Sandbox
from tests.conftest import SANDBOXES, lab_description
from tests.contract.site import Row, Site, unique

SCALE = 0.5


OLDER_TOO = ("route", "backend")
"""files whose tests run on the older sandbox as well: there the versions differ"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gpustack_kind" in metafunc.fixturenames:
        older = any(word in metafunc.module.__name__ for word in OLDER_TOO)
        servers = [pytest.param(kind, id=kind) for kind in SANDBOXES if kind == "sandbox" or older]
        if lab_description() is not None:
            servers.append(pytest.param("lab", id="lab", marks=pytest.mark.lab))
        metafunc.parametrize("gpustack_kind", servers)


@pytest.fixture(scope="session")
def sandbox_descriptions() -> Iterator[dict[str, dict[str, Any]]]:
    """A sandbox of each version in a thread of its own, for the whole session, once it is asked for."""
    with ExitStack() as stack:
        yield Lazily(lambda kind: stack.enter_context(running_sandbox(SANDBOXES[kind])))


class Lazily(dict[str, dict[str, Any]]):
    """A dictionary that makes what is not there."""

    def __init__(self, make: Callable[[str], dict[str, Any]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: str) -> dict[str, Any]:
        self[key] = self._make(key)
        return self[key]


@contextmanager
def running_sandbox(version: str) -> Iterator[dict[str, Any]]:
    """One sandbox, described."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    box = Sandbox(scale=SCALE, engine={"slots": 64, "ttft_base": 0.02}, version=version)
    asyncio.run_coroutine_threadsafe(box.start(), loop).result(10)
    yield box.describe()
    asyncio.run_coroutine_threadsafe(box.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


class Sites:
    """Clients and shared deployments per server, made when first needed, kept for the session (test order is random)."""

    def __init__(self, sandboxes: dict[str, dict[str, Any]]) -> None:
        self._sandboxes = sandboxes
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
        described = lab_description() if kind == "lab" else self._sandboxes[kind]
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
def sites(sandbox_descriptions: dict[str, dict[str, Any]]) -> Iterator[Sites]:
    """All servers of this test run."""
    found = Sites(sandbox_descriptions)
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
