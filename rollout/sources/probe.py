"""Own requests: probes, warm-up, the share test and paired probes. They measure; they configure nothing and judge nothing.

Results are facts about what was answered, server faults included: nothing here raises because a server fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from rollout.clock import Clock
from rollout.domain.world import answers_of
from rollout.errors import UsageError
from rollout.sources.answers import Answer
from rollout.sources.chat import Chat
from rollout.sources.lag import Heartbeat, client_bound, quantile
from rollout.sources.pairs import ask_pair
from rollout.sources.share import ShareTest

Json = Any
WIDTH = 4
"""own requests in flight at most"""
GIVE_UP = 20
"""failures without a single answer after which a share test stops asking"""
ERRORS = 5
"""error texts kept in a result"""
ONE_TOKEN = "Say hello."
PATIENCE = {"probe": 60.0, "warm_up": 600.0, "verify_share": 15.0, "probe_pairs": 120.0}
"""seconds for one answer: a cold engine compiles for minutes, a share test must not wait for a side that hangs"""


class Prober:
    """The `Measurer` for probe, warm_up, verify_share and probe_pairs."""

    def __init__(self, chat: Chat, clock: Clock) -> None:
        self._chat, self._clock = chat, clock
        self._verbs: dict[str, Callable[[Mapping[str, Json]], Awaitable[dict[str, Json]]]] = {
            "probe": self._probe,
            "warm_up": self._warm_up,
            "verify_share": self._verify_share,
            "probe_pairs": self._probe_pairs,
        }

    def knows(self, verb: str) -> bool:
        return verb in self._verbs

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """Carries out one measurement; the arguments are those of `domain.effects`, the results stand at each method."""
        if verb not in self._verbs:
            raise UsageError(f"No measurement is called `{verb}`.", hint=f"Known: {', '.join(self._verbs)}.")
        return await self._verbs[verb](args)

    async def _probe(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{n, ok, models: {deployment: answers}, errors: [first 5], seconds}. `models` shows who answered, failed answers included."""
        began = self._clock.monotonic()
        async with aclosing(self._one_token("probe", args["model"], args["n"], lambda: True)) as given:
            answers = [answer async for answer in given]
        models: dict[str, int] = {}
        for answer in answers:
            if answer.model is not None:
                models[answer.model] = models.get(answer.model, 0) + 1
        return {
            "n": len(answers),
            "ok": sum(a.ok for a in answers),
            "models": models,
            "errors": [a.text for a in answers if not a.ok][:ERRORS],
            "seconds": self._clock.monotonic() - began,
        }

    async def _warm_up(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{n, ok, seconds}: the prompts in turn, one at a time."""
        began, prompts = self._clock.monotonic(), args["prompts"]
        turns = [prompts[i % len(prompts)] for i in range(args["n"])]
        answers = [await self._chat.ask(args["model"], prompt, args["max_tokens"], timeout=PATIENCE["warm_up"]) for prompt in turns]
        return {"n": len(answers), "ok": sum(a.ok for a in answers), "seconds": self._clock.monotonic() - began}

    async def _verify_share(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{moved, n, hits, failed, llr}: has the share of `deployment` on the route moved from `old` to `new` (0..1)?

        `moved` is None when `limit` requests did not decide; `n` counts answers whose deployment is known, `failed` comes on top.
        `llr` is the natural log of new over old, ±100 when one of them is impossible.
        """
        test, wanted = ShareTest(args["old"], args["new"]), args["deployment"]

        def more() -> bool:
            return test.open and not (test.failed >= GIVE_UP and test.hits + test.misses == 0)

        async with aclosing(self._one_token("verify_share", args["model"], args.get("limit", 200), more)) as given:
            async for answer in given:
                # Who served is known from the first event, also when the answer broke off after it.
                test.add(None if answer.model is None else answers_of({answer.model: 1}, wanted) > 0)
        answered = test.hits + test.misses
        return {"moved": test.moved, "n": answered, "hits": test.hits, "failed": test.failed, "llr": test.llr}

    async def _one_token(self, verb: str, model: str, limit: int, more: Callable[[], bool]) -> AsyncGenerator[Answer, None]:
        """Up to `limit` one-token answers in the order of sending, up to WIDTH in flight, while `more()`; those sent are awaited."""
        flying: deque[asyncio.Task[Answer]] = deque()
        sent = 0
        try:
            while True:
                while sent < limit and len(flying) < WIDTH and more():
                    flying.append(asyncio.create_task(self._chat.ask(model, ONE_TOKEN, 1, timeout=PATIENCE[verb])))
                    sent += 1
                if not flying:
                    return
                answer = await flying[0]
                flying.popleft()
                yield answer
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    async def _probe_pairs(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{pairs: [[stable ttft | None, canary ttft | None, stable ok, canary ok], ...], invalid, lag_p99, delay_p99}. Seconds.

        Both sides get the same prompt at the same scheduled instant, one in flight a side; who is sent first alternates, counted on
        over batches by `seq`. With `invalid` set the client itself was too slow, and the batch must be thrown away.
        """
        prompts, seq = args["prompts"], int(args.get("seq", 0))
        await self._chat.connect(2)
        async with Heartbeat(self._clock) as beat:
            turns = range(seq, seq + args["n"])
            wait = PATIENCE["probe_pairs"]
            pairs = [await ask_pair(self._chat, self._clock, args, prompts[i % len(prompts)], turn=i, timeout=wait) for i in turns]
        delays = [a.delay for pair in pairs for a in pair if a.delay is not None and not a.retried]
        return {
            "pairs": [[stable.ttft, canary.ttft, stable.ok, canary.ok] for stable, canary in pairs],
            "invalid": client_bound(beat.p99, delays, _median(pairs)),
            "lag_p99": beat.p99,
            "delay_p99": quantile(delays, 0.99),
        }


def _median(pairs: Sequence[tuple[Answer, Answer]]) -> float | None:
    return quantile([a.ttft for pair in pairs for a in pair if a.ttft is not None], 0.5)
