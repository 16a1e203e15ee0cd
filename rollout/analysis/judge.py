"""The judge's step: `absorb` takes one window into the evidence. Pure, and a window is used exactly once.

What may be concluded from a window depends on its load ratio: an idle replica looks fast, a crowded one slow. The rollback evidence is
opened afresh at each traffic step; the promotion evidence is carried over all rungs.
"""

import math
from dataclasses import replace

from rollout.analysis.betting import PROBE_ODDS, SHARE_SHIFTS, probes_harmless, probes_slower, share_gain, timed_pairs
from rollout.analysis.breaker import Breaker
from rollout.analysis.config import JudgeConfig
from rollout.analysis.design import BALANCED, SHARE_ALARM, Design, design_of, log_fail, share_log_odds
from rollout.analysis.errors import ALTERNATIVES, Stratum, harmless_gain, worse_likelihood
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.latency import FAIL_STEPS, LatencyTest
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.samples import ArmWindow, Histogram, Status, Window
from rollout.analysis.state import Crossing, JudgeState, Tally

_QUIET = Noise()


def new_state(config: JudgeConfig) -> JudgeState:
    """A judge that has seen nothing. Each attempt at a rollout begins with one."""
    banks = {"pass/errors": Bank.fresh(1, len(ALTERNATIVES), _QUIET), "pass/probes": Bank.fresh(1, len(PROBE_ODDS), _QUIET)}
    banks["share"] = Bank.fresh(1, len(SHARE_SHIFTS), _QUIET)
    design = design_of(config)
    for test in design.latency:
        banks[f"pass/{test.metric}"] = test.fresh_pass()
    if design.primary:
        banks["effect/low"] = banks["effect/high"] = design.primary.fresh_interval()
    return JudgeState(banks=banks)


def absorb(config: JudgeConfig, state: JudgeState, window: Window) -> JudgeState:
    """The state after one more window. A window whose id is not newer than the last one changes nothing."""
    if window.id <= state.last_id:
        return state
    design = design_of(config)
    state = _opened(design, state, window)
    usable = not (window.weight_changed or window.stable.restarts or window.canary.restarts)
    live = usable and window.load_ratio is not None and window.stable.status == window.canary.status == "OK"
    banks = dict(state.banks)
    if not _probes_only(window):
        for test in design.latency:
            _latency(banks, state.starts, test, window, live, test is design.primary)
    _errors(config, banks, state, window, live)
    _probes(config, banks, state.starts, window)
    if usable and window.share_counts and window.expected_share is not None:
        banks["share"] = _bet(banks["share"], share_gain(*window.share_counts, window.expected_share))
    state = replace(
        state,
        last_id=window.id,
        elapsed=state.elapsed + window.seconds,
        banks=banks,
        tally=_counted(design, state.tally, window, usable, live),
        breaker=_breaker(config, state, window, usable),
    )
    return _crossed(design, state)


def _opened(design: Design, state: JudgeState, window: Window) -> JudgeState:
    """On a rung not seen before: a fresh copy of the rollback evidence (while there are restarts left) and of the share test."""
    if state.rung is not None and window.rung <= state.rung:
        return state
    banks = dict(state.banks)
    banks["share"] = Bank.fresh(1, len(SHARE_SHIFTS), _QUIET)
    starts = state.starts
    if len(starts) < design.config.rungs:
        s = len(starts)
        for test in design.latency:
            banks[f"fail/{test.metric}/edges/{s}"], banks[f"fail/{test.metric}/ordinal/{s}"] = test.fresh_fail()
        banks[f"fail/errors/{s}"] = Bank.fresh(1, len(FAIL_STEPS) - 1, _QUIET)
        banks[f"fail/probes/{s}"] = Bank.fresh(1, len(PROBE_ODDS), _QUIET)
        starts = (*starts, window.rung)
    tally = replace(state.tally, share_canary=0, share_total=0)
    return replace(state, rung=window.rung, starts=starts, banks=banks, tally=tally)


def _latency(banks: dict[str, Bank], starts: tuple[int, ...], test: LatencyTest, window: Window, live: bool, primary: bool) -> None:
    ours, theirs = _histogram(window.canary, test.metric), _histogram(window.stable, test.metric)
    ratio = window.load_ratio or 0.0
    both = (ours, theirs) if live and ours and theirs else None
    failing = both if ratio <= BALANCED[1] else None
    passing = both if ratio >= BALANCED[0] else None
    thresholds = test.thresholds(*failing) if failing else None
    ordinal = test.ordinal(*failing) if failing else None
    for s in range(len(starts)):
        edges, profile = f"fail/{test.metric}/edges/{s}", f"fail/{test.metric}/ordinal/{s}"
        banks[edges] = banks[edges].step(thresholds, test.noise)
        banks[profile] = banks[profile].step(ordinal, test.noise)
    banks[f"pass/{test.metric}"] = banks[f"pass/{test.metric}"].step(test.harmless(*passing) if passing else None, test.noise)
    if primary:
        effect = test.effect(*both) if both else None
        banks["effect/low"] = banks["effect/low"].step(effect if failing else None, test.noise)
        banks["effect/high"] = banks["effect/high"].step(effect if passing else None, test.noise)


