"""The sources against the whole sandbox: a stale route is caught, each rung's share is proved, and engines are read as they are."""

import asyncio
import json

import pytest

from rollout.backends.registry import Site, open_gpustack
from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.domain.world import Scope
from rollout.sources.registry import Sources
from rollout.testing.sandbox import Sandbox

ENGINE = {"ttft_base": 0.0, "tpot": 0.0, "slots": 64}


async def no_memory(_worker):
    return None


def in_sandbox(story):
    """Runs `story(box, backend, sources)` on a sandbox with stable m-a (weight 1900) on route chat and a canary m-b beside it."""

    async def go():
        async with Sandbox(engine=ENGINE, scale=0.02) as box:
            await box.deploy("m-a", worker="spark-01")
            await box.deploy("m-b", worker="spark-02", backend="Custom")
            await box.route("chat", {"m-a": 1900})
            management, inference = Secret(box.management_key), Secret(box.inference_key)
            async with (
                Sources(box.inference_url, inference, SystemClock(), no_memory) as sources,
                open_gpustack(Site(box.url, box.inference_url), management, inference, SystemClock(), sources.engine) as backend,
            ):
                return await story(box, backend, sources)

    return asyncio.run(go())


def verify(old, new):
    return "verify_share", {"model": "chat", "deployment": "m-b", "old": old, "new": new, "limit": 200}


def test_a_joined_target_is_proved_dark_before_and_seen_at_each_rung_after():
    weights = {0.05: 100, 0.25: 633, 0.5: 1900}

    async def story(box, backend, sources):
        dark = await sources.perform("probe", {"model": "chat", "n": 60})
        seen, before = {}, 0.0
        for share, weight in weights.items():
            verb = "join" if before == 0.0 else "set_weight"
            await backend.perform(verb, {"route": "chat", "deployment": "m-b", "weight": weight})
            await backend.perform("refresh", {"route": "chat"})
            seen[share] = await sources.perform(*verify(before, share))
            before = share
        return dark, seen

    dark, seen = in_sandbox(story)
    assert dark["models"] == {"m-a": 60}
    assert {share: result["moved"] for share, result in seen.items()} == {0.05: True, 0.25: True, 0.5: True}
    assert all(result["failed"] == 0 for result in seen.values())


def test_a_weight_that_the_proxy_has_not_taken_over_is_seen_as_stale_until_the_cache_is_dropped():
    async def story(box, backend, sources):
        await backend.perform("join", {"route": "chat", "deployment": "m-b", "weight": 211})
        await backend.perform("refresh", {"route": "chat"})
        joined = await sources.perform(*verify(0.0, 0.10))
        await backend.perform("set_weight", {"route": "chat", "deployment": "m-b", "weight": 1900})
        written = box.weights("chat")
        stale = await sources.perform(*verify(0.10, 0.50))
        await backend.perform("refresh", {"route": "chat"})
        moved = await sources.perform(*verify(0.10, 0.50))
        return joined, written, stale, moved

    joined, written, stale, moved = in_sandbox(story)
    assert written == {"m-a": 1900, "m-b": 1900}
    assert (joined["moved"], stale["moved"], moved["moved"]) == (True, False, True)


def scope():
    return Scope("chat", ("m-a", "m-b"), sample=("m-a", "m-b"))


def test_a_scraped_and_a_custom_deployment_are_both_read_through_observe():
    async def story(box, backend, sources):
        await backend.perform("join", {"route": "chat", "deployment": "m-b", "weight": 1900})
        await backend.perform("refresh", {"route": "chat"})
        result = await sources.perform("probe", {"model": "chat", "n": 30})
        return result["models"], (await backend.observe(scope())).samples

    models, samples = in_sandbox(story)
    assert {name: sample.status for name, sample in samples.items()} == {"m-a": "OK", "m-b": "OK"}
    rows = {name: next(iter(sample.instances.values())) for name, sample in samples.items()}
    assert {name: row.requests for name, row in rows.items()} == models
    assert all(row.errors == 0 and row.started and row.ttft and row.e2e for row in rows.values())
    assert {sample.in_flight for sample in samples.values()} == {0}


def test_requests_inside_are_in_flight():
    async def story(box, backend, sources):
        engine = box.engines("m-a")[0]
        long = {"model": "m-a", "messages": [], "stream": True, "sim": {"tokens": 50, "delay": 0.2}}
        stream = (await engine.serve("/v1/chat/completions", long)).stream
        await anext(stream)
        busy = (await backend.observe(scope())).samples["m-a"].in_flight
        await stream.aclose()
        after = (await backend.observe(scope())).samples["m-a"]
        return busy, after

    busy, after = in_sandbox(story)
    assert (busy, after.in_flight) == (1, 0)
    assert next(iter(after.instances.values())).errors == 0  # an abort is no error


@pytest.mark.parametrize("how", ["error", "hang"])
def test_dead_worker_metrics_are_an_error_for_the_scraped_side_only(how):
    async def story(box, backend, sources):
        for node in box.nodes.values():
            node.knobs.dead_metrics = how
        world = await backend.observe(scope())
        serving = await sources.perform("probe", {"model": "chat", "n": 4})
        return world.samples, serving

    samples, serving = in_sandbox(story)
    assert (samples["m-a"].status, samples["m-b"].status, serving["ok"]) == ("METRIC_ERROR", "OK", 4)
    assert json.dumps(samples["m-a"].why)
