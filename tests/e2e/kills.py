"""One rollout that is killed again and again, at seeded moments of its six steps, and gone on with by the same command.

The judge's own end is not waited for: a person promotes after some windows, so that a rollout takes seconds.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.site import Site
from tests.e2e.support import Case, Row, case, kill

STEPS = {"declare": 6, "stage": 18, "attach": 13, "canary": 16, "shift": 14, "cleanup": 8}
"""the six steps, and about how many journal rows each has"""
WINDOWS = 2
"""measuring windows after which a person promotes"""
LATE = 0.4
"""seconds at most between a journal row and the kill"""


@dataclass(frozen=True)
class Moment:
    """Where a life ends: so many journal rows after a step was entered, and so many seconds later."""

    step: str
    rows: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.step}+{self.rows} rows+{self.seconds:.2f} s"


def moments(rng: random.Random, count: int) -> list[Moment]:
    """`count` moments in the order in which a rollout meets them."""
    order = list(STEPS)
    found = [Moment(s, rng.randrange(STEPS[s]), rng.uniform(0, LATE)) for s in rng.choices(order, k=count)]
    return sorted(found, key=lambda m: (order.index(m.step), m.rows))


def spread(rng: random.Random, rollouts: int, kills: int) -> list[list[Moment]]:
    """Moments for several rollouts; together they meet every step, and early enough in it that a slow machine is not past it."""
    while True:
        found = [moments(rng, kills) for _ in range(rollouts)]
        if {m.step for each in found for m in each if 2 * m.rows <= STEPS[m.step]} == set(STEPS):
            return found


@dataclass
class Killed:
    """A rollout, its kills, and what was seen between them."""

    case: Case
    moments: list[Moment]
    kills: list[str] = field(default_factory=list)
    promoted: bool = False

    def drive(self) -> None:
        """Start, kill at each moment, start again; in the end let it finish."""
        for moment in self.moments:
            process = self.case.run()
            while not self._there(moment) and process.poll() is None:
                self._promote()
                time.sleep(0.02)
            time.sleep(moment.seconds)
            where = str(self.case.state().get("step", "declare"))
            if kill(process):
                self.kills.append(where)
            else:
                assert process.returncode == 0, self.case.said(process)
            self.single()
        process = self.case.run()
        while process.poll() is None:
            self._promote()
            time.sleep(0.05)
        assert process.returncode == 0, self.case.said(process)
        self.single()

    def _there(self, moment: Moment) -> bool:
        steps, order = rows_by_step(self.case.journal()), list(STEPS)
        later = any(steps[s] for s in order[order.index(moment.step) + 1 :])
        return later or steps[moment.step] > moment.rows

    def _promote(self) -> None:
        windows = sum(row["text"].startswith("window ") for row in self.case.journal())
        if windows >= WINDOWS and not self.promoted:
            self.promoted = True
            done = self.case.command("promote", self.case.id, "--reason", "the judge has tests of its own")
            assert done.returncode == 0, done.stderr

    def single(self) -> None:
        """Never two rollouts, two deployments, two private routes or two targets of one name."""
        assert len(self.case.ids()) <= 1
        for names in (self.case.made(), [name for name, _ in self.case.targets()]):
            assert len(names) == len(set(names)), names
        assert self.case.targets(), "the route is empty"


def rows_by_step(journal: list[Row]) -> Counter[str]:
    """How many journal rows each step has. The row that enters a step belongs to it."""
    counted, step = Counter[str](), "declare"
    for row in journal:
        step = str(row["data"]["step"]) if row["kind"] == "step" else step
        counted[step] += 1
    return counted


def end(done: Case) -> Row:
    """How a rollout ended, in words that are the same for every route."""
    rollout_id = done.id
    journal = done.journal()
    seen = {k: v for k, v in done.shape()["route"].items() if k not in ("id", "name", "created_at")}
    named = [n.replace(done.stable, "STABLE").replace(rollout_id[:8], "ID") for n in [*done.made(), *(t for t, _ in done.targets())]]
    done_verbs = Counter(row["data"]["effect"]["verb"] for row in journal if row["kind"] == "intent" and not _measures(row))
    return {
        "phase": done.state()["phase"],
        "exit": done.state()["exit_code"],
        "named": named,
        "weights": [w for _, w in done.targets()],
        "route": seen,
        "stable": len(done.shape()["stable"]),
        "steps": [row["data"]["step"] for row in journal if row["kind"] == "step"],
        "verbs": sorted(done_verbs),
    }


def _measures(row: Row) -> bool:
    return row["data"]["effect"]["verb"] in ("probe", "warm_up", "verify_share", "probe_pairs", "replay_pairs", "stage_cell")


def nothing_twice(done: Case) -> None:
    """Every intent has its outcome, the chain holds, and the sandbox saw each thing made once."""
    open_intents = 0
    for row in done.journal():
        open_intents += {"intent": 1, "outcome": -1}.get(row["kind"], 0)
        assert open_intents in (0, 1)
    assert open_intents == 0
    verified = done.command("journal", done.id, "--verify")
    assert verified.returncode == 0, verified.stderr
    took = [w for w in done.writes() if w["status"] == 200]
    born = Counter(w["body"]["name"] for w in took if w["method"] == "POST" and done.id[:8] in str(w["body"].get("name")))
    assert set(born.values()) <= {1}, born
    route = f"/v2/model-routes/{done.row['id']}"
    entries = [target for w in took if w["path"] == route for target in w["body"].get("targets", [])]
    joined = Counter(target["model_id"] for target in entries if "id" not in target)
    assert set(joined.values()) <= {1}, joined


def massacre(site: Site, home: Path, seed: int, rollouts: int, kills: int) -> tuple[int, Counter[str]]:
    """Several rollouts at once on one store, all killed, and one that is left alone; how many SIGKILLs, and in which steps."""
    rng = random.Random(seed)
    plans: list[list[Moment]] = [*spread(rng, rollouts, kills), []]
    print(f"seed {seed}: " + "; ".join(", ".join(map(str, each)) for each in plans if each))
    with ExitStack() as stack, ThreadPoolExecutor(len(plans)) as pool:
        cases = [stack.enter_context(case(site, home)) for _ in plans]
        killed = [Killed(each, plan) for each, plan in zip(cases, plans, strict=True)]
        for done in [pool.submit(each.drive) for each in killed]:
            done.result()
        *ends, undisturbed = [end(each) for each in cases]
        assert undisturbed["phase"] == "completed"
        for each, found in zip(cases, ends, strict=False):
            assert found == undisturbed, each.route
            nothing_twice(each)
        return sum(len(k.kills) for k in killed), Counter(step for k in killed for step in k.kills)
