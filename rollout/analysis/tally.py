"""Plain counts beside the evidence: what a verdict's sentence names. Nothing is weighed here."""

from dataclasses import replace

from rollout.analysis.betting import timed_pairs
from rollout.analysis.design import BALANCED, Design
from rollout.analysis.samples import ArmWindow, Status, Window
from rollout.analysis.state import Tally


def counted(design: Design, tally: Tally, window: Window, usable: bool, live: bool) -> Tally:
    """The counts after one more window. `usable`: no restart and no weight change in it; `live`: it was compared."""
    a, b = own_errors(window)
    balanced = live and (window.load_ratio or 0.0) >= BALANCED[0]
    canary, total = window.share_counts if window.share_counts and usable else (0, 0)
    canary_status, stable_status = _status(design, window.canary), _status(design, window.stable)
    blind = canary_status != "OK" or stable_status != "OK"
    scored = [(p.stable, p.canary) for p in window.quality if p.stable is not None and p.canary is not None]
    looked = usable and not own_only(window)
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
        quality_pairs=tally.quality_pairs + len(window.quality),
        scored_pairs=tally.scored_pairs + len(scored),
        score_canary=tally.score_canary + sum(canary for _, canary in scored),
        score_stable=tally.score_stable + sum(stable for stable, _ in scored),
        idle=0 if live or window.pairs or window.quality else tally.idle + looked,
        load_ratio=window.load_ratio if looked else tally.load_ratio,
    )


def own_only(window: Window) -> bool:
    """A window that carries a batch of our own requests and did not look at the engines."""
    return bool(window.pairs or window.quality) and window.load_ratio is None and not (window.canary.requests or window.stable.requests)


def _status(design: Design, arm: ArmWindow) -> Status:
    """The arm's status, NO_METRIC included where requests were counted but a latency we judge was not exposed."""
    hidden = any(arm.histogram(test.metric) is None for test in design.latency)
    return "NO_METRIC" if arm.status == "OK" and hidden else arm.status


def own_errors(window: Window) -> tuple[int, int]:
    """(canary, stable) of our own requests that failed: probes and replayed prompts."""
    canary = sum(not p.canary_ok for p in window.pairs) + sum(p.canary is None for p in window.quality)
    return canary, sum(not p.stable_ok for p in window.pairs) + sum(p.stable is None for p in window.quality)
