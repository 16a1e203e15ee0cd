"""Error rates and speed of the judge on traffic with known truth: `python -m benchmarks.judge_simulation [--reps N] [--only WORD]`.

Prints one line a cell: how often the judge rolled back, promoted or stayed undecided, and how many canary requests it took. Every window
goes through `rollout.analysis.absorb`; there is no second implementation.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.judge_worlds import Drifting, queue_reference, queue_rollout
from rollout.analysis import Histogram, JudgeConfig, Window, absorb, config_for, new_state, verdict
from rollout.analysis.fit import fit_noise

Rng = np.random.Generator
RUNGS_1_1 = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90)
RATE_1_1 = 4.0
IDENTICAL = {
    "iid": Drifting(drift=False),
    "drift": Drifting(),
    "ramp": Drifting(ramp=True),
    "arm05": Drifting(noise=0.05),
    "arm15": Drifting(noise=0.15),
}
WORSE: dict[str, dict[str, Any]] = {
    "+10%": {"slow": 1.1},
    "+20%": {"slow": 1.2},
    "+50%": {"slow": 1.5},
    "x2": {"slow": 2.0},
    "tail 3% x6": {"tail": 0.03},
    "errors 1%": {"errors": 0.01},
    "errors 5%": {"errors": 0.05},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "tolerated 0, v=0": {"tolerated_latency": 0.0, "tolerated_error_odds": 1.0},
    "tolerated 5%, v=0": {},
    "tolerated 0, fitted": {"tolerated_latency": 0.0, "tolerated_error_odds": 1.0, "fitted": True},
    "tolerated 5%, fitted": {"fitted": True},
}


@dataclass(frozen=True)
class Outcome:
    """How one rollout ended, after how many canary requests and windows."""

    kind: str
    requests: int
    windows: int


def judged(config: JudgeConfig, windows: Iterable[Window], promote: bool = True) -> Outcome:
    """Absorbs windows until FAIL or (if asked for) PASS."""
    state, requests, seen = new_state(config), 0, 0
    for window in windows:
        state = absorb(config, state, window)
        requests, seen = requests + window.canary.requests, seen + 1
        if state.crossing or state.breaker.tripped:
            return Outcome("fail", requests, seen)
        if promote and verdict(config, state).kind == "pass":
            return Outcome("pass", requests, seen)
    return Outcome("undecided", requests, seen)


def configured(world: Drifting, rng: Rng, setting: dict[str, Any]) -> JudgeConfig:
    """The config of one rollout: its own hour of reference, its own fit where the setting asks for one."""
    reference = world.reference(rng)
    options = {key: value for key, value in setting.items() if key != "fitted"}
    noise = fit_noise(reference, world.history(rng)) if setting.get("fitted") else (0.0, 0.0)
    return config_for("rich", rungs=4 if world.ramp else 1, reference_ttft=reference, noise=noise, **options)


def cell(name: str, reps: int, seed: int, once: Callable[[Rng], Outcome]) -> list[Outcome]:
    """Runs and prints one cell."""
    started = time.perf_counter()
    outcomes = [once(np.random.default_rng((seed, i))) for i in range(reps)]
    parts = []
    for kind in ("fail", "pass", "undecided"):
        some = [o for o in outcomes if o.kind == kind]
        text = f"{kind} {len(some) / reps:6.1%}"
        if some and kind != "undecided":
            text += (
                f" (median {np.median([o.requests for o in some]):.0f} canary requests, {np.median([o.windows for o in some]) / 2:g} min)"
            )
        parts.append(text)
    print(f"{name:48s} {' | '.join(parts)}   [{time.perf_counter() - started:.0f} s]", flush=True)
    return outcomes


def drifting(world: Drifting, setting: dict[str, Any], promote: bool) -> Callable[[Rng], Outcome]:
    """One rollout of a drifting world under a setting."""

    def once(rng: Rng) -> Outcome:
        return judged(configured(world, rng, setting), world.rollout(rng), promote)

    return once


def one_replica(slow: float, each: int) -> Callable[[Rng], Outcome]:
    """One rollout with one replica a side under the defaults for that case; the ladder goes on after a PASS, FAIL stays possible."""

    def once(rng: Rng) -> Outcome:
        reference = queue_reference(rng, RATE_1_1)
        config = config_for("rich", rungs=len(RUNGS_1_1), reference_ttft=reference)
        return judged_over_ladder(config, queue_rollout(rng, RATE_1_1, slow, RUNGS_1_1, each))

    return once


def judged_over_ladder(config: JudgeConfig, windows: Iterable[Window]) -> Outcome:
    """Like `judged`, but a PASS is only noted and the later rungs may still fail."""
    state, requests, seen, passed = new_state(config), 0, 0, False
    for window in windows:
        state = absorb(config, state, window)
        requests, seen = requests + window.canary.requests, seen + 1
        if state.crossing or state.breaker.tripped:
            return Outcome("fail", requests, seen)
        passed = passed or verdict(config, state).kind == "pass"
    return Outcome("pass" if passed else "undecided", requests, seen)


def one_claim(traffic: str, unacceptable: float, slow: float = 1.0) -> Callable[[Rng], Outcome]:
    """The body claim alone, nothing else asked and no rollback in between: how soon an identical canary proves it, or how often one
    exactly at the margin does (at most beta).
    """

    def once(rng: Rng) -> Outcome:
        world = replace(IDENTICAL[traffic], windows=300 if slow == 1.0 else 120, slow=slow)
        config = configured(world, rng, {"unacceptable_latency": unacceptable, "tolerated_latency": 0.0})
        state, requests = new_state(config), 0
        for seen, window in enumerate(world.rollout(rng)):
            state = absorb(config, state, window)
            requests += window.canary.requests
            claims = verdict(config, state).details["evidence_for"]
            if claims["log10_by_claim"]["ttft body"] >= claims["needed_log10"]:
                return Outcome("pass", requests, seen + 1)
        return Outcome("undecided", requests, world.windows)

    return once


def cells() -> dict[str, Callable[[Rng], Outcome]]:
    """Every cell by name."""
    found: dict[str, Callable[[Rng], Outcome]] = {}
    for name, setting in SETTINGS.items():
        for traffic, world in IDENTICAL.items():
            found[f"null, {traffic}, {name}"] = drifting(world, setting, promote=False)
        for canary, change in WORSE.items():
            found[f"detect, {canary}, {name}"] = drifting(replace(IDENTICAL["drift"], **change), setting, promote=False)
    race: dict[str, dict[str, Any]] = {"identical": {}, "+5%": {"slow": 1.05}, **WORSE, "tail 6% x6": {"tail": 0.06}}
    for canary, change in race.items():
        found[f"race, {canary}"] = drifting(replace(IDENTICAL["drift"], **change), SETTINGS["tolerated 5%, v=0"], promote=True)
    for traffic in ("iid", "drift"):
        for margin in (0.1, 0.2, 0.3, 0.5):
            found[f"promote, body +{margin:.0%}, {traffic}"] = one_claim(traffic, margin)
        for margin in (0.2, 0.5):
            found[f"at the margin, body +{margin:.0%}, {traffic}"] = one_claim(traffic, margin, slow=1 + margin)
    found["1+1 in flight, identical"] = one_replica(1.0, 20)
    found["1+1 in flight, +20%"] = one_replica(1.2, 20)
    found["1+1 in flight, x2"] = one_replica(2.0, 20)
    return found


def speed(requests: int, share: float, noise: tuple[float, float]) -> float:
    """Median milliseconds of `absorb` for a window with one latency histogram and errors."""
    world = Drifting(drift=False, rate=requests / 30.0, share=share, windows=40)
    rng = np.random.default_rng(1)
    reference: Histogram = world.reference(rng)
    config = config_for("rich", rungs=1, reference_ttft=reference, noise=noise)
    state, took = new_state(config), []
    for window in world.rollout(rng):
        started = time.perf_counter()
        state = absorb(config, state, window)
        took.append(time.perf_counter() - started)
    return float(np.median(took)) * 1e3


def main() -> None:
    """Runs the cells whose name contains --only, then the speed table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name, once in cells().items():
        if options.only in name:
            cell(name, options.reps, options.seed, once)
    for requests in (300, 20_000):
        for noise in ((0.0, 0.0), (0.2, 0.8)):
            print(f"window of {requests} requests, v={noise[0]}: {speed(requests, 0.1, noise):.2f} ms")


if __name__ == "__main__":
    main()
