"""A clock that moves itself, and an `Http` whose server is a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx

from rollout.clients.http import Http, Limits
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret

T = TypeVar("T")
KEY = "gpustack_cb45aaaa_0123456789abcdef"
Answer = Callable[[httpx.Request], httpx.Response] | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


class JumpClock:
    """Sleeping moves it at once; `slept` keeps the waits in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """One coroutine in a loop of its own."""
    return asyncio.run(work)


def http_to(answer: Answer, *, clock: JumpClock | None = None, limits: Limits | None = None, **retry: Any) -> Http:
    """An `Http` with a key, whose every request goes to `answer`."""
    policy = Retry(clock or JumpClock(), **{"attempts": 1, **retry})
    return Http("http://gpustack.test/base", Secret(KEY), retry=policy, limits=limits or Limits(), transport=httpx.MockTransport(answer))
