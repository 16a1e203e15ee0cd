"""Trying again: only what is safe to repeat, only after errors that pass, bounded in attempts and in time.

Waits through the injected clock, so tests never wait. A write that is not idempotent must not come here: after an
ambiguous answer its caller looks at the world first.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from rollout.clients.errors import HttpUnreachable
from rollout.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True)
class Retry:
    """Attempts and seconds are both upper bounds; the earlier one ends it and the last error is raised.

    `waiting=False` repeats at once. The wait doubles from `base` to `cap` with full jitter, or is what the server asked for
    in `Retry-After`; a wait that would end after `seconds` is not begun.
    """

    clock: Clock
    attempts: int = 4
    seconds: float = 20.0
    base: float = 0.2
    cap: float = 4.0
    waiting: bool = True
    rng: random.Random = field(default_factory=random.Random, repr=False)

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The first answer of `call`; raises its last error."""
        began = self.clock.monotonic()

        def stop(state: RetryCallState) -> bool:
            spent = self.clock.monotonic() - began + state.upcoming_sleep
            return state.attempt_number >= self.attempts or spent > self.seconds

        retrying = AsyncRetrying(
            sleep=self.clock.sleep, stop=stop, wait=self._wait, retry=retry_if_exception_type(HttpUnreachable), reraise=True
        )

        async def attempt() -> T:
            return await call()

        return await retrying(attempt)

    def _wait(self, state: RetryCallState) -> float:
        if not self.waiting:
            return 0.0
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, HttpUnreachable) and error.retry_after is not None:
            return error.retry_after
        return self.rng.uniform(self.base / 2, min(self.cap, self.base * 2 ** (state.attempt_number - 1)))
