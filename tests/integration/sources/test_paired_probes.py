"""Paired probes: a slow canary shows, failures show, order and prompts alternate, and a client that was slow says so."""

import asyncio
import statistics
import time

from wire_server import Front

from rollout.clients.sse import TimedClient
from rollout.clock import SystemClock
from rollout.sources.chat import Chat
from rollout.sources.probe import Prober
from rollout.testing.engine import SimEngine
from rollout.testing.knobs import Knobs


def engine(model, **knobs):
    return SimEngine(f"{model}-1", model, Knobs(**{"ttft_base": 0.15, "tpot": 0.002, **knobs}))


def pairs(canary_knobs=None, n=8, seq=0, disturb=None):
    front = Front()
    front.route("stable-probe", (engine("m-a"), 1))
    front.route("canary-probe", (engine("m-b", **(canary_knobs or {})), 1))
    args = {"stable": "stable-probe", "canary": "canary-probe", "n": n, "prompts": ["x", "y", "z"], "max_tokens": 4, "seq": seq}

    async def go():
        async with front, TimedClient(SystemClock()) as client:
            noise = asyncio.create_task(disturb()) if disturb else None
            result = await Prober(Chat(client, front.url, None), SystemClock()).perform("probe_pairs", args)
            if noise:
                noise.cancel()
                await asyncio.gather(noise, return_exceptions=True)
            return result

    return asyncio.run(go()), front


def ratio(result):
    return statistics.median(canary / stable for stable, canary, *_ in result["pairs"])


def test_equal_sides_measure_equal():
    result, _ = pairs()
    assert len(result["pairs"]) == 8
    assert all(ok for *_, a, b in result["pairs"] for ok in (a, b))
    assert 0.7 < ratio(result) < 1.4  # wide: this machine may be busy with other tests


def test_a_canary_that_is_twice_as_slow_shows():
    result, _ = pairs({"ttft_factor": 2.0})
    assert len(result["pairs"]) == 8
    assert ratio(result) > 1.4


def test_both_sides_get_the_same_prompt_and_who_is_first_alternates_over_batches():
    _, front = pairs({"ttft_base": 0.02}, n=3, seq=1)
    sent = [(b["model"].split("-")[0], b["messages"][0]["content"]) for b in front.bodies]
    assert [prompt for _, prompt in sent] == ["y", "y", "z", "z", "x", "x"]
    assert [sent[i][0] for i in (0, 2, 4)] == ["canary", "stable", "canary"]


def test_a_failing_canary_has_no_time_and_is_not_ok():
    result, _ = pairs({"fail_rate": 1.0}, n=3)
    assert [(canary, a, b) for _, canary, a, b in result["pairs"]] == [(None, True, False)] * 3


def test_a_truncated_canary_has_a_time_and_is_not_ok():
    result, _ = pairs({"truncate_rate": 1.0}, n=3)
    assert all(canary is not None and a and not b for _, canary, a, b in result["pairs"])


def test_a_client_that_is_blocked_throws_its_batch_away():
    async def block():
        while True:
            await asyncio.sleep(0.01)
            time.sleep(0.03)  # noqa: ASYNC251 - the fault under test

    result, _ = pairs(n=4, disturb=block)
    assert result["invalid"] is not None
    assert "loop lag" in result["invalid"]
    assert result["lag_p99"] > 0.02
