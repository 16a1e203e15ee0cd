"""How long until a promotion could be proved, if the canary is just like stable. An estimate for people, never evidence."""

import math

from rollout.analysis.design import BALANCED, Design, log_pass
from rollout.analysis.errors import nearest_null
from rollout.analysis.latency import LatencyTest
from rollout.analysis.noise import log_mean
from rollout.analysis.quality import pairs_needed
from rollout.analysis.state import JudgeState

_MIXTURE_COST = 1.2  # what betting on several alternatives at once costs, in logs
_FIRST_PROBES = 120  # said before the probes have shown their own pace
_FIRST_PROMPTS = 20  # before that a single lost prompt would say everything


def forecast(design: Design, state: JudgeState) -> dict[str, float | None]:
    """By claim: more canary requests, probe pairs (under "probes") or prompts (under "quality"); 0 = proved, None = cannot be said from
    what was seen so far.
    """
    need = -math.log(design.config.beta)
    return {claim: _more(design, state, claim, need - log) if log < need else 0.0 for claim, log in log_pass(design, state).items()}


def _more(design: Design, state: JudgeState, claim: str, missing: float) -> float | None:
    if claim == "errors":
        return _errors(design, state, missing + _MIXTURE_COST)
    if claim == "probes":
        return _probes(state, missing)
    if claim == "quality":
        return _quality(design, state)
    tests = [t for t in design.latency if claim == "live or probes" or claim.startswith(t.metric)]
    needed = [_latency(design, state, t, claim, missing + _MIXTURE_COST) for t in tests]
    return None if None in needed else max((n for n in needed if n is not None), default=None)


def _latency(design: Design, state: JudgeState, test: LatencyTest, claim: str, missing: float) -> float | None:
    """Expected growth a window: half the squared margin over (sampling variance + long-run noise variance)."""
    tally = state.tally
    if not tally.live_windows or not tally.live_canary or not tally.live_stable or (tally.load_ratio or 0.0) < BALANCED[0]:
        return None
    n, m = tally.live_canary / tally.live_windows, tally.live_stable / tally.live_windows
    worst = 0.0
    for edge, margin in zip(test.body + test.tail, test.pass_margins, strict=True):
        if (claim.endswith("body") and edge in test.tail) or (claim.endswith("tail") and edge in test.body):
            continue
        p = 1.0 / (1.0 + math.exp(-test.reference.logit(edge)))
        variance = 1.0 / (n * m / (n + m) * p * (1 - p)) + test.noise.long_run_variance
        worst = max(worst, missing / (margin**2 / 2 / variance) * n)
    return worst


def _errors(design: Design, state: JudgeState, missing: float) -> float | None:
    """Growth a canary request: the divergence of equal rates from the nearest pair that differs by the margin."""
    tally = state.tally
    n = tally.live_canary + tally.pairs
    m = tally.live_stable + tally.pairs
    if not n or not m:
        return None
    bad = tally.errors_canary + tally.errors_stable + tally.pair_errors_canary + tally.pair_errors_stable
    rate = (bad + 0.2) / (n + m + 100.0)
    margin = design.config.unacceptable_errors
    if rate + margin >= 1:
        return None
    x = nearest_null(n, m, rate, rate, margin)
    growth = m / n * _divergence(rate, x) + _divergence(rate, x + margin)
    return missing / growth if growth > 0 else None


def _probes(state: JudgeState, missing: float) -> float:
    seen = state.tally.timed_pairs
    gained = float(state.banks["pass/probes"].log_mixture()[0])
    if seen >= 20 and gained > 0:
        return missing / (gained / seen)
    return float(max(_FIRST_PROBES - seen, 20))


def _quality(design: Design, state: JudgeState) -> float | None:
    """At the pace of each bet so far; None where all of them lose: the canary scores as if it were unacceptable."""
    seen, need = state.tally.quality_pairs, -math.log(design.config.beta)
    if seen < _FIRST_PROMPTS:
        return float(max(1, pairs_needed(design.config.unacceptable("quality"), design.config.beta) - seen))
    gains = state.banks["pass/quality"].log[0] / seen
    if gains.max() <= 0:
        return None
    low, high = 0.0, (need + math.log(len(gains))) / float(gains.max())
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if log_mean(gains * middle) >= need else (middle, high)
    return max(1.0, high - seen)


def _divergence(p: float, q: float) -> float:
    """Kullback-Leibler divergence of Bernoulli(p) from Bernoulli(q)."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
