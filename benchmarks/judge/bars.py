"""What has to hold, checked on the results of one run."""

import math
from dataclasses import dataclass

from benchmarks.judge import published
from benchmarks.judge.experiments import QUEUE, ZERO
from benchmarks.judge.lockstep import SETTINGS, Outcome
from benchmarks.judge.speed import Speed
from benchmarks.judge.tables import Results, detect20

ALPHA, BETA = 0.01, 0.05
RATIO, WINDOW_MS, WINDOW20K_MS, FITTED_MS = 0.35, 15.0, 60.0, 100.0
_KAYENTA_WITHIN = 0.15


@dataclass(frozen=True)
class Bars:
    """The figures of the last line and every bar that is broken, in words."""

    false_rollback: float
    false_promote: float
    detect20: float
    kayenta: float
    speed: Speed
    broken: tuple[str, ...]

    @property
    def line(self) -> str:
        """The last line of the output."""
        return (
            f"judge: false_rollback_max={self.false_rollback:.4f} false_promote_max={self.false_promote:.4f} "
            f"detect20_requests={self.detect20:.0f} kayenta_like_requests={self.kayenta:.0f} "
            f"detect20_ratio={self.detect20 / self.kayenta:.3f} "
            f"window_ms={self.speed.window_ms:.2f} window20k_ms={self.speed.window20k_ms:.2f}"
        )


def counted(judge: str, world: str) -> bool:
    """Whether the bound is claimed there: a replica's own noise has to be fitted where there is one."""
    return judge == QUEUE or (judge in SETTINGS and (not world.startswith("arm") or bool(SETTINGS[judge].get("fitted"))))


def check(results: Results, differing: int, speed: Speed) -> Bars:
    """Every bar."""
    broken: list[str] = []
    rollback = _worst(results, "null", ALPHA, broken)
    promote = _worst(results, "margin", BETA, broken)
    mine, kayenta = detect20(results, ZERO), detect20(results, "Kayenta-like")
    if not abs(kayenta / published.KAYENTA_20 - 1) <= _KAYENTA_WITHIN:
        broken.append(
            f"the Kayenta-like rule needs {kayenta:.0f} canary requests, not {published.KAYENTA_20:.0f}: the ratio does not count"
        )
    if not mine / kayenta <= RATIO:
        broken.append(f"detect20_ratio {mine / kayenta:.3f} > {RATIO}")
    for name, value, bar in (
        ("a window of 300 requests", speed.window_ms, WINDOW_MS),
        ("a window of 20,000 requests", speed.window20k_ms, WINDOW20K_MS),
        ("a window of 300 requests with fitted noise", speed.fitted_ms, FITTED_MS),
    ):
        if value > bar:
            broken.append(f"{name} takes {value:.1f} ms > {bar:g}")
    if not speed.flat:
        broken.append(f"memory grew by {speed.grown} bytes over 10,000 windows")
    if differing:
        broken.append(f"{differing} rollouts end with another state through absorb_many than through absorb")
    return Bars(rollback, promote, mine, kayenta, speed, tuple(broken))


def _worst(results: Results, table: str, bound: float, broken: list[str]) -> float:
    worst = 0.0
    for (name, row, judge), outcomes in results.items():
        if name != table or not counted(judge, row):
            continue
        share = sum(_wrong(o, table) for o in outcomes) / len(outcomes)
        worst = max(worst, share)
        limit = bound + 3 * math.sqrt(bound * (1 - bound) / len(outcomes))
        if share > limit:
            what = "false rollback" if table == "null" else "false promotion"
            broken.append(f"{what}, {row}, {judge}: {share:.1%} of {len(outcomes)} > {limit:.1%}")
    return worst


def _wrong(outcome: Outcome, table: str) -> bool:
    return (outcome.failed if table == "null" else outcome.passed) is not None
