"""Hours of hardly any traffic in minutes: time is real, but what the engine sleeps is skipped, and the requests due in it are sent.

A virtual instant is the real one plus what was skipped. Only waits are skipped, never work: a request, a probe or a write takes the time
that it takes. The steady time of a rollout's anchor is this clock's too, under a boot of its own, so that nobody compares the skipped
hours with the server's clock; what the server itself dates (a worker's heartbeat) is compared before the first wait only.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import httpx

from tests.contract.site import Site

SHORT = 2.0
"""seconds; a shorter sleep is a short pause between two looks, and is slept"""


class Skipping:
    """A `Clock`. `arrive` is awaited for each user's request: as many an hour as `rate` says, at times drawn from `seed` (Poisson)."""

    def __init__(self, rate: float, seed: int, arrive: Callable[[], Awaitable[None]]) -> None:
        self._began, self._zero, self._skipped = datetime.now(UTC), time.monotonic(), 0.0
        self._rng, self._mean, self._arrive = random.Random(seed), 3600.0 / rate, arrive
        self._next = self._rng.expovariate(1.0 / self._mean)
        self.requests = 0

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Virtual seconds since this clock was made."""
        return time.monotonic() - self._zero + self._skipped

    def boot(self) -> str:
        """A boot that no other process has."""
        return f"skipping-{id(self)}"

    async def sleep(self, seconds: float) -> None:
        """Sleep, or skip; either way the requests that are due until then were sent before it returns."""
        until = self.monotonic() + seconds
        if seconds <= SHORT:
            await asyncio.sleep(seconds)
        while self._next <= until:
            self._to(self._next)
            self._next += self._rng.expovariate(1.0 / self._mean)
            self.requests += 1
            await self._arrive()
        if seconds > SHORT:
            self._to(until)

    def _to(self, instant: float) -> None:
        """Nothing that is over comes back."""
        self._skipped += max(0.0, instant - self.monotonic())


class User:
    """One who asks a route now and then, as `Skipping` says. Keeps how many were answered properly, and by whom."""

    def __init__(self, site: Site, route: str) -> None:
        self._url, self._key, self._route = site.described["inference_url"], site.described["inference_key"], route
        self.answered: dict[str, int] = {}
        self.failed = 0

    async def ask(self) -> None:
        body = {"model": self._route, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.post(f"{self._url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {self._key}"})
        if answer.status_code != 200:
            self.failed += 1
            return
        model = str(answer.json()["model"])
        self.answered[model] = self.answered.get(model, 0) + 1
