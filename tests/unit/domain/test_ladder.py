"""The check before and the declaration mean the same ladder: a plan is not refused for a rung that it would never write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollout.domain.ladder import mode_of, rate_of, shares_of
from rollout.domain.preflight import findings
from rollout.domain.world import DeploymentView, EngineSample, InstanceSample, InstanceView, RouteView, TargetView, World
from rollout.plan.model import Plan

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def plan(**parts: Any) -> Plan:
    base = {
        "apiVersion": "rollout/v1",
        "kind": "RolloutPlan",
        "metadata": {"name": "chat-2"},
        "gpustack": {"server": "http://gpustack.lan", "management_key": {"env": "MKEY"}, "inference_key": {"env": "IKEY"}},
        "route": {"name": "chat"},
        "change": {"unit": "backend_image", "to": {"image_name": "vllm/vllm-openai:v0.21.0"}},
        "stable": [{"deployment": "chat-a"}],
        "stage": {"skip": "not of interest here"},
    }
    return Plan.model_validate({**base, **parts})


def world(**weights: int) -> World:
    """A route with these weights; every deployment runs on a worker of its own."""
    names = [name.replace("_", "-") for name in weights]
    targets = tuple(TargetView(i, i, n, w, "active") for i, (n, w) in enumerate(zip(names, weights.values(), strict=True), 1))
    views = {n: DeploymentView(i, n, 1, 1, "running", {}, (InstanceView(i, n, "running", n),), ("chat",)) for i, n in enumerate(names, 1)}
    return World(NOW, "v2.3.0", RouteView(1, "chat", targets, "weighted", {}, "authed"), views)


def test_a_sparse_plan_beside_a_sibling_is_not_refused_for_the_rich_modes_five_percent() -> None:
    seen = world(chat_a=10, chat_b=30)
    sparse = plan(evidence={"mode": "sparse"})
    assert shares_of(sparse, seen) == (0.5, 1.0)
    assert findings(sparse, seen) == []


def test_a_rich_plan_beside_a_sibling_is_refused_with_the_nearest_share() -> None:
    found = findings(plan(evidence={"mode": "rich"}), world(chat_a=10, chat_b=30))
    assert [line for line in found if "rung 5.00% cannot be written" in line], found


def test_unknown_traffic_counts_as_sparse_and_a_named_mode_is_kept() -> None:
    seen = world(chat_a=100)
    assert mode_of(plan(), seen) == ("sparse", None)
    assert mode_of(plan(evidence={"mode": "thin"}), seen) == ("thin", None)


@pytest.mark.parametrize("ladder", ["auto", [10, 50, 100]])
def test_a_first_stable_target_that_does_not_exist_is_a_finding_and_no_crash(ladder: Any) -> None:
    seen = replace(world(chat_a=100), deployments={})
    assert any("does not exist" in line for line in findings(plan(ladder=ladder), seen))


def counted(requests: float, hours: float = 1.0) -> EngineSample:
    began = (NOW - timedelta(hours=hours)).timestamp()
    return EngineSample(NOW, "OK", {"a": InstanceSample(0, 0, requests, 0, 0, None, None, began)})


@pytest.mark.parametrize(
    ("served", "engines", "rate", "source"),
    [
        (30.0, counted(4000), 30.0, "usage"),  # a night that the engines did not see
        (None, counted(4000), 4000.0, "engines"),
        (0.0, counted(4000), 4000.0, "engines"),  # requests that go past the server
        (0.0, counted(0), 0.0, "usage"),
        (0.0, None, 0.0, "usage"),
        (None, None, None, "neither"),
    ],
)
def test_the_rate_is_the_servers_where_it_counts_and_the_engines_else(
    served: float | None, engines: EngineSample | None, rate: float | None, source: str
) -> None:
    seen = replace(world(chat_a=100), rates={} if served is None else {"chat-a": served}, samples={"chat-a": engines} if engines else {})
    found, words = rate_of(seen, "chat-a")
    assert found == (None if rate is None else pytest.approx(rate))
    assert source in words
    assert mode_of(plan(), seen)[1] == found
