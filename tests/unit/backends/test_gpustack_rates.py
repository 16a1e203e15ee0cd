"""Requests an hour as the server counts them: asked once before a start, rated over what the deployment has lived of two days."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from rollout.domain.world import Scope
from tests.unit.backends.gpustack_double import NOW, Double, error, run

SURVEY = Scope("chat", ("m-a",), (), ("m-a",), survey=True)
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
HOURS = (NOW - MIDNIGHT).total_seconds() / 3600


def served(double: Double, scope: Scope = SURVEY) -> dict[str, float]:
    return dict(run(double.backend().observe(scope)).rates)


def world(usage: dict[datetime, int] | None, **fields: Any) -> Double:
    double = Double()
    model = double.model("m-a", **fields)
    double.route("chat", {"m-a": 100})
    other = {"model_id": 99, "date": NOW.date().isoformat(), "request_count": 10_000}
    rows = [
        {"model_id": model["id"], "date": day.date().isoformat(), "request_count": n, "operation": "x"} for day, n in (usage or {}).items()
    ]
    double.usage = None if usage is None else [other, *rows]
    return double


def test_two_days_are_rated_over_the_hours_since_yesterday_began() -> None:
    found = world({MIDNIGHT - timedelta(days=1): 5_000, MIDNIGHT: 300, NOW: 60})
    assert served(found) == {"m-a": pytest.approx(360 / HOURS)}


@pytest.mark.parametrize("text", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S+00:00"])
def test_a_young_deployment_is_rated_over_its_age(text: str) -> None:
    made = NOW - timedelta(hours=2)
    assert served(world({NOW: 60}, created_at=made.strftime(text))) == {"m-a": pytest.approx(30)}


def test_a_deployment_of_this_minute_is_rated_over_a_minute() -> None:
    assert served(world({NOW: 2}, created_at=NOW.strftime("%Y-%m-%dT%H:%M:%SZ"))) == {"m-a": pytest.approx(120)}


def test_no_usage_is_a_rate_of_zero_and_no_such_call_is_no_rate() -> None:
    assert served(world({})) == {"m-a": 0.0}
    assert served(world(None)) == {}


@pytest.mark.parametrize(
    "sick", [lambda *_: error(403, "admins only"), lambda *_: error(500, "?"), lambda *_: httpx.Response(200, json={"items": 3})]
)
def test_a_usage_that_cannot_be_read_costs_the_rate_and_nothing_else(sick: Any) -> None:
    double = world({NOW: 60})
    for _ in range(9):
        double.fault("GET", "dashboard/usage", sick)
    assert served(double) == {}


def test_a_tick_that_is_no_survey_does_not_ask() -> None:
    double = world({NOW: 60})
    assert served(double, Scope("chat", ("m-a",), (), ("m-a",))) == {}
    assert not [path for _, path, _ in double.calls if "usage" in path]
