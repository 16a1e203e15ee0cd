"""What can be found out at a traffic rate, and how long it takes: before a rollout, from its config alone.

For each rung the smallest effect that would be found with 80 % probability, and for a canary just like stable the hours until every claim
of a promotion is proved. The evidence is laid out by the processes that will judge (`growth` draws windows for them); what a forecast
*during* a rollout needs is smaller and stands in `forecast`. An estimate for people, never evidence. Pure, and the same on every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist

import numpy as np

from rollout.analysis import growth
from rollout.analysis.config import JudgeConfig
from rollout.analysis.design import BALANCED, Design, design_of, log_pass
from rollout.analysis.growth import Flow, Source
from rollout.analysis.hypergeometric import Floats
from rollout.analysis.judge import new_state
from rollout.analysis.latency import FAIL_STEPS, PASS_STEPS, LatencyTest
from rollout.analysis.noise import Noise

SURE = 0.8
"""probability with which an effect counts as found"""
SLOWDOWNS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
ERROR_RATES = (0.002, 0.003, 0.005, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7)
LOSSES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5)
HORIZON = 30 * 86_400.0
"""seconds; what is not proved in a month counts as never"""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Rung:
    """The canary's share of the pair, and the seconds the rung lasts at least."""

    share: float
    seconds: float


