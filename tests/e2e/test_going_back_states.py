"""Abort and rollback from every step and phase, on the sandbox over real HTTP: accepted at once, and the snapshot is restored.

Time runs faster inside; the command itself goes back in `test_going_back_command`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState
from tests.contract.site import Site
from tests.e2e.inside import Inside, keys
from tests.e2e.support import Case, case, opened

Reached = Callable[[RolloutState], bool]
MANY = {"{duration: 2s}": "{duration: 10m}"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A sandbox for all tests of this file."""
    with opened("sandbox", tmp_path_factory.mktemp("sandbox"), ttft_base=0.005) as found, keys(found):
        yield found


def fact(key: str) -> Reached:
    return lambda state: state.fact(key) is not None


def held(reason: str) -> Reached:
    return lambda state: state.hold is not None and state.hold.reason == reason


STATES: dict[str, tuple[Reached, dict[str, str]]] = {
    "declare: not begun": (lambda _s: True, {}),
    "declare: claiming": (fact("claim"), {}),
    "stage: starting": (fact("stage.created"), {}),
    "stage: measured": (fact("stage.report"), {}),
    "attach: starting": (fact("0.attach.created"), {}),
    "attach: warm": (fact("0.warm"), {}),
    "canary: settling": (fact("0.rung.0.written"), {}),
    "canary: judging": (fact("0.seen"), {}),
    "shift: settling": (fact("0.rung.1.written"), {}),
    "shift: handing over": (fact("0.handed"), {}),
    "shift: draining": (fact("0.drain"), {}),
    "holding: approval before attach": (held("approval"), {"cleanup:": "gates: {approve_before: [attach]}\ncleanup:"}),
    "holding: approval before shift": (held("approval"), {"cleanup:": "gates: {approve_before: [shift]}\ncleanup:"}),
    "holding: inconclusive": (held("inconclusive"), {"deadline: 10m": "deadline: 5s"}),
    "window": (lambda s: s.phase is Phase.PROMOTED, MANY),
    "holding: approval in the window": (held("approval"), {"{approval: none}": "{approval: required}"}),
}


def _both_verbs() -> list[Any]:
    """Each state with the verb that is likelier there; with the other one, where it is accepted too, in `make accept`."""
    likely = [(name, "rollback" if "window" in name else "abort") for name in STATES]
    other = [pytest.param(name, "rollback", marks=pytest.mark.slow) for name, verb in likely if verb == "abort"]
    return [*likely, *other]


@pytest.mark.parametrize(("name", "verb"), _both_verbs())
def test_going_back_restores_the_snapshot(site: Site, tmp_path: Path, name: str, verb: str) -> None:
    """From here the next thing that is written is a part of the way back, and at the end nothing of ours is left."""
    reached, changes = STATES[name]
    with case(site, tmp_path, changes) as made:
        inside = Inside(made)
        rollout_id = inside.start()
        before = _forward(inside, rollout_id, reached)
        assert not before.terminal
        _goes_back(made, inside, rollout_id, verb)


def _forward(inside: Inside, rollout_id: str, reached: Reached) -> RolloutState:
    """Go on until the state; a person promotes after the first window where the state lies behind the judge."""
    state = inside.run(rollout_id, until=lambda s: reached(s) or int((s.fact("0.seen") or {}).get("id", 0)) > 0)
    if not reached(state) and not inside.case.changes.get("deadline: 10m"):
        inside.say(rollout_id, "promote")
    return state if reached(state) else inside.run(rollout_id, until=reached)


def _goes_back(made: Case, inside: Inside, rollout_id: str, verb: str) -> None:
    """Say it, see it through: its phase, its exit code, the snapshot, and no step forward after the word."""
    inside.say(rollout_id, verb)
    said = len(inside.events)
    state = inside.run(rollout_id)
    assert state.phase is (Phase.ABORTED if verb == "abort" else Phase.ROLLED_BACK), inside.events[-1][0].text
    assert state.exit_code == 10
    first, *after = [event for event, _ in inside.events[said:]]
    assert (first.kind, first.data["said"]["verb"]) == ("command", verb)
    forward = {"create_deployment", "create_probe_route", "set_weight", "mark_route", "stage_cell", "warm_up", "probe_pairs"}
    assert forward.isdisjoint(event.data["effect"]["verb"] for event in after if event.kind == "intent")
    assert made.shape() == made.before


def test_going_back_while_a_person_paused_it(site: Site, tmp_path: Path) -> None:
    """A pause in the canary holds; an abort ends it all the same."""
    with case(site, tmp_path) as made:
        inside = Inside(made)
        rollout_id = inside.start()
        inside.run(rollout_id, until=fact("0.seen"))
        inside.say(rollout_id, "pause")
        paused = inside.run(rollout_id, until=held("operator"))
        assert paused.phase is Phase.HOLDING
        _goes_back(made, inside, rollout_id, "abort")


def _halted(made: Case, inside: Inside) -> str:
    """A rollout whose stable was lost in the canary."""
    rollout_id = inside.start()
    inside.run(rollout_id, until=fact("0.seen"))
    made.crash_stable(None)
    halted = inside.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
    assert halted.fact("halted")["reason"] == "stable_lost"
    return rollout_id


def test_an_abort_said_while_halted_waits_for_stable_and_then_goes_back(site: Site, tmp_path: Path) -> None:
    """Nothing is taken from the canary while stable is away; once stable serves the way back goes on by itself."""
    with case(site, tmp_path) as made:
        inside = Inside(made)
        rollout_id = _halted(made, inside)
        written = len(made.own_writes())
        inside.say(rollout_id, "abort")
        for _ in range(3):
            still = inside.run(rollout_id, until=lambda s: s.phase is Phase.HALTED)
        assert still.phase is Phase.HALTED
        assert len(made.own_writes()) == written
        made.revive()
        state = inside.run(rollout_id)
        assert state.phase is Phase.ABORTED
        assert made.shape() == made.before


def test_going_back_after_stable_came_back(site: Site, tmp_path: Path) -> None:
    """Halted, stable back, abort: at once."""
    with case(site, tmp_path) as made:
        inside = Inside(made)
        rollout_id = _halted(made, inside)
        made.revive()
        _goes_back(made, inside, rollout_id, "abort")
