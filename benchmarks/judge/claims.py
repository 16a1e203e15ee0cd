"""How much is needed until one claim alone is proved: canary requests, pairs or minutes. Smooth traffic.

Evidence comes from `rollout.analysis` only; "all edges" is its count process on every edge of 2 to 60 %, which no plan asks for.
"""

import math
from collections.abc import Callable

import numpy as np

from benchmarks.judge.experiments import seed
from benchmarks.judge.worlds import EDGES, SECONDS, STABLE_RIGHT, Drifting, Floats, Rng, Traffic, answers
from rollout.analysis import Histogram, JudgeConfig, ProbePair, QualityPair, absorb_many, config_for, new_state
from rollout.analysis.betting import PROBE_ODDS, probes_harmless, probes_slower
from rollout.analysis.config import GIB
from rollout.analysis.design import design_of, log_pass
from rollout.analysis.hypergeometric import Counts
from rollout.analysis.latency import PASS_STEPS
from rollout.analysis.noise import Bank, Noise
from rollout.analysis.quality import FRACTIONS, bets_against, quality_kept, quality_lost
from rollout.analysis.reference import reference_of
from rollout.analysis.slope import Trend

Needed = list[int | None]  # by rollout; None = not within the time
BODIES = (0.1, 0.2, 0.3, 0.5)
EVERY_EDGE = (0.2, 0.3, 0.5, 1.0)
ERRORS = (0.003, 0.005, 0.01, 0.02, 0.05)
SLOWER_PROBES = (0.0, 0.1, 0.2, 0.5, 1.0)
RIGHT, KEPT = (0.92, 0.90, 0.88, 0.84), (0.03, 0.05)  # the canary's share of right answers; losses to disprove
RISES = (0.0, 1.0, 2.0, 4.0)  # GiB an hour
_FAIL, _PASS = math.log(100.0), math.log(20.0)
_PROBES, _ANSWERS, _LOOKS = 600, 2000, 120
_MEMORY_SD, _MEMORY_PHI = 0.3, 0.9  # GiB, a window
_PROBE_SD = 0.5  # of the log ratio of two answers to the same prompt


def names() -> list[str]:
    """Every claim; the words before the last are the kind, the last is its margin."""
    kinds: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("body", BODIES),
        ("all edges", EVERY_EDGE),
        ("errors", ERRORS),
        ("probes slower", SLOWER_PROBES),
        ("probes harmless", (0.2,)),
    )
    kinds += (("quality lost", RIGHT), ("quality kept", KEPT), ("memory", RISES))
    return [f"{kind} {margin:g}" for kind, margins in kinds for margin in margins]


def needed(name: str, chunk: int, count: int, base: int) -> Needed:
    """Canary requests (or pairs) until the named claim is proved, in `count` rollouts."""
    kind, _, text = name.rpartition(" ")
    margin, rng = float(text), seed(base, "claims", name, chunk)
    if kind.startswith("probes"):
        harmless = kind.endswith("harmless")
        return [_probes(rng, 0.0 if harmless else margin, harmless) for _ in range(count)]
    if kind.startswith("quality"):
        return [_quality(rng, margin, kind.endswith("kept")) for _ in range(count)]
    if kind == "memory":
        return [_memory(rng, margin) for _ in range(count)]
    world = Drifting(drift=False, windows=300 if kind == "errors" or margin < 0.2 else 250)
    references, traffic = world.references(rng, count), world.traffic(rng, count)
    if kind == "all edges":
        return [_every_edge(traffic, i, reference, margin) for i, reference in enumerate(references)]
    if kind == "errors":
        configs = [config_for("rich", rungs=1, noise=(0.0, 0.0), unacceptable_errors=margin)] * count
        return _claimed(configs, traffic, lambda claims: claims["errors"])
    configs = [
        config_for("rich", rungs=1, reference_ttft=r, noise=(0.0, 0.0), tolerated_latency=0.0, unacceptable_latency=margin)
        for r in references
    ]
    return _claimed(configs, traffic, lambda claims: claims["ttft body"])


