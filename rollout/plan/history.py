"""What a history must look like: windows in which the same thing was measured against itself, as a rollout records them. Pure.

The format is `analysis.recorded`'s: a header line, then one window a line. Only what the replica's noise is fitted on is kept; the rest
of a window says nothing here, and the plan stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from rollout.plan.finding import Problem, wrong

Json = Any
FORMAT = 1
MOST = 500
"""windows: four hours of 30 s; a plan is stored and sealed with them, so every tick pays for them"""
KEPT = ("id", "rung", "seconds", "stable", "canary", "weight_changed", "load_ratio")
LEAST = 40
"""windows without a restart or a weight change and under equal load: with fewer nothing is fitted"""
EQUAL = (0.8, 1.25)
"""load ratios that count as equal load"""
SAME = 1.5
"""times by which the windows of a history may be longer or shorter than those of the plan: noise is counted in windows"""
ARMS = ("stable", "canary")
LATENCIES = ("ttft", "e2e", "tpot")
STATUSES = ("OK", "NO_TRAFFIC", "NO_METRIC", "METRIC_ERROR")


def recorded(rows: tuple[dict[str, Json], ...]) -> tuple[dict[str, Json], ...]:
    """The rows, reduced to what is used. Raises one error with everything that is wrong."""
    found = list(problems(rows))
    if found:
        raise wrong(*found)
    return (rows[0], *({key: row[key] for key in KEPT if key in row} for row in rows[1:]))


def problems(rows: Sequence[Mapping[str, Json]]) -> Iterator[Problem]:
    """What is wrong with the rows of a history, the number of the row first."""
    if not rows or rows[0].get("rollout_windows") != FORMAT:
        found = (
            "nothing" if not rows else f"`rollout_windows: {rows[0].get('rollout_windows')}`" if "rollout_windows" in rows[0] else "none"
        )
        hint = "`rollout_windows: 1` is the format; a rollout's own recording has it"
        yield Problem((0, "rollout_windows") if rows else (), "a header as the first line", found, hint)
        return
    if len(rows) > MOST + 1:
        yield Problem((MOST + 1,), f"at most {MOST} windows", f"{len(rows) - 1}", "keep the last ones")
        return
    yield from list(_shapes(rows)) or list(_repeats(rows)) or _few(rows)


def _shapes(rows: Sequence[Mapping[str, Json]]) -> Iterator[Problem]:
    for number, row in enumerate(rows[1:], 1):
        yield from (Problem((number, *p.path), p.expected, p.found, p.hint) for p in _window(row))


def _few(rows: Sequence[Mapping[str, Json]]) -> Iterator[Problem]:
    good = sum(map(_usable, rows[1:]))
    if good < LEAST:
        hint = (
            "those with a restart, a weight change or unequal load do not count; record it for longer, on a rung where both carry the same"
        )
        yield Problem((0,), f"at least {LEAST} windows that can be compared", f"{good} of {len(rows) - 1}", hint)


def _repeats(rows: Sequence[Mapping[str, Json]]) -> Iterator[Problem]:
    """Windows that were copied or put in another order: noise is fitted on what followed what, each window once."""
    for number, (before, row) in enumerate(pairwise(rows[1:]), 2):
        if row["id"] <= before["id"]:
            yield Problem((number, "id"), f"more than {before['id']}: ids rise", f"`{row['id']}`", "each window once, in its own order")
            return
    seen = [{key: row[key] for key in ARMS} for row in rows[1:] if _usable(row)]
    if len(seen) >= LEAST and all(one == seen[0] for one in seen) and seen[0]["stable"]["requests"]:
        yield Problem((1,), "windows that differ", "the same counts in every window", "record it from a real rollout, under traffic")


def misfit(rows: Sequence[Mapping[str, Json]], seconds: float) -> Problem | None:
    """Windows of another length than those that will be judged."""
    typical = median(row["seconds"] for row in rows[1:] if _usable(row))
    if typical and 1 / SAME <= typical / seconds <= SAME:
        return None
    return Problem(
        ("history",), f"windows about as long as `window` ({seconds:g}s)", f"windows of {typical:.3g} s", "record it with this `window`"
    )


def _usable(row: Mapping[str, Json]) -> bool:
    calm = not (row.get("weight_changed") or row["stable"].get("restarts") or row["canary"].get("restarts"))
    ratio = row.get("load_ratio")
    return calm and ratio is not None and EQUAL[0] <= ratio <= EQUAL[1]


def _window(row: Mapping[str, Json]) -> Iterator[Problem]:
    for key in ("id", "rung"):
        if not _count(row.get(key)):
            yield _not(row, (key,), "a whole number of at least 0")
    if not _number(row.get("seconds")) or row["seconds"] < 0:
        yield _not(row, ("seconds",), "seconds, at least 0")
    if row.get("load_ratio") is not None and not _number(row["load_ratio"]):
        yield _not(row, ("load_ratio",), "a number, or null where nothing is compared")
    if not isinstance(row.get("weight_changed", False), bool):
        yield _not(row, ("weight_changed",), "`true` or `false`")
    for key in ARMS:
        arm = row.get(key)
        if not isinstance(arm, Mapping):
            yield _not(row, (key,), "the counts of this side, a mapping")
        else:
            yield from (Problem((key, *p.path), p.expected, p.found, p.hint) for p in _arm(arm))


def _arm(arm: Mapping[str, Json]) -> Iterator[Problem]:
    for key in ("requests", "errors"):
        if not _count(arm.get(key)):
            yield _not(arm, (key,), "a whole number of at least 0")
    if _count(arm.get("requests")) and _count(arm.get("errors")) and arm["errors"] > arm["requests"]:
        yield _not(arm, ("errors",), f"at most `requests` ({arm['requests']})")
    if not _count(arm.get("restarts", 0)):
        yield _not(arm, ("restarts",), "a whole number of at least 0")
    if arm.get("memory_used") is not None and not _count(arm["memory_used"]):
        yield _not(arm, ("memory_used",), "bytes, or null where nobody knows")
    if arm.get("status", "OK") not in STATUSES:
        yield _not(arm, ("status",), " or ".join(f"`{status}`" for status in STATUSES))
    for metric in LATENCIES:
        if arm.get(metric) is not None:
            wrong_with = _histogram(arm[metric])
            if wrong_with:
                yield Problem((metric,), "`edges` that rise and one more `counts` than edges", wrong_with)


def _histogram(found: Json) -> str:
    """What is wrong with a histogram; empty when nothing is."""
    if not isinstance(found, Mapping) or not all(isinstance(found.get(key), list | tuple) for key in ("edges", "counts")):
        return "no histogram"
    edges, counts = found["edges"], found["counts"]
    if not all(map(_number, edges)) or any(high <= low for low, high in pairwise(edges)):
        return "edges that do not rise"
    if not all(map(_count, counts)):
        return "counts that are no whole numbers of at least 0"
    return "" if len(counts) == len(edges) + 1 else f"{len(edges)} edges and {len(counts)} counts"


def _not(row: Mapping[str, Json], path: tuple[str, ...], expected: str) -> Problem:
    value = row.get(path[-1])
    found = "nothing" if path[-1] not in row else f"`{value}`" if isinstance(value, str | int | float | None) else "another value"
    return Problem(path, expected, found[:80])


def _count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
