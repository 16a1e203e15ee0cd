"""Live traffic: clients that ask a route without a pause, some of them in long streams, and count what users would complain about.

A request succeeded when it ended with a known finish_reason AND usage. Everything else is a failed request, or, when a stream
had begun, a cut stream. It only sends and counts; it never decides about a rollout.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

FINISHED = frozenset({"stop", "length", "tool_calls"})


@dataclass(frozen=True)
class Load:
    """Shape of the traffic. Seconds; shares 0..1."""

    clients: int = 30
    stream_share: float = 0.5
    stream_seconds: tuple[float, float] = (5.0, 60.0)
    token_delay: float = 0.2  # between two chunks of a stream
    max_tokens: int = 8  # of a request that is not streamed
    think: float = 0.1  # mean pause of a client between two requests
    timeout: float = 1800.0
    seed: int = 0


@dataclass(frozen=True)
class Record:
    """One request. `t` is seconds since the start; `deployment` is the answer's `model`; `ttft` None when nothing came."""

    t: float
    deployment: str | None
    ok: bool
    status: int
    stream: bool
    ttft: float | None
    duration: float
    why: str = ""


@dataclass
class Answer:
    """What has been seen of one answer so far."""

    status: int = 0
    deployment: str | None = None
    finish: str | None = None
    usage: bool = False
    first_at: float | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200 and self.finish in FINISHED and self.usage and not self.error

    def read(self, body: dict[str, Any]) -> None:
        """Take what counts from a body or a chunk."""
        self.deployment = body.get("model") or self.deployment
        self.usage = self.usage or bool(body.get("usage"))
        for choice in body.get("choices") or []:
            self.finish = choice.get("finish_reason") or self.finish
        if body.get("error"):
            self.error = str(body["error"].get("message") or body["error"])

    def why(self) -> str:
        """The reason it did not succeed, empty when it did."""
        if self.ok:
            return ""
        if self.error or self.status != 200:
            return self.error or f"HTTP {self.status}"
        return f"finish_reason={self.finish} usage={self.usage}"


class Traffic:
    """`async with Traffic(url, key, route) as traffic:`; leaving waits for what is running. `summary()` at any time."""

    def __init__(self, url: str, key: str, model: str, load: Load | None = None) -> None:
        self.url, self.model, self.load = url.rstrip("/"), model, load or Load()
        self._headers = {"Authorization": f"Bearer {key}"}
        self._rng = random.Random(self.load.seed)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._started = 0.0
        self.records: list[Record] = []
        self.running = 0

    async def __aenter__(self) -> Traffic:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the clients."""
        self._started = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=self.load.timeout)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=self._headers)
        self._tasks = [asyncio.ensure_future(self._client()) for _ in range(self.load.clients)]

    async def stop(self, wait: float | None = None) -> None:
        """No new requests; running ones finish, or are given up after `wait` seconds (a stream given up is not counted)."""
        self._stopping.set()
        _, late = await asyncio.wait(self._tasks, timeout=wait) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._session is not None:
            await self._session.close()

    # --- counts

    @property
    def failed_requests(self) -> int:
        """Requests that got no proper answer and were not a stream that had begun."""
        return sum(not record.ok and not _began(record) for record in self.records)

    @property
    def cut_streams(self) -> int:
        """Streams that began and did not end properly."""
        return sum(not record.ok and _began(record) for record in self.records)

    @property
    def by_deployment(self) -> Counter[str]:
        """Successful requests by the deployment that answered."""
        return Counter(record.deployment for record in self.records if record.ok and record.deployment)

    def summary(self) -> dict[str, Any]:
        """Counts for a report."""
        return {
            "requests": len(self.records),
            "ok": sum(record.ok for record in self.records),
            "streams": sum(record.stream for record in self.records),
            "long_streams": sum(record.stream and record.duration >= 20.0 for record in self.records),
            "failed_requests": self.failed_requests,
            "cut_streams": self.cut_streams,
            "by_deployment": dict(self.by_deployment),
            "why": dict(Counter(record.why for record in self.records if record.why).most_common(5)),
        }

    # --- one client

    async def _client(self) -> None:
        await self._pause(self.load.think)
        while not self._stopping.is_set():
            await self._one(self._rng.random() < self.load.stream_share)
            await self._pause(self.load.think)

    async def _pause(self, mean: float) -> None:
        if mean <= 0:
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), self._rng.expovariate(1.0 / mean))
        except TimeoutError:
            return

    async def _one(self, stream: bool) -> None:
        answer, began = Answer(), time.monotonic()
        self.running += 1
        try:
            await self._ask(answer, stream)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            answer.error = answer.error or f"{type(error).__name__}: {error}"
        finally:
            self.running -= 1
        ended = time.monotonic()
        ttft = None if answer.first_at is None else answer.first_at - began
        self.records.append(
            Record(began - self._started, answer.deployment, answer.ok, answer.status, stream, ttft, ended - began, answer.why())
        )

    async def _ask(self, answer: Answer, stream: bool) -> None:
        if self._session is None:
            raise ValueError("traffic was not started")
        url, headers = f"{self.url}/v1/chat/completions", {"x-request-id": uuid.uuid4().hex}
        async with self._session.post(url, headers=headers, json=self._body(stream)) as response:
            answer.status = response.status
            if not stream or response.status != 200:
                answer.read(await response.json(content_type=None))
                answer.first_at = time.monotonic()
                return
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                if answer.first_at is None:
                    answer.first_at = time.monotonic()
                elif b'"usage":{' not in line and b'"error":' not in line and b'"finish_reason":"' not in line:
                    continue  # a token in the middle tells nothing new
                answer.read(json.loads(line[6:]))

    def _body(self, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": f"question {self._rng.randrange(1000)}"}]}
        if not stream:
            return {**body, "max_tokens": self.load.max_tokens}
        tokens = max(2, round(self._rng.uniform(*self.load.stream_seconds) / self.load.token_delay))
        return {**body, "stream": True, "sim": {"tokens": tokens, "delay": self.load.token_delay}}


def _began(record: Record) -> bool:
    return record.stream and record.status == 200 and record.ttft is not None
