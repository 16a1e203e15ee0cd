"""The judge's step: `absorb` takes one window into the evidence. Pure, and a window is used exactly once.

What may be concluded from a window depends on its load ratio: an idle replica looks fast, a crowded one slow. The rollback evidence is
opened afresh at each traffic step; the promotion evidence is carried over all rungs.

There is one path: `absorb` is `absorb_many` of one rollout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rollout.analysis.asks import Ask, Step, advance, answer
from rollout.analysis.betting import PROBE_ODDS, SHARE_SHIFTS, probes_harmless, probes_over, probes_slower, share_gain
from rollout.analysis.breaker import Breaker
from rollout.analysis.config import JudgeConfig
from rollout.analysis.design import BALANCED, SHARE_ALARM, Design, design_of, log_fail, share_log_odds
from rollout.analysis.errors import ALTERNATIVES, Stratum, harmless_gain, worse
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import FAIL_STEPS, LatencyTest
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.quality import FRACTIONS, bets_against, quality_kept, quality_lost
from rollout.analysis.samples import Window
from rollout.analysis.slope import SLOPES, Trend
from rollout.analysis.state import Crossing, JudgeState
from rollout.analysis.tally import counted, own_errors, own_only

_QUIET = Noise()
_HOUR = 3600.0


def new_state(config: JudgeConfig) -> JudgeState:
    """A judge that has seen nothing. Each attempt at a rollout begins with one."""
    banks = {"pass/errors": _fresh(len(ALTERNATIVES)), "pass/probes": _fresh(len(PROBE_ODDS)), "share": _fresh(len(SHARE_SHIFTS))}
    if config.quality:
        banks["pass/quality"] = _fresh(len(FRACTIONS))
    design = design_of(config)
    for test in design.latency:
        banks[f"pass/{test.metric}"] = test.fresh_pass()
    if design.primary:
        banks["effect/low"] = banks["effect/high"] = design.primary.fresh_interval()
    return JudgeState(banks=banks)


def absorb(config: JudgeConfig, state: JudgeState, window: Window) -> JudgeState:
    """The state after one more window. A window whose id is not newer than the last one changes nothing."""
    return absorb_many([config], [state], [window])[0]


def absorb_many(configs: Sequence[JudgeConfig], states: Sequence[JudgeState], windows: Sequence[Window]) -> list[JudgeState]:
    """`absorb` for many rollouts at once, each with its own config, state and window: the same steps, their arithmetic done together."""
    looks = [_look(*one) for one in zip(configs, states, windows, strict=True)]
    tables = answer([ask for look in looks for ask in look.asks])
    steps, start = [], 0
    for look in looks:
        mine = tables[start : start + len(look.asks)]
        start += len(look.asks)
        steps += [Step(look.banks[name], None if place is None else mine[place], noise) for name, place, noise in look.moves]
    moved = iter(advance(steps))
    for look in looks:
        for name, _, _ in look.moves:
            look.banks[name] = next(moved)
    return [_settled(look) for look in looks]


@dataclass
class _Look:
    """One window on its way into the evidence: what it asks, and which bank moves on with which answer."""

    design: Design
    state: JudgeState
    window: Window
    banks: dict[str, Bank]
    usable: bool = False
    live: bool = False
    asks: list[Ask] = field(default_factory=list)
    moves: list[tuple[str, int | None, Noise]] = field(default_factory=list)

    @property
    def config(self) -> JudgeConfig:
        return self.design.config

    @property
    def starts(self) -> int:
        return len(self.state.starts)

    @property
    def used_before(self) -> bool:
        return self.window.id <= self.state.last_id

    def want(self, name: str, ask: Ask | int | None, noise: Noise) -> int | None:
        """`ask`: a new table, the place of one already asked for, or None = nothing was seen. Returns the table's place."""
        if isinstance(ask, Ask):
            self.asks.append(ask)
            ask = len(self.asks) - 1
        self.moves.append((name, ask, noise))
        return ask