@dataclass(frozen=True)
class Setting:
    """What the evidence will be made of. `rate`: requests an hour on the pair (canary and the stable it replaces); `rungs`: below 100 %.

    `window`, `deadline`: seconds. `canary_replicas`, `stable_replicas`: ready ones. `pairs`: paired probes in all, sent in batches of
    `batch`, one batch after each `batch_every` windows, from the first rung on. `prompts`: quality pairs, replayed once at the start.
    `error_rate`: stable's share of failed requests. `probe_spread`: sd of log TTFT of one probe (0.35: the published reference);
    `differing`: how often just one of two equal sides answers right (0.074: what the published figures at a score of 0.92 come from).
    """

    rate: float
    rungs: tuple[Rung, ...]
    deadline: float
    window: float = 30.0
    canary_replicas: int = 1
    stable_replicas: int = 1
    pairs: int = 0
    batch: int = 10
    batch_every: int = 1
    prompts: int = 0
    error_rate: float = 0.002
    probe_spread: float = 0.35
    differing: float = 0.074

    def flow(self, rung: Rung) -> Flow:
        """Requests a window."""
        each = self.rate * self.window / 3600.0
        return Flow(max(each * rung.share, 1e-9), max(each * (1 - rung.share), 1e-9))

    def ratio(self, rung: Rung) -> float:
        """Requests a replica, canary over stable."""
        return rung.share / self.canary_replicas / ((1 - rung.share) / self.stable_replicas)

    def pairs_by(self, windows: float) -> int:
        """Probe pairs sent in the first so many windows."""
        return min(self.pairs, self.batch * int(windows // max(1, self.batch_every)))


@dataclass(frozen=True)
class Smallest:
    """The smallest effect found with probability `SURE`: slow-down (0.2 = +20 %), errors (0.01 = +1 percentage point), loss of mean score
    (0.05 = 5 points of 100). None = nothing of this kind would be.
    """

    slowdown: float | None
    errors: float | None
    quality: float | None


@dataclass(frozen=True)
class RungPower:
    """`within`: what shows from this rung on is found while the rung lasts at least; `by_deadline`: until the deadline of the verdict,
    the later rungs included.
    """

    rung: Rung
    ratio: float
    within: Smallest
    by_deadline: Smallest


@dataclass(frozen=True)
class Proof:
    """How long one claim of a promotion takes when the canary is like stable. `seconds`: median, `late`: what four of five stay under;
    None = not within a month. `requests`: of the canary until the median; `pairs`: probe pairs until then, where they count.
    """

    claim: str
    seconds: float | None
    late: float | None
    requests: float | None
    pairs: int | None


@dataclass(frozen=True)
class Power:
    """The whole answer. `dominates`: the claim that takes longest (one that is never proved first); None = nothing can be claimed."""

    rungs: tuple[RungPower, ...]
    proofs: tuple[Proof, ...]
    dominates: Proof | None = field(default=None)


def power(config: JudgeConfig, setting: Setting) -> Power:
    """What `setting` lets the judge find and prove. Takes a second or so where there is much traffic."""
    design = design_of(config)
    rungs = tuple(_rung(design, setting, index) for index in range(len(setting.rungs)))
    found = proofs(config, setting)
    worst = max(found, key=lambda p: (p.late is None, p.seconds is None, p.late or 0.0), default=None)
    return Power(rungs, found, worst)


def _rung(design: Design, setting: Setting, index: int) -> RungPower:
    rung = setting.rungs[index]
    slow, errors = _search(SLOWDOWNS, slower(design.config, setting, index)), _search(ERROR_RATES, failing(design.config, setting, index))
    quality = _loss(design, setting, index)
    within, late = (Smallest(slow[k], errors[k], quality) for k in (0, 1))
    return RungPower(rung, setting.ratio(rung), within, late)


Found = Callable[[float], tuple[float, float]]
"""of an effect: probability that it is found while the rung lasts, and until the deadline"""


def _search(effects: Sequence[float], found: Found) -> tuple[float | None, float | None]:
    """The smallest effect found with probability `SURE`, on the rung and until the deadline; effects rise, so halving finds it."""
    known = cache(found)

    def smallest(which: int) -> float | None:
        low, high = 0, len(effects)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if known(effects[middle])[which] >= SURE else (middle + 1, high)
        return effects[low] if low < len(effects) else None

    return smallest(0), smallest(1)


@dataclass(frozen=True)
class _Leg:
    """A stretch at one rung, in windows since the evidence began, and the numbers of its own windows at which it is looked at."""

    rung: Rung
    before: float
    at: Floats


def _legs(setting: Setting, first: int) -> list[_Leg]:
    """From rung `first` to the deadline, which runs since the first rung of all; the rung itself lasts its own time even past it."""
    begun, before = sum(r.seconds for r in setting.rungs[:first]), 0.0
    legs: list[_Leg] = []
    for index, rung in enumerate(setting.rungs[first:], first):
        left = max(0.0, setting.deadline - begun)
        last = index == len(setting.rungs) - 1
        seconds = max(rung.seconds, left) if last else rung.seconds if index == first else min(rung.seconds, left)
        if seconds < setting.window:
            break
        own, whole = rung.seconds // setting.window, seconds // setting.window
        at = growth.steps(whole) if not last else np.unique(np.append(growth.steps(whole), max(1.0, own)))
        legs.append(_Leg(rung, before, at))
        begun, before = begun + seconds, before + float(at[-1])
    return legs


def _chances(setting: Setting, index: int, legs: Sequence[_Leg], evidence: Floats, need: float) -> tuple[float, float]:
    """Chance of having crossed by the end of the rung, and at all. `evidence`: (paths, looks)."""
    times = np.concatenate([leg.before + leg.at for leg in legs])
    crossed = np.maximum.accumulate(evidence >= need, axis=1)
    here = int(np.searchsorted(times, max(1.0, setting.rungs[index].seconds // setting.window), side="right")) - 1
    return float(crossed[:, here].mean()), float(crossed[:, -1].mean())


def _needed(design: Design, metric: str) -> float:
    """log evidence one fresh copy of one metric's process must reach alone."""
    weight = design.weights.get(metric, 0.0)
    return -math.log(design.config.alpha) - math.log(design.omega * weight) if weight else math.inf


def _paths(legs: Sequence[_Leg], source: Callable[[_Leg], Source | None], noise: Noise) -> Floats | None:
    """Evidence over all legs: (paths, looks, columns). A leg without a source adds nothing."""
    found = [source(leg) for leg in legs]
    columns = max((s.columns for s in found if s is not None), default=0)
    if not columns:
        return None
    base = np.zeros((growth.PATHS, 1, columns))
    parts: list[Floats] = []
    for number, (leg, one) in enumerate(zip(legs, found, strict=True)):
        paths = np.zeros((growth.PATHS, len(leg.at), columns)) if one is None else growth.add_up(one, leg.at, noise, number)
        parts.append(base + paths)
        base = parts[-1][:, -1:, :]
    return np.concatenate(parts, axis=1)


def _mixed(paths: Floats, alternatives: int) -> Floats:
    """Average over the alternatives of each process: (paths, looks, processes)."""
    return _log_mean(paths.reshape(*paths.shape[:2], -1, alternatives))


def _log_mean(logs: Floats) -> Floats:
    """log of the average of e-values over the last axis."""
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).mean(axis=-1)))


def slower(config: JudgeConfig, setting: Setting, index: int) -> Found:
    """Of a slow-down that begins with rung `index`: live TTFT (or the first latency there is) and paired probes together."""
    design = design_of(config)
    legs = _legs(setting, index)
    test = design.primary if design.config.live else None

    def found(slowdown: float) -> tuple[float, float]:
        if not legs:
            return 0.0, 0.0
        parts = [_live_slow(design, setting, legs, test, slowdown)] if test else []
        parts.append(_probes_slow(design, setting, index, legs, slowdown))
        sums = [p for p in parts if p is not None]
        if not sums:
            return 0.0, 0.0
        return _chances(setting, index, legs, np.logaddexp.reduce(sums, axis=0), -math.log(design.config.alpha))

    return found


def _live_slow(design: Design, setting: Setting, legs: Sequence[_Leg], test: LatencyTest, slowdown: float) -> Floats | None:
    def source(which: int) -> Callable[[_Leg], Source | None]:
        def of(leg: _Leg) -> Source | None:
            if setting.ratio(leg.rung) > BALANCED[1]:
                return None
            return growth.slower(test, setting.flow(leg.rung), slowdown)[which]

        return of

    edges, ordinal = (_paths(legs, source(which), test.noise) for which in (0, 1))
    means = [_log_mean(_mixed(edges, len(FAIL_STEPS) - 1))] if edges is not None else []
    means += [_log_mean(ordinal)] if ordinal is not None else []
    if not means:
        return None
    return _log_mean(np.stack(means, axis=-1)) - (_needed(design, test.metric) + math.log(design.config.alpha))


def _probes_slow(design: Design, setting: Setting, index: int, legs: Sequence[_Leg], slowdown: float) -> Floats | None:
    weight = design.weights.get("probes", 0.0)
    pairs = _pairs(setting, index, legs)
    if not weight or not pairs[-1]:
        return None
    heads = _heads(setting, math.log1p(slowdown) - math.log1p(design.config.tolerated("probes")))
    return _log_mean(_thrown(heads, pairs)) + math.log(weight * design.omega)


def _heads(setting: Setting, distance: float) -> float:
    """Chance that one probe takes longer than the other when their medians are `distance` apart in logs."""
    return _NORMAL.cdf(distance / (math.sqrt(2.0) * setting.probe_spread))


def _thrown(heads: float, pairs: Floats) -> Floats:
    """Evidence of paired probes after so many pairs: (paths, looks, bets)."""
    return growth.add_up(growth.coin(heads), pairs, Noise(), 7)


def failing(config: JudgeConfig, setting: Setting, index: int) -> Found:
    """Of more failed requests (a risk difference) from rung `index` on: among live ones and among paired probes."""
    legs, design = _legs(setting, index), design_of(config)
    need, odds, rate = _needed(design, "errors"), config.tolerated("errors"), setting.error_rate
    pairs = _pairs(setting, index, legs)

    def found(worse: float) -> tuple[float, float]:
        if not legs or rate + worse > 1:
            return 0.0, 0.0

        def source(leg: _Leg) -> Source:
            return growth.more_errors(setting.flow(leg.rung), rate, worse, odds)

        live = _paths(legs, source, Noise()) if config.live else None
        probed = growth.more_errors_of_pairs(setting.batch, rate, worse, odds)
        sums = [live] if live is not None else []
        sums += [growth.add_up(probed, pairs // setting.batch, Noise(), 9)] if pairs[-1] else []
        return _chances(setting, index, legs, _log_mean(np.sum(sums, axis=0)), need) if sums else (0.0, 0.0)

    return found


def _pairs(setting: Setting, index: int, legs: Sequence[_Leg]) -> Floats:
    """Probe pairs sent since rung `index` began, at each look."""
    sent = sum(r.seconds for r in setting.rungs[:index]) / setting.window
    return np.array([setting.pairs_by(sent + leg.before + t) - setting.pairs_by(sent) for leg in legs for t in leg.at], dtype=np.float64)


def _loss(design: Design, setting: Setting, index: int) -> float | None:
    """The smallest loss of quality the replayed prompts show; they are replayed once, so a later rung brings nothing new."""
    need = _needed(design, "quality")
    if index or not setting.prompts or math.isinf(need):
        return None
    for loss in LOSSES:
        if loss >= 1 - setting.differing:
            return None
        source = growth.outcomes((setting.differing / 2 + loss, setting.differing / 2), design.config.tolerated("quality"))
        paths = growth.add_up(source, growth.steps(setting.prompts), Noise(), 8)
        if float((_log_mean(paths) >= need).any(axis=1).mean()) >= SURE:
            return loss
    return None


def proofs(config: JudgeConfig, setting: Setting) -> tuple[Proof, ...]:
    """How long each claim takes that a promotion needs in this mode, evidence being carried over all rungs, the last one kept on."""
    design = design_of(config)
    legs = _climb(setting)
    times = np.concatenate([leg.before + leg.at for leg in legs]) if legs else np.zeros(0)
    pairs = np.array([setting.pairs_by(t) for t in times], dtype=np.float64)
    evidence = {claim: _claimed(design, setting, legs, pairs, claim) for claim in log_pass(design, new_state(config))}
    return tuple(_proof(setting, legs, times, claim, found, -math.log(config.beta)) for claim, found in evidence.items())


def _climb(setting: Setting) -> list[_Leg]:
    legs: list[_Leg] = []
    before = 0.0
    for index, rung in enumerate(setting.rungs):
        seconds = max(HORIZON, rung.seconds) if index == len(setting.rungs) - 1 else rung.seconds
        at = growth.steps(seconds // setting.window, 60 if seconds >= HORIZON else 16)
        legs.append(_Leg(rung, before, at))
        before += float(at[-1])
    return legs


def _claimed(design: Design, setting: Setting, legs: Sequence[_Leg], pairs: Floats, claim: str) -> Floats | None:
    """Evidence for one claim: (paths, looks). None = nothing will ever speak for it."""
    if claim == "probes":
        return _probes_pass(design, setting, pairs)
    if claim == "errors":
        return _errors_pass(design, setting, legs, pairs)
    if claim == "quality":
        return _quality_pass(design, setting, legs)
    if claim == "live or probes":
        live = [_latency_pass(setting, legs, test, name) for test in design.latency for name in ("body", "tail")]
        rows = [np.min([r for r in live if r is not None], axis=0)] if any(r is not None for r in live) else []
        probes = _probes_pass(design, setting, pairs)
        rows += [probes] if probes is not None else []
        looks = (growth.PATHS, sum(len(leg.at) for leg in legs))
        return _log_mean(np.stack([*rows, *[np.zeros(looks)] * (2 - len(rows))], axis=-1)) if rows else None
    metric, _, name = claim.partition(" ")
    return next((_latency_pass(setting, legs, test, name) for test in design.latency if test.metric == metric), None)


def _latency_pass(setting: Setting, legs: Sequence[_Leg], test: LatencyTest, name: str) -> Floats | None:
    """The weakest edge of the body, or of the tail."""
    wanted = slice(0, len(test.body)) if name == "body" else slice(len(test.body), None)

    def source(leg: _Leg) -> Source | None:
        return None if setting.ratio(leg.rung) < BALANCED[0] else growth.harmless(test, setting.flow(leg.rung))

    paths = _paths(legs, source, test.noise) if (test.body, test.tail)[name == "tail"] else None
    return None if paths is None else np.asarray(_mixed(paths, len(PASS_STEPS) - 1)[:, :, wanted].min(axis=2))


def _probes_pass(design: Design, setting: Setting, pairs: Floats) -> Floats | None:
    if not len(pairs) or not pairs[-1]:
        return None
    return _log_mean(_thrown(_heads(setting, math.log1p(design.config.unacceptable("probes"))), pairs))


def _errors_pass(design: Design, setting: Setting, legs: Sequence[_Leg], pairs: Floats) -> Floats | None:
    config, rate = design.config, setting.error_rate
    margin = config.unacceptable("errors")
    live = None
    if config.live:
        live = _paths(legs, lambda leg: growth.few_errors(setting.flow(leg.rung), rate, margin), Noise())
    probed = None
    if not (config.mode == "rich" and config.live) and len(pairs) and pairs[-1]:
        probed = growth.add_up(growth.few_errors_of_pairs(rate, margin), pairs, Noise(), 9)
    some = [part for part in (live, probed) if part is not None]
    return _log_mean(np.sum(some, axis=0)) if some else None


def _quality_pass(design: Design, setting: Setting, legs: Sequence[_Leg]) -> Floats | None:
    """Counted as if all prompts were replayed in the first window: what they cannot show by then they never will."""
    if not setting.prompts or not legs:
        return None
    source = growth.outcomes((setting.differing / 2, setting.differing / 2), design.config.unacceptable("quality"), harmless=True)
    looks = sum(len(leg.at) for leg in legs)
    paths = growth.add_up(source, np.array([float(setting.prompts)]), Noise(), 8)
    return np.repeat(_log_mean(paths), looks, axis=1)


def _proof(setting: Setting, legs: Sequence[_Leg], times: Floats, claim: str, evidence: Floats | None, need: float) -> Proof:
    if evidence is None or not len(times):
        return Proof(claim, None, None, None, None)
    reached = np.sort([_first(times, row, need) for row in evidence])
    middle, late = (float(reached[int(part * len(reached))]) for part in (0.5, SURE))
    windows = middle if math.isfinite(middle) else None
    requests = None if windows is None else _requests(setting, legs, windows)
    pairs = setting.pairs_by(windows) if windows is not None and ("probes" in claim or claim == "errors") else None
    return Proof(
        claim,
        None if windows is None else windows * setting.window,
        late * setting.window if math.isfinite(late) else None,
        requests,
        pairs,
    )


def _first(times: Floats, evidence: Floats, need: float) -> float:
    """Windows until `need` is reached, straight between two looks."""
    over = np.nonzero(evidence >= need)[0]
    if not len(over):
        return math.inf
    i = int(over[0])
    before, gained = (0.0, 0.0) if i == 0 else (float(times[i - 1]), float(evidence[i - 1]))
    part = (need - gained) / (float(evidence[i]) - gained)
    return math.ceil(before + part * (float(times[i]) - before))


def _requests(setting: Setting, legs: Sequence[_Leg], windows: float) -> float:
    """Canary requests in so many windows from the first rung on."""
    total = 0.0
    for leg in legs:
        total += setting.flow(leg.rung).canary * min(max(0.0, windows - leg.before), float(leg.at[-1]))
    return total
