"""What share a window is held to: the weights' own, or of what ties between whole percents allow the one that was counted."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from rollout.domain.context import Ctx
from rollout.domain.effective import Carrier
from rollout.domain.receipts import take
from rollout.domain.world import EngineSample, InstanceSample, World
from rollout.rung.windows import base, window
from tests.unit.domain.test_carrying import site
from tests.unit.domain.test_ladder import NOW
from tests.unit.domain.test_receipts_and_health import ID, state


def counted(begun: int) -> EngineSample:
    row = InstanceSample(0.0, 0.0, float(begun), 0.0, 0.0, {math.inf: float(begun)}, None, 1.0)
    return EngineSample(NOW, "OK", {"e": row})


def seen(carrier: Carrier, stable: int, canary: int) -> float | None:
    """The share that a window with so many first tokens is compared with; 90 beside 10, four instances each."""
    world: World = site("v2.2.3", chat_a=90, chat_b=10)
    assert world.route is not None
    receipts = take(ID, replace(world.route, targets=world.route.targets[:1]), ("chat-a",), {}, 10, 1800)
    pair = receipts.pairs[0].model_copy(update={"canary": "chat-b"})
    facts = {
        "receipts": receipts.model_copy(update={"pairs": (pair,)}).model_dump(mode="json"),
        "ladder": [0.1, 1.0],
        "carrier": carrier.value,
    }
    first = Ctx(None, state(**facts), replace(world, now=NOW, samples={"chat-a": counted(0), "chat-b": counted(0)}), dict, list)  # type: ignore[arg-type]
    rung = first.ladder(pair)[0]
    samples = {"chat-a": counted(stable), "chat-b": counted(canary)}
    later = replace(first, world=replace(world, now=NOW + timedelta(seconds=30), samples=samples))
    return window(later, rung, base(first, rung), 1).expected_share


def test_exact_weights_are_compared_with_themselves() -> None:
    assert seen(Carrier.PROXY, 880, 120) == pytest.approx(0.1)


@pytest.mark.parametrize(("canary", "expected"), [(80, 0.08), (120, 0.12), (95, 0.08), (400, 0.12)])
def test_whole_percents_are_compared_with_the_nearest_that_ties_allow(canary: int, expected: float) -> None:
    """And a share that none of them explains stays far from all of them."""
    assert seen(Carrier.PERCENT, 1000 - canary, canary) == pytest.approx(expected)
