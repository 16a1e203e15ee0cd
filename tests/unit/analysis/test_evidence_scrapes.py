"""From counters to evidence: restarts, scrapes that fail or come twice, buckets that change, and no request counted twice."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.analysis import ArmWindow, CounterSample, InstanceCounters, JudgeState, Window, absorb, config_for, new_state, window_delta
from rollout.analysis.design import design_of
from tests.unit.analysis.random_windows import REFERENCE

FULL, COARSE = (0.1, 0.25, 0.5, 1.0, 2.5), (0.1, 0.5, 1.0)
ASKED = config_for("rich", rungs=1, reference_ttft=REFERENCE, noise=(0.0, 0.0))


@dataclass
class Engine:
    """A process with Prometheus-like counters. `bounds` may change with a restart only, as with a new version of the engine."""

    bounds: tuple[float, ...] = FULL
    started: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failed: int = 0

    def sample(self) -> InstanceCounters:
        buckets = {le: sum(x <= le for x in self.latencies) for le in (*self.bounds, math.inf)}
        return InstanceCounters(len(self.latencies), self.failed, buckets, None, self.started)


Act = tuple[str, int, float]  # what, which engine, a number
acts = st.lists(
    st.tuples(
        st.sampled_from(["serve", "serve", "serve", "fail", "restart", "upgrade", "scrape", "scrape", "lost scrape", "twice"]),
        st.integers(0, 3),
        st.sampled_from([0.05, 0.2, 0.3, 0.7, 1.5, 9.0]),
    ),
    max_size=40,
)


@dataclass
class Rollout:
    """Engines 0 and 1 are stable, 2 and 3 the canary. Keeps the last good sample of each side, as the caller of `window_delta` does."""

    engines: list[Engine] = field(default_factory=lambda: [Engine() for _ in range(4)])
    before: list[CounterSample] = field(default_factory=list)
    state: JudgeState = field(default_factory=lambda: new_state(ASKED))
    windows: list[Window] = field(default_factory=list)
    served: Counter[int] = field(default_factory=Counter)
    clock: float = 0.0
    anew: bool = False  # some engine has begun anew since the last good scrape

    def samples(self) -> list[CounterSample]:
        return [{str(i): self.engines[i].sample() for i in side} for side in ((0, 1), (2, 3))]

    def look(self, readable: bool) -> None:
        now: list[CounterSample] | list[None] = self.samples() if readable else [None, None]
        if self.before:
            stable, canary = (window_delta(old, new) for old, new in zip(self.before, now, strict=True))
            window = Window(len(self.windows), 0, 30.0, stable, canary, (), 1.0)
            self.windows.append(window)
            old = self.state
            self.state = absorb(ASKED, old, window)
            if self.anew or not readable:
                assert_nothing_moved(old, self.state)
        if readable:
            self.before, self.anew = self.samples(), False

    def act(self, what: str, which: int, number: float) -> None:
        self.clock += 10.0
        engine = self.engines[which]
        if what in ("serve", "fail"):
            engine.latencies.append(number)
            engine.failed += what == "fail"
            self.served[which // 2] += 1
        elif what in ("restart", "upgrade"):
            bounds = COARSE if what == "upgrade" else engine.bounds
            self.engines[which], self.anew = Engine(bounds, self.clock), True
        elif what == "twice" and self.windows:
            repeated = absorb(ASKED, self.state, self.windows[-1])
            assert repeated is self.state
        elif what != "twice":
            self.look(readable=what == "scrape")


def assert_nothing_moved(before: JudgeState, after: JudgeState) -> None:
    for name, bank in before.banks.items():
        np.testing.assert_array_equal(after.banks[name].log, bank.log)


@settings(max_examples=100, deadline=None)
@given(acts)
def test_whatever_happens_between_scrapes_no_request_is_judged_twice(todo: list[Act]) -> None:
    rollout = Rollout()
    rollout.look(readable=True)
    for what, which, number in todo:
        rollout.act(what, which, number)
    rollout.look(readable=True)
    tally = rollout.state.tally
    assert tally.live_stable <= rollout.served[0]
    assert tally.live_canary <= rollout.served[1]
    assert sum(w.canary.requests for w in rollout.windows) <= rollout.served[1]
    for side in ("stable", "canary"):
        bucketed = sum(h.total for w in rollout.windows if (h := getattr(w, side).ttft))
        assert bucketed <= rollout.served[side == "canary"]
    if not any(what in ("restart", "upgrade") for what, _, _ in todo):
        assert sum(w.stable.requests for w in rollout.windows) == rollout.served[0]  # a lost scrape makes the next window longer


def test_a_window_in_which_an_engine_began_anew_is_left_out_for_both_sides() -> None:
    """Though it served more since than the one before it."""
    rollout = Rollout()
    rollout.act("serve", 2, 0.2)
    rollout.look(readable=True)
    rollout.act("restart", 2, 0.0)
    for engine in (0, 2):
        for _ in range(30):
            rollout.act("fail" if engine else "serve", engine, 0.2)
    rollout.look(readable=True)
    assert rollout.state.tally.dropped == 1
    assert rollout.windows[-1].canary.restarts == 1


def test_an_upgraded_canary_with_other_buckets_is_compared_where_both_have_edges() -> None:
    """The edges that only one side has say nothing; the shared ones go on."""
    rollout = Rollout()
    rollout.act("upgrade", 2, 0.0)
    rollout.act("upgrade", 3, 0.0)
    rollout.look(readable=True)
    for _ in range(40):
        rollout.act("serve", 0, 0.2)
        rollout.act("serve", 2, 0.7)
    rollout.look(readable=True)
    moved = rollout.state.banks["fail/ttft/edges/0"].log.any(axis=1)
    edges = design_of(ASKED).latency[0].edges
    assert {e for e, there in zip(edges, moved, strict=True) if there} == {0.5}  # 0.25 is not the canary's, at the others all are equal
    assert rollout.state.tally.live_canary == 40


def test_a_missing_scrape_is_an_error_that_moves_no_evidence() -> None:
    state = absorb(ASKED, new_state(ASKED), Window(0, 0, 30.0, window_delta({}, None), ArmWindow(0, 0), (), 1.0))
    assert not any(bank.log.any() for bank in state.banks.values())
    assert state.tally.stable_status == "METRIC_ERROR"
