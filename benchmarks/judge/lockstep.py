"""Rollouts through the judge, many side by side: every window goes through `rollout.analysis`, there is no second implementation here."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.judge.worlds import Drifting, Rng, Traffic
from rollout.analysis import Histogram, JudgeConfig, JudgeState, Window, config_for, new_state, verdict
from rollout.analysis.design import Design, design_of, log_pass
from rollout.analysis.fit import fit_noise
from rollout.analysis.judge import absorb, absorb_many

Until = Literal["fail", "pass", "first", "end"]
SETTINGS: dict[str, dict[str, Any]] = {
    "tolerated 0, v=0": {"tolerated_latency": 0.0, "tolerated_error_odds": 1.0},
    "tolerated 5 %, v=0": {},
    "tolerated 0, fitted": {"tolerated_latency": 0.0, "tolerated_error_odds": 1.0, "fitted": True},
    "tolerated 5 %, fitted": {"fitted": True},
}


@dataclass(frozen=True)
class Outcome:
    """When one rollout failed and when its promotion was proved: windows absorbed by then, None = never. `*_requests`: canary's by then."""

    failed: int | None
    passed: int | None
    fail_requests: int = 0
    pass_requests: int = 0

    @property
    def kind(self) -> str:
        """What the rollout came to: FAIL is looked at first."""
        if self.failed is not None and (self.passed is None or self.failed <= self.passed):
            return "fail"
        return "undecided" if self.passed is None else "pass"


class _Race:
    """One rollout on its way."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config, self.design, self.state = config, design_of(config), new_state(config)
        self.seen = self.requests = 0
        self.failed: tuple[int, int] | None = None
        self.passed: tuple[int, int] | None = None

    def note(self, state: JudgeState, window: Window) -> None:
        """Takes the state after one more window and writes down what it decides."""
        self.state, self.seen, self.requests = state, self.seen + 1, self.requests + window.canary.requests
        if self.failed is None and (state.crossing or state.breaker.tripped):
            self.failed = (self.seen, self.requests)
        if self.passed is None and proved(self.design, state) and (self.failed or verdict(self.config, state).kind == "pass"):
            self.passed = (self.seen, self.requests)

    def over(self, until: Until) -> bool:
        """Whether nothing more is asked of this rollout."""
        if until == "end":
            return False
        ended = {"fail": self.failed, "pass": self.passed, "first": self.failed or self.passed}
        return ended[until] is not None

    def outcome(self) -> Outcome:
        """How it ended."""
        failed, passed = self.failed or (None, 0), self.passed or (None, 0)
        return Outcome(failed[0], passed[0], failed[1], passed[1])


def proved(design: Design, state: JudgeState) -> bool:
    """Whether the promotion evidence suffices, whatever the rollback evidence says."""
    claims = log_pass(design, state)
    return bool(claims) and min(claims.values()) >= -math.log(design.config.beta)


def judge_many(configs: Sequence[JudgeConfig], traffic: Traffic, until: Until) -> list[Outcome]:
    """Each rollout of `traffic` under its own config. `until`: what ends one early; with "pass" a rollback does not end it."""
    races = [_Race(config) for config in configs]
    for t in range(traffic.windows):
        going = [i for i, race in enumerate(races) if not race.over(until)]
        if not going:
            break
        windows = [traffic.window(i, t) for i in going]
        states = absorb_many([races[i].config for i in going], [races[i].state for i in going], windows)
        for i, state, window in zip(going, states, windows, strict=True):
            races[i].note(state, window)
    return [race.outcome() for race in races]


def judge_one(config: JudgeConfig, windows: Iterable[Window], until: Until) -> Outcome:
    """One rollout, window by window through `absorb`."""
    race = _Race(config)
    for window in windows:
        race.note(absorb(config, race.state, window), window)
        if race.over(until):
            break
    return race.outcome()


def single_differs(configs: Sequence[JudgeConfig], traffic: Traffic) -> int:
    """How many of these rollouts end with another state through `absorb_many` than through `absorb`."""
    many = [new_state(config) for config in configs]
    for t in range(traffic.windows):
        many = absorb_many(list(configs), many, [traffic.window(i, t) for i in range(traffic.rollouts)])
    differing = 0
    for i, config in enumerate(configs):
        state = new_state(config)
        for window in traffic.one(i):
            state = absorb(config, state, window)
        differing += state.to_json() != many[i].to_json()
    return differing


def configured(
    setting: str, references: Sequence[Histogram], noises: Sequence[tuple[float, float]], rungs: int = 1, **more: Any
) -> list[JudgeConfig]:
    """The configs of rollouts under one of SETTINGS, each with its own reference and (where the setting is fitted) its own noise."""
    options = {**SETTINGS[setting], **more}
    fitted = options.pop("fitted", False)
    noises = noises if fitted else [(0.0, 0.0)] * len(references)
    return [config_for("rich", rungs=rungs, reference_ttft=r, noise=n, **options) for r, n in zip(references, noises, strict=True)]


def prepared(world: Drifting, rng: Rng, count: int, fitted: bool) -> tuple[list[Histogram], list[tuple[float, float]]]:
    """The hour before each rollout: stable's histogram and, if asked for, the noise fitted on an A/A comparison."""
    references = world.references(rng, count)
    if not fitted:
        return references, [(0.0, 0.0)] * count
    return references, [fit_noise(r, h) for r, h in zip(references, world.histories(rng, count), strict=True)]


def median(values: Iterable[float]) -> float | None:
    """None of nothing."""
    found = list(values)
    return float(np.median(found)) if found else None