def _look(config: JudgeConfig, state: JudgeState, window: Window) -> _Look:
    design = design_of(config)
    if window.id <= state.last_id:
        return _Look(design, state, window, {})
    state = _opened(design, state, window)
    usable = not (window.weight_changed or window.stable.restarts or window.canary.restarts)
    live = usable and window.load_ratio is not None and window.stable.status == window.canary.status == "OK"
    look = _Look(design, state, window, dict(state.banks), usable, live)
    if not own_only(window):
        for test in design.latency:
            _latency(look, test)
    _errors(look)
    return look


def _settled(look: _Look) -> JudgeState:
    """The state with everything in it; latency and error odds stand in the look's banks already."""
    state, window, banks = look.state, look.window, look.banks
    if look.used_before:
        return state
    _probes(look)
    _quality(look)
    trend = _memory(look)
    if look.usable and window.share_counts and window.expected_share is not None:
        banks["share"] = _bet(banks["share"], share_gain(*window.share_counts, window.expected_share))
    state = replace(
        state,
        last_id=window.id,
        elapsed=state.elapsed + window.seconds,
        banks=banks,
        trend=trend,
        tally=counted(look.design, state.tally, window, look.usable, look.live),
        breaker=_breaker(look.config, state, window, look.usable),
    )
    return _crossed(look.design, state)


def _opened(design: Design, state: JudgeState, window: Window) -> JudgeState:
    """On a rung not seen before: a fresh copy of the rollback evidence (while there are restarts left) and of the share test."""
    if state.rung is not None and window.rung <= state.rung:
        return state
    config, banks = design.config, dict(state.banks)
    banks["share"] = _fresh(len(SHARE_SHIFTS))
    starts, trend = state.starts, state.trend
    if len(starts) < config.rungs:
        s = len(starts)
        for test in design.latency:
            banks[f"fail/{test.metric}/edges/{s}"], banks[f"fail/{test.metric}/ordinal/{s}"] = test.fresh_fail()
        banks[f"fail/errors/{s}"] = _fresh(len(FAIL_STEPS) - 1)
        banks[f"fail/probes/{s}"] = _fresh(len(PROBE_ODDS))
        if config.probe_slo:
            banks[f"fail/probes/slo/{s}"] = _fresh(len(PROBE_ODDS))
        if config.quality:
            banks[f"fail/quality/{s}"] = _fresh(bets_against(config.tolerated("quality"), binary=config.quality == "binary"))
        if config.memory_noise:
            banks[f"fail/memory/{s}"] = _fresh(len(SLOPES))
        starts, trend = (*starts, window.rung), Trend()
    tally = replace(state.tally, share_canary=0, share_total=0)
    return replace(state, rung=window.rung, starts=starts, banks=banks, trend=trend, tally=tally)


def _latency(look: _Look, test: LatencyTest) -> None:
    window = look.window
    ours, theirs = window.canary.histogram(test.metric), window.stable.histogram(test.metric)
    ratio = window.load_ratio or 0.0
    both = (ours, theirs) if look.live and ours and theirs else None
    failing = both if ratio <= BALANCED[1] else None
    passing = both if ratio >= BALANCED[0] else None
    edges: Ask | int | None = test.thresholds(*failing) if failing else None
    profile: Ask | int | None = test.ordinal(*failing) if failing else None
    for s in range(look.starts):
        edges = look.want(f"fail/{test.metric}/edges/{s}", edges, test.noise)
        profile = look.want(f"fail/{test.metric}/ordinal/{s}", profile, test.noise)
    look.want(f"pass/{test.metric}", test.harmless(*passing) if passing else None, test.noise)
    if test is look.design.primary:
        effect = test.effect(*both) if both else None
        low = look.want("effect/low", effect if failing else None, test.noise)
        look.want("effect/high", (effect if low is None else low) if passing else None, test.noise)


def _errors(look: _Look) -> None:
    config, window, banks = look.config, look.window, look.banks
    served: Stratum = (window.canary.requests, window.stable.requests, window.canary.errors, window.stable.errors)
    own = len(window.pairs) + len(window.quality)
    probed: Stratum = (own, own, *own_errors(window))
    strata = [s for s, there in ((served, look.live), (probed, own > 0)) if there]
    if not strata:
        return
    ask: Ask | int | None = worse(strata, config.tolerated("errors"))
    for s in range(look.starts):
        ask = look.want(f"fail/errors/{s}", ask, _QUIET)
    t = look.state.tally
    seen = (
        t.errors_canary + t.errors_stable + t.pair_errors_canary + t.pair_errors_stable,
        t.live_canary + t.live_stable + 2 * (t.pairs + t.quality_pairs),
    )
    if config.mode == "rich" and config.live:
        strata = [served] if look.live else []
    for stratum in strata:
        banks["pass/errors"] = _bet(banks["pass/errors"], harmless_gain(stratum, seen, config.unacceptable("errors")))


