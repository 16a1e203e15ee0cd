"""A simulated engine in process: answers, load, sickness, and counters that stay right however a request ends."""

import asyncio
import json
from typing import Any

import pytest

from rollout.testing.engine import EngineStartFailed, EngineStopped, Knobs, SimEngine

FAST = {"ttft_base": 0.0, "tpot": 0.0}
CHAT = "/v1/chat/completions"


def engine(**knobs: Any) -> SimEngine:
    return SimEngine("m-a-x1", "m-a", Knobs().updated({**FAST, **knobs}))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m-a", "messages": [{"role": "user", "content": "hello"}], **fields}


async def read(from_engine: SimEngine, **fields: Any) -> list[Any]:
    """The chunks of a stream, `[DONE]` as a string."""
    reply = await from_engine.serve(CHAT, body(stream=True, **fields))
    assert reply.stream is not None
    text = b"".join([piece async for piece in reply.stream]).decode()
    events = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def counters(sim: SimEngine) -> tuple[int, int, int, int, int, int]:
    return sim.inflight, sim.total, sim.served, sim.errors, sim.cut, sim.aborted


def test_a_plain_answer_has_text_reason_and_usage() -> None:
    sim = engine()
    reply = asyncio.run(sim.serve(CHAT, body()))
    assert reply.body["model"] == "m-a"
    assert reply.body["system_fingerprint"] == "m-a-x1"
    assert reply.body["choices"][0]["finish_reason"] == "stop"
    assert len(reply.body["choices"][0]["message"]["content"].split()) == 8
    assert reply.body["usage"]["completion_tokens"] == 8
    assert counters(sim) == (0, 1, 1, 0, 0, 0)


def test_max_tokens_limits_and_says_length() -> None:
    reply = asyncio.run(engine().serve(CHAT, body(max_tokens=3, sim={"tokens": 10})))
    assert reply.body["usage"]["completion_tokens"] == 3
    assert reply.body["choices"][0]["finish_reason"] == "length"


def test_a_stream_says_the_same_as_a_plain_answer() -> None:
    sim = engine()
    chunks = asyncio.run(read(sim))
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert text == asyncio.run(sim.serve(CHAT, body())).body["choices"][0]["message"]["content"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2]["usage"]["completion_tokens"] == 8


def test_a_truncated_stream_just_ends() -> None:
    chunks = asyncio.run(read(engine(truncate_rate=1.0)))
    assert all(chunk != "[DONE]" and chunk["choices"][0]["finish_reason"] is None and "usage" not in chunk for chunk in chunks)


def test_an_aborted_stream_looks_finished_and_says_abort() -> None:
    sim = engine(abort_rate=1.0)
    chunks = asyncio.run(read(sim))
    assert chunks[-2]["choices"][0]["finish_reason"] == "abort"
    assert sim.stats.finished["abort"] == 1


def test_failures_are_500_or_what_the_request_asks() -> None:
    sim = engine(fail_rate=1.0)
    assert asyncio.run(sim.serve(CHAT, body())).status == 500
    assert asyncio.run(engine().serve(CHAT, body(sim={"fail": 429}))).status == 429
    assert counters(sim) == (0, 1, 0, 1, 0, 0)


def test_empty_answers_finish_properly() -> None:
    reply = asyncio.run(engine(empty_answers=True).serve(CHAT, body()))
    assert reply.body["choices"][0]["message"]["content"] == ""
    assert reply.body["choices"][0]["finish_reason"] == "stop"


def test_other_endpoints() -> None:
    sim = engine()
    assert asyncio.run(sim.serve("/v1/completions", {"prompt": "x"})).body["choices"][0]["text"]
    assert len(asyncio.run(sim.serve("/v1/embeddings", {"input": ["a", "b"]})).body["data"]) == 2
    assert asyncio.run(sim.serve("/v1/models", {})).body["data"][0]["id"] == "m-a"
    assert asyncio.run(sim.serve("/v1/other", {})).status == 404


def test_a_hard_stop_cuts_what_runs_and_what_waits() -> None:
    async def main() -> SimEngine:
        sim = engine(slots=1)
        tasks = [asyncio.ensure_future(read(sim, sim={"tokens": 5, "delay": 60})) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert (sim.running, sim.waiting) == (1, 2)
        sim.stop(hard=True)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, EngineStopped) for result in results)
        with pytest.raises(EngineStopped):
            await sim.serve(CHAT, body())
        return sim

    assert counters(asyncio.run(main())) == (0, 3, 0, 0, 3, 0)


