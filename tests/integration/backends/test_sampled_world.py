"""A world with engine counters: the backend leads the metrics source to every kind of engine."""

from __future__ import annotations

import asyncio

import httpx

from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.sources.engine_metrics import EngineMetrics
from tests.integration.backends.place import CANARY, ROUTE, STABLE, Place, place


def test_engines_behind_a_worker_and_engines_of_their_own_are_both_read() -> None:
    async def work() -> None:
        async with TimedClient(SystemClock()) as client, place({STABLE: 100}, samples=EngineMetrics(client, SystemClock())) as here:
            await here.box.deploy("m-custom", backend="Custom", worker="staging")
            await ask(here, 3)
            await here.box.until(lambda: sum(engine.served for engine in here.box.engines(STABLE)) == 3, "three answers counted")
            world = await here.observe("m-custom", sample=(STABLE, CANARY, "m-custom", "m-gone"))
            assert set(world.samples) == {STABLE, CANARY, "m-custom"}
            assert {name: sample.status for name, sample in world.samples.items()} == dict.fromkeys(world.samples, "OK")
            assert [row.requests for row in world.samples[STABLE].instances.values()] == [3]
            assert [row.requests for row in world.samples["m-custom"].instances.values()] == [0]

    asyncio.run(work())


async def ask(here: Place, count: int) -> None:
    """Some requests to the route."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {here.box.inference_key}"}, trust_env=False) as client:
        for _ in range(count):
            body = {"model": ROUTE, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
            (await client.post(f"{here.box.url}/v1/chat/completions", json=body)).raise_for_status()
