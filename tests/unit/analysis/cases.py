"""Small worlds for the judge's tests: windows with known truth, reproducible, no judge in here."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rollout.analysis import ArmWindow, Histogram, JudgeConfig, JudgeState, ProbePair, Window, absorb, config_for, new_state
from rollout.analysis.config import Mode
from tests.unit.analysis.test_reference import EDGES, above, lognormal

REFERENCE = lognormal(median=0.22, total=20_000)
QUIET = ArmWindow(0, 0, status="NO_TRAFFIC")
EMPTY = Histogram(EDGES, (0,) * (len(EDGES) + 1))


def config(mode: Mode = "rich", *, rungs: int = 1, noise: tuple[float, float] | None = (0.0, 0.0), **overrides: Any) -> JudgeConfig:
    return config_for(mode, rungs=rungs, reference_ttft=REFERENCE, noise=noise, **overrides)


def arm(rng: np.random.Generator, requests: int, slow: float = 1.0, errors: float = 0.0, tail: float = 0.0) -> ArmWindow:
    """`tail`: the part of the requests that takes six times as long."""
    bounds = sum(
        part * np.array([1.0, *(above(e / factor, 0.22) for e in EDGES), 0.0]) for part, factor in ((1 - tail, slow), (tail, 6 * slow))
    )
    ttft = Histogram(EDGES, tuple(int(c) for c in rng.multinomial(requests, -np.diff(bounds))))
    return ArmWindow(requests, int(rng.binomial(requests, errors)), ttft)


def windows(
    count: int,
    *,
    slow: float = 1.0,
    errors: float = 0.0,
    tail: float = 0.0,
    ratio: float | None = 1.0,
    rung: int = 0,
    first: int = 0,
    seed: int = 1,
    each: int = 100,
) -> Iterator[Window]:
    """`count` windows of `each` requests a side; `ratio` = load ratio."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        yield Window(first + i, rung, 30.0, arm(rng, each), arm(rng, each, slow, errors, tail), (), ratio, 0.5, (each, 2 * each))


def probes(count: int, *, slow: float = 1.0, failing: int = 0, first: int = 0, batch: int = 10, seed: int = 2) -> Iterator[Window]:
    """Windows that are batches of paired probes and saw no user traffic; the canary fails the first `failing` pairs."""
    rng = np.random.default_rng(seed)
    for i in range(count // batch):
        pairs = []
        for j in range(batch):
            stable, canary = 0.2 * np.exp(0.2 * rng.normal(size=2))
            ok = i * batch + j >= failing
            pairs.append(ProbePair(float(stable), float(canary * slow) if ok else None, True, ok))
        yield Window(first + i, 0, 0.0, QUIET, QUIET, tuple(pairs))


def after(asked: JudgeConfig, *parts: Iterator[Window], state: JudgeState | None = None) -> JudgeState:
    """The state after all windows of all parts."""
    state = new_state(asked) if state is None else state
    for part in parts:
        for window in part:
            state = absorb(asked, state, window)
    return state
