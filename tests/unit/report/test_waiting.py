"""What is said before a rollout about traffic: what it can show, how long a verdict takes, and what nobody will see."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console

from benchmarks.judge.worlds import EDGES
from rollout.analysis import Histogram
from rollout.analysis.config import Mode, config_for
from rollout.domain.world import EngineSample, InstanceSample
from rollout.plan.model import Plan
from rollout.report.dryrun import DryRun, dry_run
from rollout.report.dryrun_text import screen
from rollout.report.waiting import Asked, Forecast, claimed, forecast, hours, points, setting_of, slower_by
from tests.unit.report.samples import plan, world
from tests.unit.report.test_dryrun import declared, receipts

REFERENCE = Histogram(EDGES, (0, 0, 0, 0, 0, 1, 20, 60, 540, 330, 30, 8, 10, 1, *[0] * 9))


def asked(rate: float | None = 30.0, mode: Mode = "sparse", **evidence: Any) -> Asked:
    said = plan(evidence={"mode": mode, **evidence}) if evidence else plan()
    judge = config_for(mode, rungs=1, reference_ttft=REFERENCE, quality="binary" if said.evidence.quality else None)
    return Asked(said, judge, rate, "the engines' counters", (0.5,), 1, 1)


def test_thirty_requests_an_hour_say_in_words_that_a_fifth_cannot_be_detected() -> None:
    found = forecast(asked())
    slow = next(line for line in found.undetectable if "slow-down" in line)
    smallest = found.rungs[0].by_deadline.slowdown
    assert smallest is not None
    assert smallest > 0.2
    assert slow == f"a slow-down of +20 % cannot be detected at 30 requests/h with 120 probe pairs: the smallest is {slower_by(smallest)}"
    assert any("wrong answers cannot be detected" in line for line in found.undetectable)


def test_a_verdict_takes_as_long_as_the_rung_and_its_weakest_claim() -> None:
    found = forecast(asked())
    assert found.hours == pytest.approx(2.0)  # two hours before 100 %; the probes are through in minutes
    assert found.deadline_hours == 4.0
    assert {claim.claim for claim in found.claims} == {"probes", "errors"}


def test_a_rung_lasts_until_its_requests_came_but_not_past_the_deadline() -> None:
    assert setting_of(asked(rate=2)).rungs[0].seconds == 14_400
    assert setting_of(asked(rate=8)).rungs[0].seconds == pytest.approx(10 / 4 * 3600)
    assert setting_of(asked(rate=None)).rungs[0].seconds == 7200


def test_without_traffic_or_probes_nothing_is_promised() -> None:
    nothing = dataclasses.replace(asked(rate=None), judge=config_for("rich", rungs=1, reference_ttft=REFERENCE))
    found = forecast(nothing)
    assert (found.hours, found.rungs[0].by_deadline.slowdown) == (None, None)
    assert any("cannot be detected at an unknown rate without probes, nor anything worse" in line for line in found.undetectable)


def test_why_it_waits_names_each_claim_and_what_would_shorten_it() -> None:
    slow = dataclasses.replace(asked(rate=600, mode="thin"), explain=True)
    found = forecast(slow)
    assert any("latency, live or by probes (+20 % is too much): about" in line for line in found.why)
    assert any("canary requests" in line and "probe pairs" in line for line in found.why)
    assert any(line.startswith("240 probe pairs") for line in found.shorter)
    assert any("`evidence.quality`" in line for line in found.shorter)
    assert any("`evidence.history`" in line for line in found.shorter)
    assert forecast(asked()).why == forecast(asked()).shorter == ()


def test_stables_own_failures_are_the_yardstick() -> None:
    def failing(errors: float) -> EngineSample:
        return EngineSample(world().now, "OK", {"a": InstanceSample(0, 0, 9_900, errors, 0, None, None, 0.0)})

    calm, sick = (setting_of(dataclasses.replace(asked(), sample=failing(n))).error_rate for n in (0, 990))
    assert (calm, sick) == (pytest.approx(0.00002), pytest.approx(0.09902))
    assert setting_of(asked()).error_rate == pytest.approx(0.002)


def seen(rate: float, *, explain: bool = False, said: Plan | None = None) -> DryRun:
    what = dataclasses.replace(declared(receipts()), rate=rate, rate_source="GPUStack's daily usage", explain=explain)
    return dry_run(said or plan(), world(), (), what, config_for("thin", rungs=2, reference_ttft=REFERENCE))


def shown(run: DryRun) -> str:
    out = io.StringIO()
    Console(file=out, width=200, no_color=True).print(screen(run))
    return out.getvalue()


def test_the_screen_and_the_json_say_the_same() -> None:
    run = seen(400.0)
    assert run.forecast is not None
    again = Forecast.model_validate(json.loads(run.model_dump_json())["forecast"])
    assert again == run.forecast
    text = shown(run)
    assert "what 400 requests/h can show" in text
    assert "GPUStack's daily usage" in text
    assert "mode thin (60 to 3,600 requests/h), 400 requests/h" in text
    assert all(line in text for line in run.forecast.undetectable)
    assert [len(run.forecast.rungs), "why it waits" in text] == [2, False]
    assert "why it waits" in shown(seen(400.0, explain=True))


def test_a_wait_past_the_deadline_is_said_to_hold() -> None:
    run = seen(400.0, said=plan(evidence={"deadline": "30m"}))
    assert "later than the deadline of 30 min: it would hold (inconclusive)" in shown(run)


def test_numbers_in_words() -> None:
    assert [slower_by(x) for x in (None, 0.2, 1.0, 2.0)] == ["none", "+20 %", "+100 %", "x 3"]
    assert [points(x) for x in (None, 0.003, 0.05)] == ["none", "+0.3 pp", "+5 pp"]
    assert [hours(x) for x in (None, 0.5, 2.0, 96.0)] == ["not within a month", "30 min", "2.0 h", "4 days"]
    assert [claimed(x) for x in ("ttft body", "errors", "live or probes")] == [
        "time to first token, body",
        "errors",
        "latency, live or by probes",
    ]