def _claimed(configs: list[JudgeConfig], traffic: Traffic, claim: Callable[[dict[str, float]], float]) -> Needed:
    states = [new_state(config) for config in configs]
    designs = [design_of(config) for config in configs]
    served, found = traffic.canary_requests(), Needed(len(configs) * [None])
    for t in range(traffic.windows):
        going = [i for i, requests in enumerate(found) if requests is None]
        if not going:
            break
        windows = [traffic.window(i, t) for i in going]
        for i, state in zip(going, absorb_many([configs[i] for i in going], [states[i] for i in going], windows), strict=True):
            states[i] = state
            if claim(log_pass(designs[i], state)) >= _PASS:
                found[i] = int(served[i, t])
    return found


def _every_edge(traffic: Traffic, rollout: int, reference: Histogram, margin: float) -> int | None:
    shape = reference_of(reference)
    edges = shape.edges_within(0.02, 0.60)
    theta = np.array([[shape.shift_to_prove(e, margin)] for e in edges]) + PASS_STEPS
    above = [EDGES.index(e) + 1 for e in edges]
    served, bank = traffic.canary_requests()[rollout], Bank.fresh(len(edges), len(PASS_STEPS) - 1, Noise())
    for t in range(traffic.windows):
        ours, theirs = traffic.canary_ttft[rollout, t], traffic.stable_ttft[rollout, t]
        a, b = (np.array([counts[at:].sum() for at in above]) for counts in (ours, theirs))
        counts = Counts(np.full_like(a, ours.sum()), np.full_like(a, theirs.sum()), a + b, a)
        bank = bank.step(counts.log_likelihood(theta)[:, :, None], Noise())
        if bank.log_mixture().min() >= _PASS:
            return int(served[t])
    return None


def _probes(rng: Rng, slow: float, harmless: bool) -> int | None:
    """Pairs until the probes alone decide. Both answers share the prompt: only what is left of the noise is in the ratio."""
    stable = 0.25 * np.exp(rng.normal(0.0, 0.35, _PROBES))
    canary = stable * (1 + slow) * np.exp(rng.normal(0.0, _PROBE_SD, _PROBES))
    log = np.zeros(len(PROBE_ODDS))
    for number, (s, c) in enumerate(zip(stable, canary, strict=True), start=1):
        pair = [ProbePair(float(s), float(c), True, True)]
        log = log + (probes_harmless(pair, 0.2) if harmless else probes_slower(pair, 0.0))
        if _mixed(log) >= (_PASS if harmless else _FAIL):
            return number
    return None


def _quality(rng: Rng, margin: float, kept: bool) -> int | None:
    """Pairs until the replay alone decides; `margin`: the canary's share of right answers, or (kept) the loss to disprove."""
    log = np.zeros(len(FRACTIONS) if kept else bets_against(0.0, binary=True))
    for number, (s, c) in enumerate(answers(rng, (_ANSWERS,), STABLE_RIGHT if kept else margin), start=1):
        pair = [QualityPair(float(s), float(c))]
        log = log + (quality_kept(pair, margin) if kept else quality_lost(pair, 0.0, binary=True))
        if _mixed(log) >= (_PASS if kept else _FAIL):
            return number
    return None


def _memory(rng: Rng, rise: float) -> int | None:
    """Minutes until the slope alone decides, nothing tolerated."""
    trend, own = Trend(), rng.normal() * _MEMORY_SD
    for look in range(1, _LOOKS + 1):
        hours = look * SECONDS / 3600
        trend = trend.observed(hours, (rise * hours + own) * GIB, _MEMORY_SD * GIB, _MEMORY_PHI)
        if _mixed(trend.evidence(0.0)) >= _FAIL:
            return math.ceil(look * SECONDS / 60)
        own = _MEMORY_PHI * own + math.sqrt(1 - _MEMORY_PHI**2) * _MEMORY_SD * rng.normal()
    return None


def _mixed(log: Floats) -> float:
    return float(np.logaddexp.reduce(log)) - math.log(len(log))
