"""Who runs and who waits inside a simulated engine, and sleeps that a kill ends at once. Knows no request and no HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class EngineStopped(Exception):
    """The engine process is gone; a request in it is cut, a new one finds nobody."""


class Slots:
    """`limit()` requests run at once, the rest queue in order. `peak` is (running, waiting) as a stuck gauge shows it."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self.limit = limit
        self.running = 0
        self.peak = (0, 0)
        self._killed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._sleeps: set[asyncio.Future[None]] = set()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def enter(self) -> None:
        """Take a slot, in order of arrival. Raises EngineStopped when killed while waiting."""
        if self.running < self.limit() and not self._queue:
            self.running += 1
        else:
            await self._wait_turn()
        self._note_peak()
        self._idle.clear()

    async def _wait_turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._note_peak()
        try:
            await turn  # whoever leaves hands its slot over
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()  # the slot was handed over in the moment of the cancellation
            raise
        finally:
            if turn in self._queue:
                self._queue.remove(turn)

    def leave(self) -> None:
        """Give the slot to the next in the queue, or back."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1
        if self.running == 0:
            self._idle.set()

    async def drained(self) -> None:
        """Return when nothing runs any more."""
        await self._idle.wait()

    async def pause(self, seconds: float) -> None:
        """Sleep; a kill ends it with EngineStopped."""
        if self._killed:
            raise EngineStopped
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        sleep: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _release, sleep)
        self._sleeps.add(sleep)
        try:
            await sleep
        finally:
            timer.cancel()
            self._sleeps.discard(sleep)

    def kill(self) -> None:
        """Everything inside ends now with EngineStopped."""
        self._killed = True
        for wait in [*self._sleeps, *self._queue]:
            if not wait.done():
                wait.set_exception(EngineStopped())

    def _note_peak(self) -> None:
        self.peak = (max(self.peak[0], self.running), max(self.peak[1], self.waiting))


def _release(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)
