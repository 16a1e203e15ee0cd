"""Staging load: one cell of the prompt-length x concurrency matrix, closed loop, with the worker's memory beside it.

Each slot sends its next request when the last one has ended, and times it from then. It measures one deployment through its
private route; it must never be pointed at a production route, and it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from rollout.clock import Clock
from rollout.errors import ServerError, UsageError
from rollout.sources.answers import Answer
from rollout.sources.chat import Chat
from rollout.sources.lag import Heartbeat, client_bound, quantile
from rollout.sources.prompts import prompt_of

Json = Any
Memory = Callable[[str], Awaitable[int | None]]
"""worker name -> bytes available, None when unknown"""
PATIENCE = 1800.0
"""seconds for one answer: what the server's own proxy allows"""
EVERY = 1.0
"""seconds between two memory samples"""


class Stager:
    """The `Measurer` for stage_cell."""

    def __init__(self, chat: Chat, clock: Clock, memory: Memory) -> None:
        self._chat, self._clock, self._memory = chat, clock, memory

    def knows(self, verb: str) -> bool:
        return verb == "stage_cell"

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """One cell: {model, worker, prompt_tokens, concurrency, requests, output_tokens} ->

        {prompt_tokens, concurrency, n, ok, errors, ttft_p50, ttft_p95, tpot_p50, tokens_per_second, seconds, memory_before,
        memory_peak, memory_after, client_bound, error_texts}. Seconds and bytes *available*: `memory_peak` is the least seen while it
        ran, None = unknown. `errors` counts requests that are not ok; percentiles are over the ok ones, None when there is none.
        """
        if not self.knows(verb):
            raise UsageError(f"No measurement is called `{verb}`.", hint="Known: stage_cell.")
        worker = args["worker"]
        before = await self._available(worker)
        await self._chat.connect(args["concurrency"])
        watch = asyncio.create_task(self._watch(worker, lowest := list[int]()))
        began = self._clock.monotonic()
        try:
            async with Heartbeat(self._clock) as beat:
                answers = await self._run(args)
            seconds = self._clock.monotonic() - began
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        after = await self._available(worker)
        least = min([*lowest, *(m for m in (before, after) if m is not None)], default=None)
        return {
            "prompt_tokens": args["prompt_tokens"],
            "concurrency": args["concurrency"],
            **_figures(answers, seconds, beat),
            "memory_before": before,
            "memory_peak": least,
            "memory_after": after,
        }

    async def _run(self, args: Mapping[str, Json]) -> list[Answer]:
        answers: list[Answer] = []
        numbers = iter(range(args["requests"]))
        slots = [self._slot(args, numbers, answers) for _ in range(min(args["concurrency"], args["requests"]))]
        await asyncio.gather(*slots)
        return answers

    async def _slot(self, args: Mapping[str, Json], numbers: Iterator[int], answers: list[Answer]) -> None:
        size, cell = args["prompt_tokens"], f"{args['prompt_tokens']}x{args['concurrency']}"
        free = self._clock.monotonic()
        for number in numbers:
            prompt = prompt_of(size, f"{cell}:{number}")
            answers.append(await self._chat.ask(args["model"], prompt, args["output_tokens"], timeout=PATIENCE, scheduled=free))
            free = self._clock.monotonic()

    async def _watch(self, worker: str, seen: list[int]) -> None:
        while True:
            available = await self._available(worker)
            if available is not None:
                seen.append(available)
            await self._clock.sleep(EVERY)

    async def _available(self, worker: str) -> int | None:
        try:
            return await self._memory(worker)
        except ServerError:
            return None  # unknown: the server that knows did not answer, which is no reason to lose the cell


def _figures(answers: list[Answer], seconds: float, beat: Heartbeat) -> dict[str, Json]:
    good = [a for a in answers if a.ok]
    ttfts = [a.ttft for a in good if a.ttft is not None]
    delays = [a.delay for a in answers if a.delay is not None and not a.retried]
    return {
        "n": len(answers),
        "ok": len(good),
        "errors": len(answers) - len(good),
        "error_texts": [a.text for a in answers if not a.ok][:5],
        "ttft_p50": quantile(ttfts, 0.5),
        "ttft_p95": quantile(ttfts, 0.95),
        "tpot_p50": quantile([a.tpot for a in good if a.tpot is not None], 0.5),
        "tokens_per_second": sum(a.tokens or 0 for a in good) / seconds if seconds > 0 and good else None,
        "seconds": seconds,
        "client_bound": client_bound(beat.p99, delays, quantile(ttfts, 0.5), beat.busy),
        "lag_p99": beat.p99,
    }