def _probes(look: _Look) -> None:
    config, window, banks = look.config, look.window, look.banks
    if not window.pairs:
        return
    tolerated = config.tolerated("probes")
    slower = probes_slower(window.pairs, tolerated)
    for s in range(look.starts):
        banks[f"fail/probes/{s}"] = _bet(banks[f"fail/probes/{s}"], slower)
        if config.probe_slo:
            banks[f"fail/probes/slo/{s}"] = _bet(banks[f"fail/probes/slo/{s}"], probes_over(window.pairs, config.probe_slo, tolerated))
    banks["pass/probes"] = _bet(banks["pass/probes"], probes_harmless(window.pairs, config.unacceptable("probes")))


def _quality(look: _Look) -> None:
    config, window, banks = look.config, look.window, look.banks
    if not window.quality or not config.quality:
        return
    lost = quality_lost(window.quality, config.tolerated("quality"), binary=config.quality == "binary")
    for s in range(look.starts):
        banks[f"fail/quality/{s}"] = _bet(banks[f"fail/quality/{s}"], lost)
    banks["pass/quality"] = _bet(banks["pass/quality"], quality_kept(window.quality, config.unacceptable("quality")))


def _memory(look: _Look) -> Trend:
    """The slope of this rung alone: another share is another level, and so is a process that began anew. A crowded canary needs more, so
    it is not blamed.
    """
    config, state, window = look.config, look.state, look.window
    if config.memory_noise is None or own_only(window) or state.starts[-1] != window.rung:
        return state.trend
    ours, theirs = window.canary.memory_used, window.stable.memory_used
    if window.canary.restarts or window.stable.restarts:
        return state.trend.parted()
    up = {window.canary.status, window.stable.status} <= {"OK", "NO_TRAFFIC"}  # a side that is down uses little
    if ours is None or theirs is None or not (up and look.usable) or window.load_ratio is None or window.load_ratio > BALANCED[1]:
        return state.trend.skipped()
    if state.trend.seen and float(ours - theirs) == state.trend.y:
        return state.trend.skipped()  # to the byte: the reading of before, told once more
    trend = state.trend.observed((state.elapsed + window.seconds) / _HOUR, float(ours - theirs), *config.memory_noise)
    name = f"fail/memory/{len(state.starts) - 1}"
    look.banks[name] = Bank(trend.evidence(config.tolerated("memory"))[None, :], look.banks[name].law)
    return trend


def _breaker(config: JudgeConfig, state: JudgeState, window: Window, usable: bool) -> Breaker:
    breaker = state.breaker.restarted(max(0, window.canary.restarts - window.stable.restarts), state.elapsed + window.seconds)
    if usable or not (window.stable.restarts or window.canary.restarts):
        a, b = own_errors(window)
        own = len(window.pairs) + len(window.quality)
        breaker = breaker.requests(
            (window.canary.requests + own, window.canary.errors + a), (window.stable.requests + own, window.stable.errors + b)
        )
    return breaker.judged(window.memory_available, config.memory_floor)


def _crossed(design: Design, state: JudgeState) -> JudgeState:
    """Remembers the first time the rollback evidence suffices; not while the served share is in doubt."""
    need = -math.log(design.config.alpha)
    if state.crossing or share_log_odds(design.config, state) >= math.log(SHARE_ALARM):
        return state
    total, parts = log_fail(design, state)
    if total < need:
        return state
    return replace(state, crossing=Crossing(state.last_id, total, tuple(m for m, log in parts.items() if log >= need)))


def _fresh(bets: int) -> Bank:
    return Bank.fresh(1, bets, _QUIET)


def _bet(bank: Bank, gain: Floats) -> Bank:
    return Bank(bank.log + gain, bank.law)