def test_a_soft_stop_takes_nothing_new_and_lets_the_rest_finish() -> None:
    async def main() -> SimEngine:
        sim = engine()
        task = asyncio.ensure_future(read(sim, sim={"tokens": 3, "delay": 0.01}))
        await asyncio.sleep(0.005)
        sim.stop(hard=False)
        with pytest.raises(EngineStopped):
            await sim.serve(CHAT, body())
        await sim.drained()
        assert (await task)[-1] == "[DONE]"
        return sim

    assert counters(asyncio.run(main())) == (0, 1, 1, 0, 0, 0)


def test_a_client_that_leaves_counts_as_aborted() -> None:
    async def main() -> SimEngine:
        sim = engine()
        reply = await sim.serve(CHAT, body(stream=True, sim={"tokens": 5, "delay": 60}))
        assert reply.stream is not None
        await anext(reply.stream)
        assert sim.inflight == 1
        await reply.stream.aclose()
        return sim

    sim = asyncio.run(main())
    assert counters(sim) == (0, 1, 0, 0, 0, 1)
    assert sim.stats.finished["abort"] == 1


def test_the_crash_comes_with_the_nth_request_and_is_reported() -> None:
    async def main() -> list[str]:
        told: list[str] = []

        async def tell(dead: SimEngine) -> None:
            told.append(dead.name)

        sim = SimEngine("m-a-x1", "m-a", Knobs().updated({**FAST, "crash_after_requests": 2}), on_crash=tell)
        assert (await sim.serve(CHAT, body())).status == 200
        with pytest.raises(EngineStopped):
            await sim.serve(CHAT, body())
        await asyncio.sleep(0)
        return told

    assert asyncio.run(main()) == ["m-a-x1"]


def test_booting_takes_time_and_may_fail() -> None:
    async def main() -> None:
        sim = engine(start_delay=0.01)
        boot = asyncio.ensure_future(sim.boot())
        await asyncio.sleep(0)
        assert (await sim.serve(CHAT, body())).status == 503
        await boot
        assert (await sim.serve(CHAT, body())).status == 200
        with pytest.raises(EngineStartFailed):
            await engine(fail_start=True).boot()

    asyncio.run(main())


@pytest.mark.parametrize(("knobs", "running", "expected"), [({}, 1, 0.1), ({"load_factor": 0.5}, 3, 0.2), ({"ttft_factor": 2.0}, 1, 0.2)])
def test_the_first_token_takes_longer_under_load_and_when_slow(knobs: dict[str, Any], running: int, expected: float) -> None:
    async def main() -> float:
        sim = engine(ttft_base=0.1, **knobs)
        for _ in range(running):
            await sim._slots.enter()
        return sim._first_token_time(1)

    assert asyncio.run(main()) == pytest.approx(expected)


def test_a_prompt_costs_prefill_time() -> None:
    assert engine(prefill_per_token=0.001)._first_token_time(200) == pytest.approx(0.2)


def test_memory_is_weights_kv_and_leak() -> None:
    async def main() -> None:
        sim = engine(weights_bytes=1000, bytes_per_token=10, leak_bytes_per_request=7)
        assert sim.memory_bytes() == 1000
        reply = await sim.serve(CHAT, body(stream=True, sim={"tokens": 4, "delay": 60}))
        assert reply.stream is not None
        await anext(reply.stream)
        held = sim.memory_bytes()
        assert held > 1007 + 4 * 10
        await reply.stream.aclose()
        assert sim.memory_bytes() == 1007

    asyncio.run(main())


def test_a_truncated_answer_is_a_finished_request_to_the_engine() -> None:
    """What breaks off lies behind the engine: it counts as finished, so only who reads answers to their end can tell."""
    sim = engine(truncate_rate=1.0)
    asyncio.run(read(sim))
    assert (sim.stats.finished["stop"], sim.stats.finished["error"], sim.stats.finished["abort"]) == (1, 0, 0)


def test_a_tail_makes_some_requests_slow_and_a_seed_decides_which() -> None:
    def times(seed: int) -> list[float]:
        sim = engine(tail_share=0.2, tail_factor=6.0, ttft_base=0.01, seed=seed)
        return [sim._first_token_time(4) for _ in range(500)]

    assert times(1) == times(1) != times(2)
    assert 60 <= sum(t > 0.05 for t in times(1)) <= 140
    assert set(times(1)) == {0.01, 0.06}


def test_an_engine_may_expose_no_known_metric() -> None:
    assert "vllm:" in engine().metrics_text()
    assert "vllm:" not in engine(bare_metrics=True).metrics_text()
