"""Where a rollout that is found half done stands: the rung by the weights, the step by the targets."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.domain.adoption import Going, as_found, beside, expected, standing, whereabouts
from rollout.domain.receipts import Pair, Receipts, take
from rollout.domain.state import StepName
from rollout.domain.weights import Rung, rungs
from rollout.domain.world import DeploymentView, RouteView, TargetView, World
from tests.unit.report.samples import ID, NOW

SHARES = (0.05, 0.10, 0.25, 0.50, 1.0)


def ladder(stable: int = 100, others: int = 0) -> tuple[Rung, ...]:
    return rungs(SHARES, stable, others)


@pytest.mark.parametrize(
    ("canary", "rung", "said"),
    [
        (5, 0, "rung 1 of the ladder"),
        (11, 1, "rung 2 of the ladder"),
        (10, 1, "rung 2 of the ladder"),
        (33, 2, "rung 3 of the ladder"),
        (100, 3, "rung 4 of the ladder"),
        (1, 0, "below the ladder"),
        (20, 1, "lowered to rung 2"),
        (60, 2, "lowered to rung 3"),
        (900, 3, "lowered to rung 4"),
    ],
)
def test_the_rung_that_a_weight_means(canary: int, rung: int, said: str) -> None:
    found = standing(ladder(), 100, canary, 0)
    assert found.rung == rung
    assert said in found.words


@given(st.integers(1, 10000), st.integers(1, 100000), st.integers(0, 1000))
def test_a_share_is_never_raised_but_to_the_first_rung(stable: int, canary: int, others: int) -> None:
    """Beyond the tolerance with which any rung is written."""
    steps = ladder(stable * 100, others)
    found = standing(steps, stable * 100, canary, others)
    rung = steps[found.rung]
    assert rung.pair_share <= found.share * 1.12 + 0.006 or found.rung == 0
    assert not rung.full


def test_lower_rungs_are_left_and_the_found_share_is_kept() -> None:
    facts = standing(ladder(others=50), 100, 33, 50).facts(1, NOW)
    assert sorted(facts) == ["1.found", "1.rung.0.left", "1.rung.1.left"]
    assert facts["1.found"]["weight"] == 33
    assert facts["1.found"]["route_share"] == pytest.approx(33 / 183)


def receipts() -> Receipts:
    return take(ID, route(a=100, b=100, other=50), ("a", "b"), {}, 30, 1800)


def route(**weights: int) -> RouteView:
    targets = tuple(TargetView(n, n, name, w, "active") for n, (name, w) in enumerate(weights.items(), 1))
    return RouteView(1, "chat", targets, "weighted", {}, None)


def seen(deployments: tuple[str, ...] = (), **weights: int) -> World:
    """With the canaries' names as c0 and c1."""
    names = {"c0": receipts().pairs[0].canary, "c1": receipts().pairs[1].canary}
    row = route(**{names.get(n, n): w for n, w in weights.items()})
    views = {
        n: DeploymentView(1, n, 1, 1, "running", {}, ())
        for n in ("a", "b", *(names.get(d, d) for d in deployments), *(names[w] for w in weights if w in names))
    }
    return World(NOW, "v2.3.0", row, views)


def steps(pair: Pair) -> tuple[Rung, ...]:
    return rungs((0.25, 0.5, 1.0), pair.scaled, receipts().siblings_weight(pair))


@pytest.mark.parametrize(
    ("world", "staged", "step", "target", "facts"),
    [
        (seen(a=100, b=100, other=50), False, StepName.STAGE, 0, set()),
        (seen(a=100, b=100, other=50), True, StepName.ATTACH, 0, set()),
        (seen(("c0",), a=100, b=100, other=50), False, StepName.ATTACH, 0, set()),
        (seen(a=100, c0=33, b=100, other=50), False, StepName.ATTACH, 0, {"0.found"}),
        (seen(a=100, c0=100, b=100, other=50), False, StepName.ATTACH, 0, {"0.found", "0.rung.0.left"}),
        (seen(c0=100, b=100, other=50), False, StepName.ATTACH, 1, {"0.handed"}),
        (seen(c0=100, b=100, c1=33, other=50), False, StepName.ATTACH, 1, {"0.handed", "1.found"}),
        (seen(c0=100, c1=100, other=50), False, StepName.SHIFT, 1, {"0.handed", "1.handed"}),
    ],
)
def test_the_step_that_the_targets_mean(world: World, staged: bool, step: StepName, target: int, facts: set[str]) -> None:
    found = whereabouts(receipts(), world, steps, staged=staged)
    assert isinstance(found, Going)
    assert (found.step, found.target, set(found.facts)) == (step, target, facts)


def test_a_pair_without_any_target_cannot_be_told() -> None:
    assert "neither a nor" in str(whereabouts(receipts(), seen(b=100, other=50), steps, staged=False))


@pytest.mark.parametrize(
    ("weights", "scaled", "said"),
    [
        ({"a": 55, "c0": 33, "b": 100}, 100, "a has weight 55, and 100 is its own"),
        ({"a": 55, "b": 100}, 100, "a has weight 55"),
        ({"a": 100, "b": 7}, 100, "b has weight 7"),
        ({"a": 100, "c0": 33, "b": 100}, 1000, "a has weight 100, and 1000 is its own"),
        ({"a": 100, "b": 100}, 1000, None),
        ({"a": 1000, "b": 100}, 1000, None),
    ],
)
def test_a_stable_whose_weight_somebody_changed_is_no_base_for_any_rung(weights: dict[str, int], scaled: int, said: str | None) -> None:
    found = receipts()
    found = found.model_copy(update={"pairs": (found.pairs[0].model_copy(update={"scaled": scaled}), found.pairs[1])})
    told = whereabouts(found, seen(**weights, other=50), steps, staged=False)
    assert isinstance(told, Going) if said is None else said in str(told)


def test_ours_are_expected_as_they_are_and_others_as_recorded() -> None:
    """A sibling whose weight moved since, or a target that came, shows up as drift."""
    found = expected(receipts(), seen(a=100, c0=33, b=100, other=70, stranger=5))
    assert found == {"a": 100, receipts().pairs[0].canary: 33, "b": 100, "other": 50}


def test_views_without_the_canary() -> None:
    world = seen(a=100, c0=33, b=100, other=50)
    canary = receipts().pairs[0].canary
    for without in (beside(world, canary), as_found(world, receipts())):
        assert without.route is not None
        assert {t.deployment: t.weight for t in without.route.targets} == {"a": 100, "b": 100, "other": 50}
    gone = dataclasses.replace(world, route=None)
    assert beside(gone, canary) is gone
    assert as_found(gone, receipts()) is gone


def test_expected_and_found_weights_are_those_that_a_conversion_gave() -> None:
    found = receipts().model_copy(
        update={
            "converted": {"a": 100, "b": 100, "other": 100},
            "targets": tuple(t.model_copy(update={"weight": 0}) for t in receipts().targets),
        }
    )
    there = seen(a=100, c0=33, b=100, other=100)
    assert expected(found, there) == {"a": 100, "b": 100, "other": 100, found.pairs[0].canary: 33}
    assert expected(found, seen(a=0, b=0, other=0)) == {"a": 0, "b": 0, "other": 0}
    back = as_found(there, found).route
    assert back is not None
    assert {t.deployment: t.weight for t in back.targets} == {"a": 100, "b": 100, "other": 100}
    assert not any(t.provider for t in back.targets)
