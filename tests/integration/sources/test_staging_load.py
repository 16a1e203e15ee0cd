"""One staging cell: closed loop at its concurrency, figures over the ok answers, memory beside it."""

import asyncio

import pytest
from wire_server import Front

from rollout.clock import SystemClock
from rollout.errors import Unreachable
from rollout.sources.registry import Sources
from rollout.testing.engine import SimEngine
from rollout.testing.knobs import Knobs

GIB = 1 << 30


def cell(knobs=None, memory=None, **args):
    """The result of a cell on one engine, and the front that saw it."""
    engine = SimEngine("m-b-1", "m-b", Knobs(**{"ttft_base": 0.05, "tpot": 0.005, **(knobs or {})}))
    front = Front()
    front.route("stage-probe", (engine, 1))

    async def unknown(_worker):
        return None

    async def go():
        async with front, Sources(front.url, None, SystemClock(), memory or unknown) as sources:
            full = {
                "model": "stage-probe",
                "worker": "spark-02",
                "prompt_tokens": 64,
                "concurrency": 3,
                "requests": 9,
                "output_tokens": 5,
                **args,
            }
            return await sources.perform("stage_cell", full)

    return asyncio.run(go()), front


def test_a_cell_measures_what_the_engine_does():
    result, front = cell()
    assert (result["prompt_tokens"], result["concurrency"], result["n"], result["ok"], result["errors"]) == (64, 3, 9, 9, 0)
    assert result["ttft_p50"] == pytest.approx(0.05, abs=0.03)
    assert result["ttft_p95"] >= result["ttft_p50"]
    assert result["tpot_p50"] == pytest.approx(0.005, abs=0.003)
    assert result["tokens_per_second"] == pytest.approx(9 * 5 / result["seconds"])
    assert {b["max_tokens"] for b in front.bodies} == {5}


def test_prompts_are_as_long_as_asked_and_the_same_next_time():
    first, second = cell()[1], cell()[1]
    prompts = [sorted(b["messages"][0]["content"] for b in front.bodies) for front in (first, second)]
    assert prompts[0] == prompts[1]
    assert len(set(prompts[0])) == 9
    assert {len(p.split()) for p in prompts[0]} == {64}


def test_queueing_beyond_the_engines_slots_is_in_the_time():
    alone, _ = cell({"slots": 1}, concurrency=1, requests=3)
    crowded, _ = cell({"slots": 1}, concurrency=4, requests=8)
    assert crowded["ttft_p50"] > 2.5 * alone["ttft_p50"]


def test_failures_are_counted_and_are_not_in_the_percentiles():
    result, _ = cell({"fail_rate": 1.0})
    assert (result["ok"], result["errors"], result["ttft_p50"], result["tokens_per_second"]) == (0, 9, None, None)
    assert "http_error" in result["error_texts"][0]
    cut, _ = cell({"truncate_rate": 1.0})
    assert cut["errors"] == 9


def test_memory_is_the_least_that_stayed_available():
    left = iter([100 * GIB, 90 * GIB, 40 * GIB, 95 * GIB])

    async def memory(worker):
        assert worker == "spark-02"
        return next(left, 95 * GIB)

    result, _ = cell({"ttft_base": 1.2}, memory, concurrency=3, requests=3)
    assert (result["memory_before"], result["memory_peak"], result["memory_after"]) == (100 * GIB, 40 * GIB, 95 * GIB)


def test_unknown_memory_stays_unknown_and_does_not_lose_the_cell():
    async def gone(_worker):
        raise Unreachable

    result, _ = cell(memory=gone)
    assert (result["memory_before"], result["memory_peak"], result["memory_after"], result["ok"]) == (None, None, None, 9)
