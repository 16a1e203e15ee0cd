"""The same prompt to stable and canary at one scheduled instant, through their private routes. Sends; measures and compares nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rollout.clock import Clock
from rollout.sources.answers import Answer
from rollout.sources.chat import Chat, Prompt

Json = Any


async def ask_pair(
    chat: Chat, clock: Clock, args: Mapping[str, Json], prompt: Prompt, *, turn: int, timeout: float
) -> tuple[Answer, Answer]:
    """(stable's answer, the canary's). `args`: {stable, canary, max_tokens}; who is sent first alternates with `turn`."""
    models = [args["stable"], args["canary"]]
    canary_first = turn % 2 == 1
    if canary_first:
        models.reverse()
    due = clock.monotonic()
    first, second = await asyncio.gather(*(chat.ask(m, prompt, args["max_tokens"], timeout=timeout, scheduled=due) for m in models))
    return (second, first) if canary_first else (first, second)
