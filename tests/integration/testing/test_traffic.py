"""Live traffic: every request is counted once, as what its user would call it."""

import asyncio
from typing import Any

import pytest

from rollout.testing.sandbox import Sandbox
from rollout.testing.traffic import Answer, Load, Traffic

QUICK = Load(clients=8, stream_share=0.5, stream_seconds=(0.05, 0.15), token_delay=0.02, think=0.01)


def drive(seconds: float, load: Load = QUICK, engine: dict[str, Any] | None = None, sabotage: bool = False) -> dict[str, Any]:
    """Traffic on a route m-a:80, m-b:20; with `sabotage` m-a's engine is killed half way."""

    async def main() -> dict[str, Any]:
        async with Sandbox(scale=0.05, engine={"slots": 64, "ttft_base": 0.005, **(engine or {})}) as box:
            await box.deploy("m-a")
            await box.deploy("m-b", worker="spark-02")
            await box.route("r", {"m-a": 80, "m-b": 20})
            async with Traffic(box.inference_url, box.inference_key, "r", load) as traffic:
                await asyncio.sleep(seconds / 2)
                if sabotage:
                    box.engines("m-a")[0].crash()
                await asyncio.sleep(seconds / 2)
            assert traffic.running == 0
            engines = [*box.engines("m-a"), *box.engines("m-b")]
            assert sabotage or sum(engine.total for engine in engines) == len(traffic.records)
            return traffic.summary()

    return asyncio.run(main())


def test_healthy_traffic_loses_and_cuts_nothing() -> None:
    summary = drive(1.0)
    assert summary["requests"] == summary["ok"] > 50
    assert (summary["failed_requests"], summary["cut_streams"]) == (0, 0)
    assert summary["by_deployment"]["m-a"] > summary["by_deployment"]["m-b"] > 0
    assert 0 < summary["streams"] < summary["requests"]


def test_a_killed_engine_cuts_streams() -> None:
    summary = drive(1.0, Load(clients=8, stream_share=1.0, stream_seconds=(2, 3), token_delay=0.05, think=0.01), sabotage=True)
    assert summary["cut_streams"] >= 1


@pytest.mark.parametrize(
    ("knobs", "kind"),
    [({"truncate_rate": 1.0}, "cut_streams"), ({"abort_rate": 1.0}, "cut_streams"), ({"fail_rate": 1.0}, "failed_requests")],
)
def test_what_looks_like_success_is_not(knobs: dict[str, Any], kind: str) -> None:
    summary = drive(0.4, Load(clients=4, stream_share=1.0, stream_seconds=(0.05, 0.1), token_delay=0.02, think=0.01), engine=knobs)
    assert summary["ok"] == 0
    assert summary[kind] == summary["requests"] > 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(200, "m", "stop", True), ""),
        (Answer(200, "m", "stop", False), "finish_reason=stop usage=False"),
        (Answer(200, "m", "abort", True), "finish_reason=abort usage=True"),
        (Answer(503, "m", None, False), "HTTP 503"),
        (Answer(200, "m", None, False, 1.0, "gone"), "gone"),
    ],
)
def test_success_is_a_known_reason_and_usage(answer: Answer, why: str) -> None:
    assert answer.why() == why
    assert answer.ok is (why == "")
