"""Thirty requests an hour and one replica a side, on a clock that skips the waits: what is decided, by what, and after how many hours.

In every run one bad canary on the sandbox; in `make accept` all of them, there and on the real server. The time is the plan's own: two
hours at 50 %, paired probes, a prompt set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import rollout.engine.run
from rollout.domain.state import Phase, RolloutState
from rollout.errors import ExitCode
from rollout.testing.answers import prompt_set
from tests.contract.site import Site
from tests.e2e.hours import Skipping, User
from tests.e2e.inside import Inside, keys
from tests.e2e.judged import DEFECTS, ENGINE, Defect, prepared
from tests.e2e.support import KINDS, Case, opened

PROMPTS, TOKENS = 120, 8
HOURS = 8.0
"""virtual hours within which an identical canary is promoted, with nobody there"""
WINDOW = 2 * 3600.0
SPARSE = {
    "mode: rich": "mode: sparse",
    "window: 1s\n  min": "window: 30s\n  min",
    "min_requests: 20": f"quality: {{file: set.jsonl, batch: 20, max_tokens: {TOKENS}}}",
    "min_time: 2s": "min_time: 10m",
    "min_time_before_full: MIN": "min_time_before_full: 2h",
    "deadline: DEADLINE": "deadline: 4h",
    "margins: {ttft: {unacceptable: 0.4}, errors: {unacceptable: 0.03}}\n": "\n",
    "window: {duration: 1s}": "window: {duration: 2h}",
    "drain: {quiet: 1s, deadline: 15s}": "drain: {quiet: 30s, deadline: 30m}",
}
HELPED = {"ttft_double": DEFECTS["ttft_double"], "errors": Defect("errors", {"fail_rate": 0.2}, "errors")}
DOUBLE = replace(HELPED["ttft_double"], culprit="probes")
WRONG = Defect("wrong", {"wrong_rate": 0.2}, "quality")
BAD = {"ttft_double": DOUBLE, "errors": HELPED["errors"], "wrong": WRONG}
SLOW_ENGINE = {**ENGINE, "ttft_base": 0.08, "jitter": 0.1}
"""a client that shares two cores with everything else tells 80 ms from 160 ms"""


@dataclass
class Ended:
    """How it ended, and after how many virtual hours it was decided."""

    state: RolloutState
    decided: float
    requests: int
    user: User


@contextmanager
def server(kind: str, folder: Path) -> Iterator[Site]:
    with opened(kind, folder) as site, keys(site):
        yield site


def _run(site: Site, home: Path, defect: Defect, seed: int) -> Ended:
    (home / "set.jsonl").write_text(prompt_set(PROMPTS, TOKENS), "utf-8")
    with prepared(site, home, defect, seed, changes=SPARSE, engine=SLOW_ENGINE) as made, pytest.MonkeyPatch.context() as patched:
        patched.setattr(rollout.engine.run, "LISTEN", 3600.0)
        for _ in range(60):
            assert site.ask(made.route).status_code == 200
        user = User(site, made.route)
        clock = Skipping(30.0, seed, user.ask)
        inside = Inside(made, clock, limit=20000)
        began = clock.monotonic()
        state = inside.run(inside.start(), until=lambda s: s.phase is Phase.PROMOTED or s.terminal)
        decided = (clock.monotonic() - began) / 3600
        if not state.terminal:
            state = inside.run(state.id)
        print(f"{defect.name}: {state.phase.value} after {decided:.2f} virtual hours, {clock.requests} requests, {user.failed} failed")
        return Ended(state, decided, clock.requests, user)


def _verdict(state: RolloutState) -> dict[str, Any]:
    found: dict[str, Any] = (state.fact("0.judge") or {})["verdict"]
    return found


def _plan(made: Case) -> str:
    shown = made.command("plan", str(made.plan))
    assert shown.returncode == ExitCode.DONE, shown.stderr
    return " ".join(shown.stdout.split())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_an_identical_canary_is_through_within_eight_hours_and_the_window(kind: str, tmp_path: Path) -> None:
    with server(kind, tmp_path) as site:
        ended = _run(site, tmp_path, DEFECTS["identical"], 1)
    assert ended.state.phase is Phase.COMPLETED, _verdict(ended.state)["sentence"]
    assert ended.decided <= HOURS
    assert ended.user.failed == 0
    assert 30 <= ended.requests <= 30 * (ended.decided + WINDOW / 3600) * 2


def _cases() -> Iterator[Any]:
    for kind in KINDS:
        for name, defect in BAD.items():
            slow = [] if kind.id == "sandbox" and name == "errors" else [pytest.mark.slow]
            yield pytest.param(*kind.values, defect, id=f"{kind.id}-{name}", marks=[*kind.marks, *slow])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "defect"), [*_cases()])
def test_a_bad_canary_is_taken_back(kind: str, defect: Defect, tmp_path: Path) -> None:
    with server(kind, tmp_path) as site:
        ended = _run(site, tmp_path, defect, 1)
    assert ended.state.phase is Phase.ROLLED_BACK, _verdict(ended.state)["sentence"]
    said = ended.state.undo
    assert said is not None
    assert said.actor == "judge"
    assert ended.decided <= 4.0
    found = _verdict(ended.state)
    broken = "failures in the last" in found["sentence"]
    assert found["details"]["evidence_against"]["culprits"][:1] == [defect.culprit] or (broken and defect.culprit == "errors")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_what_so_few_requests_cannot_show_is_said_before_anything_is_touched(kind: str, tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text(prompt_set(PROMPTS, TOKENS), "utf-8")
    with server(kind, tmp_path) as site, prepared(site, tmp_path, DEFECTS["identical"], 1, changes=SPARSE, engine=SLOW_ENGINE) as made:
        assert "a slow-down of +20 % cannot be detected" in _plan(made)
