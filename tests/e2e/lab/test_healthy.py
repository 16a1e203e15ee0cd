"""One healthy rollout on the real server, under 40 clients of whom half are in streams of 5 to 60 s."""

from __future__ import annotations

import pytest

from rollout.domain.state import Phase
from tests.e2e.lab.live import answered, cut, figures, long_streams, lost
from tests.e2e.lab.plays import Seen

pytestmark = [pytest.mark.lab, pytest.mark.modes, pytest.mark.timeout(420)]


def test_it_completes_and_no_request_is_lost_and_no_stream_is_cut(healthy: Seen) -> None:
    assert (healthy.code, healthy.phase) == (0, Phase.COMPLETED), healthy.screen
    assert lost(healthy.records) + cut(healthy.records) == [], figures(healthy.records)
    assert len(healthy.records) >= 500
    assert long_streams(healthy.records) >= 20


def test_the_new_side_took_over_and_nothing_else_is_left(healthy: Seen) -> None:
    (target,) = healthy.after["targets"]
    assert target.startswith(healthy.more["stable"] + "-r")
    assert healthy.after["targets"][target]["weight"] == healthy.before["targets"][healthy.more["stable"]]["weight"]
    assert healthy.leftovers == [target]
    assert set(answered(healthy.records)) == {healthy.more["stable"], target}


def test_the_route_keeps_its_meta_and_its_grants(healthy: Seen) -> None:
    assert healthy.after["route"] == healthy.before["route"]
    assert healthy.after["access"] == healthy.before["access"]


def test_the_judge_passed_it_within_the_products_margins_before_stable_left(healthy: Seen) -> None:
    facts = healthy.states[0].facts
    assert facts["0.judge"]["verdict"]["kind"] == "pass"
    config = facts["0.judge"]["config"]
    assert (config["unacceptable_latency"], config["alpha"], config["beta"]) == (0.5, 0.01, 0.05)
    assert facts["0.drain"]["seconds"] > 0
