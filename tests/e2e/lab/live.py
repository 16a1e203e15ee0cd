"""Live traffic from a thread of its own, so that a test can act while users ask; every answer is kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rollout.testing.traffic import Load, Record, Traffic

STREAMS = Load(clients=20, stream_share=1.0, stream_seconds=(5.0, 60.0), token_delay=1.0, think=0.2)
PLAIN = Load(clients=20, stream_share=0.0, think=2.5)
LIGHT = Load(clients=6, stream_share=0.0, think=1.0)
QUICK = Load(clients=8, stream_share=0.0, think=0.02, max_tokens=1)
"""Many short requests, to count who answers."""
SHORT = Load(clients=8, stream_share=1.0, stream_seconds=(3.0, 8.0), token_delay=0.5, think=0.1)
LONG = 20.0


class Live:
    """`with Live(url, key, model, PLAIN, STREAMS) as live:`; leaving lets what runs finish, for at most `tail` seconds."""

    def __init__(self, url: str, key: str, model: str, *loads: Load, tail: float = 120.0) -> None:
        self._traffic = [Traffic(url, key, model, load) for load in loads]
        self._loop, self._tail = asyncio.new_event_loop(), tail
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-traffic", daemon=True)

    def __enter__(self) -> Live:
        self._thread.start()
        for traffic in self._traffic:
            self._do(traffic.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        async def stop_all() -> None:
            await asyncio.gather(*(traffic.stop(self._tail if error is None else 0.0) for traffic in self._traffic))

        self._do(stop_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(self._tail + 30.0)

    @property
    def records(self) -> list[Record]:
        """Every request that has ended, in the order of ending."""
        return sorted((record for traffic in self._traffic for record in list(traffic.records)), key=lambda r: r.t + r.duration)

    def more(self, count: int, seconds: float = 120.0, *, when: Callable[[Record], bool] = lambda _record: True) -> list[Record]:
        """Wait for `count` further requests that match; those."""
        known, deadline = len(self.matching(when)), time.monotonic() + seconds
        while len(now := self.matching(when)) < known + count:
            assert time.monotonic() < deadline, f"{len(now) - known} of {count} requests within {seconds:g} s"
            time.sleep(0.05)
        return now[known:]

    def matching(self, when: Callable[[Record], bool]) -> list[Record]:
        return [record for record in self.records if when(record)]


def lost(records: list[Record]) -> list[Record]:
    """Requests that got no proper answer and were not a stream that had begun."""
    return [r for r in records if not r.ok and not began(r)]


def cut(records: list[Record]) -> list[Record]:
    """Streams that began and did not end properly."""
    return [r for r in records if not r.ok and began(r)]


def began(record: Record) -> bool:
    return record.stream and record.status == 200 and record.ttft is not None


def unmapped(records: list[Record], route: str) -> list[Record]:
    """Requests that reached an engine under the route's own name: a real engine answers 404. Only 2.2's gateway lets that happen."""
    return [r for r in records if r.deployment == route]


def long_streams(records: list[Record]) -> int:
    """Streams that lasted 20 s or more."""
    return sum(r.stream and r.duration >= LONG for r in records)


def answered(records: list[Record]) -> Counter[str]:
    """Requests by the deployment that answered, failed ones included as far as it is known."""
    return Counter(r.deployment for r in records if r.deployment is not None)


def figures(records: list[Record]) -> str:
    """One line for a report."""
    why = Counter(r.why for r in records if r.why).most_common(3)
    line = f"requests={len(records)} streams>={LONG:.0f}s={long_streams(records)} lost={len(lost(records))} cut={len(cut(records))}"
    return f"{line} {dict(answered(records))}" + (f" why={why}" if why else "")