def _errors(config: JudgeConfig, banks: dict[str, Bank], state: JudgeState, window: Window, live: bool) -> None:
    served: Stratum = (window.canary.requests, window.stable.requests, window.canary.errors, window.stable.errors)
    probed: Stratum = (len(window.pairs), len(window.pairs), *_pair_errors(window))
    strata = [s for s, there in ((served, live), (probed, bool(window.pairs))) if there]
    if not strata:
        return
    likelihood = worse_likelihood(strata, config.tolerated_error_odds)
    for s in range(len(state.starts)):
        banks[f"fail/errors/{s}"] = banks[f"fail/errors/{s}"].step(likelihood, _QUIET)
    t = state.tally
    seen = (
        t.errors_canary + t.errors_stable + t.pair_errors_canary + t.pair_errors_stable,
        t.live_canary + t.live_stable + 2 * t.pairs,
    )
    if config.mode == "rich" and config.live:
        strata = [served] if live else []
    for stratum in strata:
        banks["pass/errors"] = _bet(banks["pass/errors"], harmless_gain(stratum, seen, config.unacceptable_errors))


def _probes(config: JudgeConfig, banks: dict[str, Bank], starts: tuple[int, ...], window: Window) -> None:
    if not window.pairs:
        return
    slower = probes_slower(window.pairs, config.tolerated_latency)
    for s in range(len(starts)):
        banks[f"fail/probes/{s}"] = _bet(banks[f"fail/probes/{s}"], slower)
    banks["pass/probes"] = _bet(banks["pass/probes"], probes_harmless(window.pairs, config.unacceptable_latency))


def _breaker(config: JudgeConfig, state: JudgeState, window: Window, usable: bool) -> Breaker:
    breaker = state.breaker.restarted(window.canary.restarts, state.elapsed + window.seconds)
    if usable or not (window.stable.restarts or window.canary.restarts):
        a, b = _pair_errors(window)
        pairs = len(window.pairs)
        breaker = breaker.requests(
            (window.canary.requests + pairs, window.canary.errors + a), (window.stable.requests + pairs, window.stable.errors + b)
        )
    return breaker.judged(window.memory_available, config.memory_floor)


def _counted(design: Design, tally: Tally, window: Window, usable: bool, live: bool) -> Tally:
    a, b = _pair_errors(window)
    balanced = live and (window.load_ratio or 0.0) >= BALANCED[0]
    canary, total = window.share_counts if window.share_counts and usable else (0, 0)
    canary_status, stable_status = _status(design, window.canary), _status(design, window.stable)
    blind = canary_status != "OK" or stable_status != "OK"
    looked = usable and not _probes_only(window)
    return replace(
        tally,
        windows=tally.windows + 1,
        dropped=tally.dropped + (not usable),
        live_canary=tally.live_canary + live * window.canary.requests,
        live_stable=tally.live_stable + live * window.stable.requests,
        errors_canary=tally.errors_canary + live * window.canary.errors,
        errors_stable=tally.errors_stable + live * window.stable.errors,
        balanced_windows=tally.balanced_windows + balanced,
        live_windows=tally.live_windows + live,
        live_seconds=tally.live_seconds + live * window.seconds,
        pairs=tally.pairs + len(window.pairs),
        timed_pairs=tally.timed_pairs + timed_pairs(window.pairs),
        pair_errors_canary=tally.pair_errors_canary + a,
        pair_errors_stable=tally.pair_errors_stable + b,
        restarts_canary=tally.restarts_canary + window.canary.restarts,
        restarts_stable=tally.restarts_stable + window.stable.restarts,
        share_canary=tally.share_canary + canary,
        share_total=tally.share_total + total,
        share_expected=tally.share_expected if window.expected_share is None else window.expected_share,
        canary_status=canary_status if looked else tally.canary_status,
        stable_status=stable_status if looked else tally.stable_status,
        blind=(tally.blind + 1 if blind else 0) if looked else tally.blind,
        idle=0 if live or window.pairs else tally.idle + looked,
        load_ratio=window.load_ratio if looked else tally.load_ratio,
    )


def _probes_only(window: Window) -> bool:
    """A window that carries a batch of probe pairs and did not look at the engines."""
    return bool(window.pairs) and window.load_ratio is None and not (window.canary.requests or window.stable.requests)


def _status(design: Design, arm: ArmWindow) -> Status:
    """The arm's status, NO_METRIC included where requests were counted but a latency we judge was not exposed."""
    hidden = any(_histogram(arm, test.metric) is None for test in design.latency)
    return "NO_METRIC" if arm.status == "OK" and hidden else arm.status


def _crossed(design: Design, state: JudgeState) -> JudgeState:
    """Remembers the first time the rollback evidence suffices; not while the served share is in doubt."""
    need = -math.log(design.config.alpha)
    if state.crossing or share_log_odds(design.config, state) >= math.log(SHARE_ALARM):
        return state
    total, parts = log_fail(design, state)
    if total < need:
        return state
    return replace(state, crossing=Crossing(state.last_id, total, tuple(m for m, log in parts.items() if log >= need)))


def _bet(bank: Bank, gain: Floats) -> Bank:
    return Bank(bank.log + gain, bank.law)


def _pair_errors(window: Window) -> tuple[int, int]:
    return sum(not p.canary_ok for p in window.pairs), sum(not p.stable_ok for p in window.pairs)


def _histogram(arm: ArmWindow, metric: str) -> Histogram | None:
    return arm.ttft if metric == "ttft" else arm.e2e
