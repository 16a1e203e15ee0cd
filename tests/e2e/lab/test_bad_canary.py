"""A canary with twice the time to first token, beside a target that is not ours: taken back by the judge alone."""

from __future__ import annotations

import pytest

from rollout.domain.state import Phase
from rollout.errors import ExitCode
from tests.e2e.lab.live import cut, figures, lost
from tests.e2e.lab.plays import Seen

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def test_the_judge_rolls_it_back_for_its_latency(bad_canary: Seen) -> None:
    assert (bad_canary.code, bad_canary.phase) == (ExitCode.ROLLED_BACK, Phase.ROLLED_BACK), bad_canary.screen
    said = bad_canary.states[0].undo
    assert said is not None
    assert said.actor == "judge"
    assert "TTFT" in said.reason


def test_no_user_lost_a_request_or_a_stream(bad_canary: Seen) -> None:
    assert len(bad_canary.records) >= 100
    assert lost(bad_canary.records) + cut(bad_canary.records) == [], figures(bad_canary.records)


def test_targets_weights_meta_and_siblings_equal_the_snapshot(bad_canary: Seen) -> None:
    assert bad_canary.after == bad_canary.before
    assert bad_canary.leftovers == []


def test_the_target_that_is_not_ours_keeps_its_id_and_its_extra_fields(bad_canary: Seen) -> None:
    sibling = bad_canary.more["sibling"]
    assert bad_canary.more["ids_after"][sibling] == bad_canary.more["ids"][sibling]
    assert bad_canary.after["targets"][sibling] == bad_canary.before["targets"][sibling]
    assert bad_canary.more["extra"].items() <= bad_canary.after["targets"][sibling].items()
