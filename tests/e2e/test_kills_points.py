"""The engine dies at every journal point, on the sandbox over real HTTP: the same end as undisturbed, nothing twice, nothing lost.

The list of points is what an undisturbed rollout passes. In `make test` one rollout dies at each of them, one life after another;
in `make accept` there is a rollout for each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.domain.state import Phase, RolloutState
from tests.contract.site import Site
from tests.e2e.inside import CrashError, Inside, keys
from tests.e2e.kills import end, nothing_twice
from tests.e2e.support import Case, case, opened

WINDOWS = 2
PROMOTED = "written: phase promoted"
"""where a rollout that is rolled back out of its window hears of it"""
Point = Callable[[str], None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A sandbox for all tests of this file."""
    with opened("sandbox", tmp_path_factory.mktemp("sandbox"), ttft_base=0.005) as found, keys(found):
        yield found


class Story:
    """A rollout from its start to its end, by as many lives as it takes. `back`: it is rolled back out of its window."""

    def __init__(self, made: Case, *, back: bool) -> None:
        self.case, self.back, self.inside = made, back, Inside(made)
        self.id = self.inside.start()
        self.windows, self.said = 0, set[str]()

    def live(self, at: Point = lambda _point: None) -> RolloutState:
        """One life, to the end or to a CrashError from `at`."""

        def point(name: str) -> None:
            self.windows += "outcome done probe_pairs" in name
            if self.windows >= WINDOWS:
                self.say("promote")
            if name == PROMOTED and self.back:
                self.say("rollback")
            at(name)

        return self.inside.run(self.id, at=point)

    def say(self, verb: str) -> None:
        """Once in a rollout."""
        if verb not in self.said:
            self.said.add(verb)
            self.inside.say(self.id, verb)

    def ended(self, state: RolloutState) -> dict[str, object]:
        """What is compared; checked on the way: nothing twice."""
        assert state.phase is (Phase.ROLLED_BACK if self.back else Phase.COMPLETED), self.inside.events[-1][0].text
        nothing_twice(self.case)
        if self.back:
            assert self.case.shape() == self.case.before
        return end(self.case)


def effects(points: list[str]) -> set[str]:
    """The points around effects, steps and phases; which facts a judge writes depends on what it measures."""
    return {p for p in points if not p.startswith("written: fact") and "probe_pairs" not in p}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("back", [False, True], ids=["completed", "rolled back"])
def test_one_rollout_dies_at_every_point_one_life_after_another(site: Site, tmp_path: Path, back: bool) -> None:
    """Each life ends at the first point at which no life ended before.

    Who dies after an effect finds it done and never passes its outcome: so one rollout dies after effects, a second one after outcomes.
    """
    wanted, points = undisturbed(site, tmp_path, back=back)
    died = {spared: _dies(site, tmp_path, wanted, spared, back=back) for spared in ("outcome", "acted")}
    assert points - (died["outcome"] | died["acted"]) == set()
    lives = [len(each) for each in died.values()]
    print(f"points: {len(points)} known beforehand, {lives} deaths in two rollouts")
    assert min(lives) > (20 if back else 70)


def undisturbed(site: Site, home: Path, *, back: bool) -> tuple[dict[str, object], set[str]]:
    """How a rollout ends that is left alone, and the points it passes."""
    with case(site, home, changes(back=back)) as made:
        story = Story(made, back=back)
        ended, points = story.ended(story.live()), story.inside.points
        return ended, effects(points[points.index(PROMOTED) + 1 :] if back else points)


def changes(*, back: bool) -> dict[str, str]:
    """The window of a rollout that is to be rolled back must not pass before."""
    return {"{duration: 2s}": "{duration: 10m}"} if back else {}


def _dies(site: Site, home: Path, wanted: dict[str, object], spared: str, *, back: bool) -> set[str]:
    """A rollout that dies at every kind of point once, but for the spared ones; where it died. `back`: only on its way back."""
    died = set[str]()

    def die(point: str) -> None:
        if point not in died and not point.startswith(spared) and (not back or "rollback" in story.said):
            died.add(point)
            raise CrashError

    with case(site, home, changes(back=back)) as made:
        story = Story(made, back=back)
        while (state := _life(story, die)) is None:
            assert len(died) < 400
        assert story.ended(state) == wanted
    return died


def _life(story: Story, die: Point) -> RolloutState | None:
    try:
        return story.live(die)
    except CrashError:
        return None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("back", [False, True], ids=["completed", "rolled back"])
def test_a_rollout_for_each_point(site: Site, tmp_path: Path, back: bool) -> None:
    """The generated list, one rollout per point, one death each."""
    wanted, points = undisturbed(site, tmp_path, back=back)
    for point in sorted(points):
        died = set[str]()

        def die(passed: str, died: set[str] = died, here: str = point) -> None:
            if passed == here and not died:
                died.add(here)
                raise CrashError

        with case(site, tmp_path, changes(back=back)) as made:
            story = Story(made, back=back)
            assert _life(story, die) is None, f"not met: {point}"
            assert story.ended(story.live()) == wanted, point
    print(f"points: {len(points)} rollouts, one death each")
