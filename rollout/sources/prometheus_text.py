"""Prometheus text to the few series that are wanted. Pure: page in, numbers out.

Lines are chosen by metric name before they are parsed, because a worker's page may hold a megabyte that nobody asked for. What
is not a plain number (NaN, infinite, negative, contradictory, torn) becomes None: unknown, never a default that looks healthy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

INF = math.inf


@dataclass(frozen=True)
class Series:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


class PageError(ValueError):
    """The page holds a wanted line that is not Prometheus text."""


def parse(page: str, names: frozenset[str]) -> list[Series]:
    """The series whose name is in `names`. Raises PageError; pages without such a line give an empty list."""
    wanted = "\n".join(line for line in page.split("\n") if _name(line) in names)
    try:
        found = [Series(s.name, s.labels, float(s.value)) for family in text_string_to_metric_families(wanted) for s in family.samples]
    except (ValueError, LookupError) as error:
        raise PageError(f"not Prometheus text: {error or 'a line is cut'}") from None
    return [series for series in found if series.name in names]


def _name(line: str) -> str:
    """The metric name at the start of a line; comment lines give "#", which is never wanted."""
    line = line.lstrip(" \t")
    end = len(line)
    for stop in "{ \t":
        at = line.find(stop, 0, end)
        end = at if at >= 0 else end
    return line[:end]


def number(value: float) -> float | None:
    """A count or gauge as it may be used: finite and not negative."""
    return value if math.isfinite(value) and value >= 0 else None


def total(series: Iterable[Series]) -> float | None:
    """The sum over label sets (an engine's ranks). A line given twice counts once; twice with different values is unknown."""
    seen: dict[tuple[tuple[str, str], ...], float] = {}
    for one in series:
        value = number(one.value)
        if value is None or seen.setdefault(_key(one), value) != value:
            return None
    return sum(seen.values()) if seen else None


def histogram(buckets: Iterable[Series], counts: Iterable[Series]) -> dict[float, float] | None:
    """Upper bound in seconds -> cumulative count, +Inf included, summed over label sets.

    Without +Inf it is taken from the `_count` lines. None when there are no buckets, the edges of the label sets differ, a bound or a
    count is not a number, or the counts fall (a torn page).
    """
    by_edge: dict[float, list[Series]] = {}
    for one in buckets:
        edge = _edge(one.labels.get("le", ""))
        if edge is None:
            return None
        by_edge.setdefault(edge, []).append(one)
    if not by_edge:
        return None
    if INF not in by_edge:
        by_edge[INF] = list(counts)
    sets = [{_key(one) for one in at_edge} for at_edge in by_edge.values()]
    if not sets[0] or any(keys != sets[0] for keys in sets):
        return None
    summed = {edge: total(by_edge[edge]) for edge in sorted(by_edge)}
    known = {edge: count for edge, count in summed.items() if count is not None}
    torn = any(later < earlier for earlier, later in pairwise(known.values()))
    return None if torn or len(known) != len(summed) else known


def _edge(text: str) -> float | None:
    try:
        edge = float(text)
    except ValueError:
        return None
    return None if math.isnan(edge) else edge


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    """What tells two label sets of one metric apart; the bucket's bound does not."""
    return tuple(sorted((name, value) for name, value in series.labels.items() if name != "le"))
