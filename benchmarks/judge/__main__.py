"""`python -m benchmarks.judge [--quick] [--reps N] [--only WORD] [--seed N]`: tables, bars, one last line. Exit 1 when a bar is broken.

--quick: at most 12 minutes on two idle cores, 250 identical canaries a cell; without it four times as many. --only: no tables, no bars.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the two processes are the parallelism

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any

from benchmarks.judge import bars, claims, experiments, tables
from benchmarks.judge.experiments import Cell, Prepared
from benchmarks.judge.lockstep import configured, single_differs
from benchmarks.judge.speed import measured, spoken
from benchmarks.judge.worlds import Drifting
from rollout.analysis import Histogram

CHUNK = 50
WORKERS = 2
SAME = 20  # rollouts on which the batch path is held against the single path
_STARTED = time.monotonic()


def main() -> int:
    """Runs everything and prints it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer replications")
    parser.add_argument("--reps", type=int, help="rollouts of each identical canary (250 with --quick, else 1000); the other cells follow")
    parser.add_argument("--only", default="", help="only the cells whose table or row contains this word; no bars")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    reps = options.reps or (250 if options.quick else 1000)
    cells = [c for c in experiments.cells(reps) if options.only in f"{c.table}: {c.row}"]
    with get_context("fork").Pool(WORKERS) as pool:
        results, needed = _everything(pool, cells, 0 if options.only else 3 * reps // 5, options.seed)
        same = pool.starmap(_differing, [(half, options.seed) for half in range(2)])
    if options.only:
        for (table, row, judge), outcomes in results.items():
            lost = tables.failed(outcomes)
            won = [o for o in outcomes if o.passed is not None]
            shares = [tables.rate(len(some), len(outcomes), None, 1) for some in (lost, won)]
            requests = [tables.middle(v, None) for v in ([o.fail_requests for o in lost], [o.pass_requests for o in won])]
            print(f"{table}: {row}: {judge}: failed {shares[0]} % after {requests[0]}, PASS proved {shares[1]} % after {requests[1]}")
        return 0
    for shown in (tables.print_null, tables.print_detect, tables.print_detect20, tables.print_race, tables.print_low_and_late):
        shown(results)
    tables.print_needed(needed)
    tables.print_margins(results)
    _note("speed")
    speed = measured()
    print(spoken(speed))
    differing = sum(count for count, _ in same)
    apart = max(largest for _, largest in same)
    print(f"batch and single path: {differing} of {SAME} rollouts differ (evidence apart by at most {apart:.0e}); {_spent()}")
    found = bars.check(results, differing, speed)
    for text in found.broken:
        print(f"BROKEN: {text}")
    print(found.line)
    return 1 if found.broken else 0


def _everything(pool: Pool, cells: list[Cell], claimed: int, base: int) -> tuple[tables.Results, dict[str, claims.Needed]]:
    most = max((c.reps for c in cells if c.before is not None), default=0)
    sizes = experiments.by_chunks(most, CHUNK)
    kinds = sorted({c.before for c in cells if c.before is not None})
    asked = [(kind, chunk, size, base) for kind in kinds for chunk, size in enumerate(sizes)]
    tuning = pool.apply_async(experiments.tune, (base,))
    before = dict(zip([a[:2] for a in asked], pool.starmap(experiments.prepare, asked, chunksize=1), strict=True))
    tuned = tuning.get()
    _note("prepared; calibrated thresholds: " + ", ".join(f"{name} {threshold:.3g}" for name, threshold in tuned))
    tasks: list[tuple[Any, ...]] = []
    for cell in cells:
        for chunk, size in enumerate(experiments.by_chunks(cell.reps, CHUNK)):
            ready: Prepared | None = before[cell.before, chunk] if cell.before is not None else None
            tasks.append(("cell", cell, chunk, size, ready, tuned, base))
    sizes = experiments.by_chunks(claimed, CHUNK)
    tasks += [("claim", name, chunk, size, base) for name in claims.names() for chunk, size in enumerate(sizes)]
    results: tables.Results = {}
    needed: dict[str, claims.Needed] = {}
    for done, (task, found) in enumerate(_ordered(pool, tasks), start=1):
        if task[0] == "claim":
            needed.setdefault(task[1], []).extend(found)
        else:
            for judge, outcomes in found.items():
                results.setdefault((task[1].table, task[1].row, judge), []).extend(outcomes)
        if done % 25 == 0:
            _note(f"{done} of {len(tasks)} parts")
    return results, needed


def _ordered(pool: Pool, tasks: list[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    return zip(tasks, pool.imap(_task, tasks), strict=True)


def _task(task: tuple[Any, ...]) -> Any:
    if task[0] == "claim":
        return claims.needed(*task[1:])
    _, cell, chunk, size, ready, thresholds, base = task
    return experiments.run(cell, chunk, size, ready, experiments.with_thresholds(thresholds), base)


def _differing(half: int, base: int) -> tuple[int, float]:
    """Batch against single path on half of SAME rollouts: one half without and one with replica noise, over a ramp."""
    rng = experiments.seed(base, "same", half)
    world = Drifting(ramp=True, slow=1.05)
    references: list[Histogram] = world.references(rng, SAME // 2)
    setting = ("tolerated 5 %, v=0", "tolerated 5 %, fitted")[half]
    configs = configured(setting, references, [(0.05, 0.8)] * len(references), rungs=4)
    return single_differs(configs, world.traffic(rng, SAME // 2))


def _spent() -> str:
    """Wall clock, and what it would be with two cores to ourselves."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return f"{time.monotonic() - _STARTED:.0f} s in all, {sum(u.ru_utime + u.ru_stime for u in used):.0f} s of processor time"


def _note(text: str) -> None:
    print(f"[{time.monotonic() - _STARTED:.0f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
