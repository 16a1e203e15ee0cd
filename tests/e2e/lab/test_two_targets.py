"""Two stable targets on one route, replaced one after another; an abort in the middle of the second restores both."""

from __future__ import annotations

import pytest

from rollout.domain.state import Phase
from tests.e2e.lab.live import answered, cut, figures, lost
from tests.e2e.lab.plays import Seen

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def test_both_are_replaced_and_no_user_notices(two_targets: Seen) -> None:
    assert (two_targets.code, two_targets.phase) == (0, Phase.COMPLETED), two_targets.screen
    assert lost(two_targets.records) + cut(two_targets.records) == [], figures(two_targets.records)
    weights = {name.rpartition("-r")[0] or name: row["weight"] for name, row in two_targets.after["targets"].items()}
    first, second = two_targets.more["stable"]
    assert weights == {first: 40, second: 30, two_targets.more["sibling"]: 30}
    assert len(two_targets.leftovers) == 2


def test_the_target_beside_them_is_the_same_one_as_before(two_targets: Seen) -> None:
    sibling = two_targets.more["sibling"]
    assert two_targets.after["targets"][sibling] == two_targets.before["targets"][sibling]
    assert two_targets.more["ids_after"][sibling] == two_targets.more["ids"][sibling]


def test_the_second_is_touched_only_after_the_first_has_gone(two_targets: Seen) -> None:
    """Never two at once: users meet the second canary only after the last answer of the first stable side has begun."""
    first, second = (name for name in two_targets.more["stable"])
    begun = {name: [r.t for r in two_targets.records if r.deployment == name] for name in answered(two_targets.records)}
    (canary,) = (name for name in begun if name.startswith(second + "-r"))
    assert max(begun[first]) < min(begun[canary])


def test_an_abort_in_the_middle_of_the_second_restores_both(abort_in_the_second: Seen) -> None:
    first, second = abort_in_the_second.more["stable"]
    halfway = abort_in_the_second.more["halfway"]
    assert first not in halfway
    assert second in halfway
    assert len(halfway) == 3
    assert (abort_in_the_second.code, abort_in_the_second.phase) == (0, Phase.ABORTED), abort_in_the_second.screen
    assert abort_in_the_second.after == abort_in_the_second.before
    assert abort_in_the_second.leftovers == []


def test_that_abort_costs_no_user_anything(abort_in_the_second: Seen) -> None:
    records = abort_in_the_second.records
    assert lost(records) + cut(records) == [], figures(records)
