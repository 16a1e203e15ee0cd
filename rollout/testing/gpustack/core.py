"""What every part of the fake server shares: rows, nodes, timing, the route cache, and its background tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from rollout.testing.gpustack.flavour import DEFAULT, FLAVOURS, Flavour
from rollout.testing.gpustack.routing import RouteCache
from rollout.testing.gpustack.timing import Timing
from rollout.testing.gpustack.world import World
from rollout.testing.node import SimNode


class Core:
    """State plus a way to do things later that ends when the server ends."""

    def __init__(self, timing: Timing, seed: int = 0, flavour: Flavour = FLAVOURS[DEFAULT]) -> None:
        self.timing, self.flavour = timing, flavour
        self.rng = random.Random(seed)
        self.world = World()
        self.nodes: dict[int, SimNode] = {}  # by worker id
        self.cache = RouteCache(self.world, timing, self.rng)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self.failures: list[BaseException] = []  # background errors; a test asserts that it is empty

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run in the background until done or the server closes."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(task.exception() or RuntimeError("unknown"))

    def later(self, seconds: float, act: Callable[..., Any], *args: Any) -> None:
        """Call `act` after real (already scaled) seconds, unless the server closes before."""

        def fire() -> None:
            self._timers.discard(handle)
            act(*args)

        handle = asyncio.get_running_loop().call_later(seconds, fire)
        self._timers.add(handle)

    async def close(self) -> None:
        """Stop every timer and task."""
        for handle in self._timers:
            handle.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
