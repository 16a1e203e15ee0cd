"""Which rollouts are run, in which traffic, and who judges them. Nothing is compared here; `tables` does that."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from benchmarks.judge.lockstep import SETTINGS, Outcome, Until, configured, judge_many, prepared
from benchmarks.judge.queues import queue_references, queue_traffic
from benchmarks.judge.rules import NEVER, Rule, rules, tunable
from benchmarks.judge.worlds import STABLE_RIGHT, Drifting, Rng, Traffic
from rollout.analysis import Histogram, JudgeConfig, config_for

IDENTICAL = {
    "iid": Drifting(drift=False),
    "drift": Drifting(),
    "ramp": Drifting(ramp=True),
    "arm05": Drifting(noise=0.05),
    "arm15": Drifting(noise=0.15),
}
WORSE: dict[str, dict[str, Any]] = {
    "+10 %": {"slow": 1.1},
    "+20 %": {"slow": 1.2},
    "+50 %": {"slow": 1.5},
    "x2": {"slow": 2.0},
    "tail": {"tail": 0.03},
    "errors 1 %": {"errors": 0.01},
    "errors 5 %": {"errors": 0.05},
}
AT_THE_MARGIN: dict[str, dict[str, Any]] = {
    "body +20 %": {"slow": 1.2},
    "tail odds x2": {"tail_odds": 2.0},
    "errors +1 pp": {"more_errors": 0.01},
    "quality -5 pp": {"right": STABLE_RIGHT - 0.05},
}
# The same in the queues: the part of requests made six times slower that doubles the odds of exceeding 0.5 s on a balanced rung.
QUEUE_MARGIN: dict[str, dict[str, Any]] = {
    "body +20 %": {"slow_first": 1.2},
    "tail odds x2": {"tail": 0.0095},
    "errors +1 pp": {"more_errors": 0.01},
    "quality -5 pp": {"right": STABLE_RIGHT - 0.05},
}
RACE: dict[str, Drifting] = {
    "identical": Drifting(),
    "+5 %": Drifting(slow=1.05),
    "+10 %": Drifting(slow=1.1),
    "+20 %": Drifting(slow=1.2),
    "+50 %": Drifting(slow=1.5),
    "x2": Drifting(slow=2.0),
    "tail 3 % x6": Drifting(tail=0.03),
    "tail 6 % x6": Drifting(tail=0.06),
    "errors 1 %": Drifting(errors=0.01),
    "errors 5 %": Drifting(errors=0.05),
    "arm05": Drifting(noise=0.05),
    "arm15": Drifting(noise=0.15),
    "+20 %, arm15": Drifting(noise=0.15, slow=1.2),
}
PLAIN = "tolerated 5 %, v=0"
ZERO = "tolerated 0, v=0"
QUEUE = "one replica a side"

Prepared = tuple[list[Histogram], list[tuple[float, float]]]
Found = dict[str, list[Outcome]]  # outcomes by judge


@dataclass(frozen=True)
class Cell:
    """One kind of rollout. `judges`: names of SETTINGS, of rules, or QUEUE; `before`: which preparation its rollouts use."""

    table: str
    row: str
    world: Drifting | None
    judges: tuple[str, ...]
    until: Until
    reps: int
    rungs: int = 1
    queue: tuple[tuple[str, Any], ...] = ()

    @property
    def before(self) -> tuple[bool, float] | None:
        """(drift, noise) of the hour before, which does not depend on the canary. None: the queues prepare for themselves."""
        return (self.world.drift, self.world.noise) if self.world and any(judge in SETTINGS for judge in self.judges) else None

    @property
    def quality(self) -> Literal["binary"] | None:
        """Whether prompts are replayed."""
        return "binary" if (self.world and self.world.right is not None) or "right" in dict(self.queue) else None


def seed(*words: object) -> Rng:
    """Random numbers of their own for whatever is named."""
    return np.random.default_rng(zlib.crc32(repr(words).encode()))


def prepare(before: tuple[bool, float], chunk: int, count: int, base: int) -> Prepared:
    """References and fitted noise of `count` rollouts."""
    drift, noise = before
    return prepared(Drifting(drift=drift, noise=noise), seed(base, "before", before, chunk), count, fitted=True)


def run(cell: Cell, chunk: int, count: int, before: Prepared | None, tuned: Sequence[Rule], base: int) -> Found:
    """`count` rollouts of a cell, judged by each of its judges: all of them see the same traffic."""
    rng = seed(base, cell.table, cell.row, chunk)
    if cell.world is None:
        return _queue(cell, rng, count)
    references, noises = (before[0][:count], before[1][:count]) if before else ([], [])
    traffic = cell.world.traffic(rng, count)
    traffic = replace(traffic, rung=np.arange(traffic.windows) * cell.rungs // traffic.windows)
    known = {**rules(), **{rule.name: rule for rule in tuned}}
    found: Found = {}
    for judge in cell.judges:
        if judge in SETTINGS:
            configs = configured(judge, references, noises, cell.rungs, quality=cell.quality)
            found[judge] = judge_many(configs, traffic, cell.until)
        elif judge in known:
            found[judge] = ruled(known[judge], traffic)
    return found


def _queue(cell: Cell, rng: Rng, count: int) -> Found:
    traffic = queue_traffic(rng, count, **dict(cell.queue))
    configs: list[JudgeConfig] = [
        config_for("rich", rungs=cell.rungs, reference_ttft=r, quality=cell.quality) for r in queue_references(rng, count)
    ]
    return {QUEUE: judge_many(configs, traffic, cell.until)}


def ruled(rule: Rule, traffic: Traffic) -> list[Outcome]:
    """What a rule makes of each rollout."""
    served = traffic.canary_requests()
    found = rule.rolls_back(traffic)
    return [Outcome(None, None) if t == NEVER else Outcome(int(t) + 1, None, int(served[i, t])) for i, t in enumerate(found)]


def tune(base: int, rollouts: int = 600) -> list[tuple[str, float]]:
    """Names and thresholds of the calibrated rules: tuned on rollouts of their own."""
    healthy = IDENTICAL["iid"].traffic(seed(base, "tune"), rollouts)
    return [(rule.name, rule.threshold) for rule in (loose.calibrated(healthy) for loose in tunable())]


def with_thresholds(thresholds: Sequence[tuple[str, float]]) -> list[Rule]:
    """Calibrated rules again from their names and thresholds: a rule itself does not travel between processes."""
    by_name = {f"{rule.name}, calibrated": rule for rule in tunable()}
    return [replace(by_name[name], name=name, threshold=threshold) for name, threshold in thresholds]


def cells(n: int) -> list[Cell]:
    """Every cell, the longest first. `n`: rollouts of identical canaries; the others follow from it."""
    at_margin, some, many = 4 * n // 5, 3 * n // 5, 2 * n
    tools = tuple(rules()) + tuple(f"{rule.name}, calibrated" for rule in tunable())
    ours = tuple(SETTINGS)
    found: list[Cell] = []
    for name, world in IDENTICAL.items():
        found.append(Cell("null", name, world, ours, "fail", n, rungs=4 if world.ramp else 1))
        judge = ours[3] if world.noise else PLAIN
        for margin, change in AT_THE_MARGIN.items():
            found.append(
                Cell("margin", f"{margin}, {name}", replace(world, **change), (judge,), "pass", at_margin, rungs=4 if world.ramp else 1)
            )
    found.append(Cell("null", "1+1 in flight", None, (QUEUE,), "fail", n, rungs=6))
    for margin, change in QUEUE_MARGIN.items():
        found.append(Cell("margin", f"{margin}, 1+1 in flight", None, (QUEUE,), "pass", at_margin, rungs=6, queue=tuple(change.items())))
    found += [Cell("null", name, world, tools, "fail", many) for name, world in IDENTICAL.items()]
    for name, change in WORSE.items():
        worse = replace(IDENTICAL["drift"], **change)
        found.append(Cell("detect", name, worse, ours, "fail", 2 * some if name == "+20 %" else some))
        found.append(Cell("detect", name, worse, tools, "fail", 4 * many if name == "+20 %" else many))
    for name, world in RACE.items():
        found.append(Cell("race", name, world, (PLAIN,), "first", some))
    slow = Drifting(rate=1.0, share=0.05)
    few = ("+20 %", "+50 %", "x2", "tail", "errors 1 %")
    found += [Cell("low traffic", name, replace(slow, **WORSE[name]), (ZERO,), "fail", some) for name in few]
    for name in ("+20 %", "+50 %", "x2"):
        late = replace(IDENTICAL["drift"], onset=60, **WORSE[name])
        for rungs, kind in ((1, "plain"), (4, "restarts each 15 min")):
            found.append(Cell("late onset", f"{name}, {kind}", late, (ZERO,), "fail", some, rungs=rungs))
    return found


def by_chunks(total: int, size: int) -> list[int]:
    """Sizes of the parts a cell is run in."""
    parts = math.ceil(total / size)
    return [min(size, total - i * size) for i in range(parts)]
