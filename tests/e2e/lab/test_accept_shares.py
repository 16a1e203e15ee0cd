"""Acceptance: dark for 2,000 requests, and at every rung the users meet the canary as often as the rung says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.scenario import Scenario
from rollout.domain.state import Phase, RolloutState
from rollout.errors import ExitCode
from tests.e2e.lab.figures import inside
from tests.e2e.lab.live import QUICK, answered, cut, figures, lost
from tests.e2e.lab.plays import META, SKIP, dark, live, share_of, sibling_fields

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1200)]
LADDER = (10, 25, 50, 100)
COUNT = 1000


def test_none_of_2000_user_requests_reaches_the_dark_canary(scene: Scenario) -> None:
    """Also while stable's engine dies and comes back, and for a user's key that names the canary or its private route."""
    seen = dark(scene, 2000)
    records = seen.more["in_the_dark"]
    assert set(answered(records)) == {seen.more["stable"]}
    assert answered(records)[seen.more["stable"]] >= 2000
    assert seen.more["reached"] == 0
    assert lost(records), "stable was never away"
    assert set(seen.more["refused"].values()) <= {403, 404}
    assert inside(answered(seen.records)[seen.more["canary"]], len(seen.records), 0.10)
    assert seen.after == seen.before


def test_each_rungs_observed_share_lies_in_its_interval_and_a_rollback_restores_all(scene: Scenario) -> None:
    """A target that is not ours takes 40 of 100: the share of the route is what users see."""
    stable, sibling, operator = scene.deploy("a", "spark-01"), scene.deploy("c", "staging"), scene.operator
    scene.route({stable: 60, sibling: 40}, {sibling: sibling_fields(scene)}, meta=META)
    plan = operator.plan([stable], ladder=list(LADDER), stage=SKIP, evidence={"min_time": "15s", "min_time_before_full": "20s"})
    before, ids = scene.snapshot(), {name: row["id"] for name, row in scene.targets().items()}
    process = operator.start("run", plan)
    lines, harm = [], 0
    for index, percent in enumerate(LADDER):
        state = operator.until(proved(index), f"rung {percent} is proved", 240)
        operator.say("pause", "users are counted")
        assert operator.finished(process) == ExitCode.HOLDING
        canary = state.fact("receipts")["pairs"][0]["canary"]
        weights = {name: row["weight"] for name, row in scene.targets().items()}
        asked = share_of(scene, canary)
        assert percent == 100 or abs(weights[canary] / (weights[canary] + 60) - percent / 100) <= max(0.005, percent / 1000)
        with live(scene, QUICK) as users:
            users.more(COUNT)
        counted = answered(users.records)
        lines.append((percent, inside(counted[canary], sum(counted.values()), asked)))
        harm += len(lost(users.records)) + len(cut(users.records))
        print(f"rung {percent}: {figures(users.records)}")
        operator.say("resume", "counted")
        process = operator.start("run", state.id)
    operator.run("rollback", state.id, "--reason", "seen enough", code=ExitCode.DONE)
    assert lines == [(percent, True) for percent in LADDER]
    assert harm == 0
    assert operator.state().phase is Phase.ROLLED_BACK
    assert scene.snapshot() == before
    assert scene.targets()[sibling]["id"] == ids[sibling]
    assert scene.leftovers() == []


def proved(index: int) -> Callable[[RolloutState], bool]:
    """The rung's share was seen in own traffic; at 100 % that stable does not answer any more."""

    def look(state: RolloutState) -> bool:
        fact = "0.absent" if index == len(LADDER) - 1 else f"0.rung.{index}.proved"
        return bool(state.fact(fact))

    return look
