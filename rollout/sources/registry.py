"""The sources that are known, and how they are put together for one inference URL. A new one is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clients.sse import TimedClient
from rollout.clock import Clock
from rollout.domain.ports import Measurer
from rollout.errors import UsageError
from rollout.sources.chat import Chat
from rollout.sources.engine_metrics import EngineMetrics
from rollout.sources.load import Memory, Stager
from rollout.sources.probe import Prober
from rollout.sources.reach import Reach
from rollout.sources.replay import Replayer

Json = Any


class Sources:
    """`engine` reads engine samples; as a `Measurer` this sends own requests. Use as an async context manager, or call `aclose`."""

    def __init__(self, inference_url: str, key: Secret | None, clock: Clock, memory: Memory) -> None:
        """`memory`: worker name -> bytes available or None. Probes and pages do not share connections."""
        self._clients = [TimedClient(clock), TimedClient(clock)]
        chat = Chat(self._clients[0], inference_url, key)
        self.engine = EngineMetrics(self._clients[1], clock)
        reach = Reach(lambda: Http(inference_url, key, retry=Retry(clock)))
        self._measurers: tuple[Measurer, ...] = (Prober(chat, clock), Replayer(chat, clock), Stager(chat, clock, memory), reach)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        for client in self._clients:
            await client.aclose()

    def knows(self, verb: str) -> bool:
        return any(measurer.knows(verb) for measurer in self._measurers)

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """Carries out one measurement of `domain.effects.MEASURES`. Raises UsageError for another verb."""
        for measurer in self._measurers:
            if measurer.knows(verb):
                return await measurer.perform(verb, args)
        raise UsageError(f"No measurement is called `{verb}`.")
