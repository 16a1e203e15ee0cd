"""Rollouts through the judge, many side by side: every window goes through `rollout.analysis`, there is no second implementation here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.judge.worlds import Drifting, Rng, Traffic
from rollout.analysis import Histogram, JudgeConfig, JudgeState, Window, absorb, absorb_many, config_for, new_state, verdict
from rollout.analysis.design import Design, design_of, log_pass
from rollout.analysis.fit import fit_noise

Until = Literal["fail", "pass", "first"]
SAME = 1e-4  # of evidence, in natural logarithms: one step of the half precision the laws are kept in
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

    def note(self, state: JudgeState, window: Window, until: Until) -> None:
        """Takes the state after one more window and writes down what it decides. A promotion counts as proved even after a rollback."""
        self.state, self.seen, self.requests = state, self.seen + 1, self.requests + window.canary.requests
        if self.failed is None and (state.crossing or state.breaker.tripped):
            self.failed = (self.seen, self.requests)
        if until == "fail" or self.passed or not proved(self.design, state):
            return
        if self.failed or verdict(self.config, state).kind == "pass":
            self.passed = (self.seen, self.requests)

    def over(self, until: Until) -> bool:
        """Whether nothing more is asked of this rollout."""
        return {"fail": self.failed, "pass": self.passed, "first": self.failed or self.passed}[until] is not None

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
            races[i].note(state, window, until)
    return [race.outcome() for race in races]


def single_differs(configs: Sequence[JudgeConfig], traffic: Traffic) -> tuple[int, float]:
    """How many of these rollouts `absorb_many` decides otherwise than `absorb` (evidence apart by more than `SAME`, another crossing
    or tally), and the largest distance of the evidence in natural logarithms: sums in another order differ in the last bits.
    """
    many = [new_state(config) for config in configs]
    for t in range(traffic.windows):
        many = absorb_many(list(configs), many, [traffic.window(i, t) for i in range(traffic.rollouts)])
    differing, largest = 0, 0.0
    for i, config in enumerate(configs):
        single = new_state(config)
        for window in traffic.one(i):
            single = absorb(config, single, window)
        apart = max(float(np.abs(bank.log - many[i].banks[name].log).max(initial=0.0)) for name, bank in single.banks.items())
        differing += apart > SAME or _decided(single) != _decided(many[i])
        largest = max(largest, apart)
    return differing, largest


def _decided(state: JudgeState) -> tuple[Any, ...]:
    crossing = state.crossing and (state.crossing.window, state.crossing.culprits)
    return state.tally, state.breaker, state.starts, crossing


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
