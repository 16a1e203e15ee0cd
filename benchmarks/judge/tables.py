"""What was found beside what was published: "found ± sampling error (published)", and a ! where they are more than 3 sigma apart."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.judge import published
from benchmarks.judge.claims import Needed
from benchmarks.judge.experiments import PLAIN, RACE, ZERO
from benchmarks.judge.lockstep import SETTINGS, Outcome

Results = dict[tuple[str, str, str], list[Outcome]]  # by table, row, judge
_LEAST = 10.0  # canary requests: a published median is read from windows of 30


def rate(hits: int, total: int, known: float | None, reps: int) -> str:
    """A share in %, its standard error, the published share, the flag."""
    share = hits / total
    error = math.sqrt(share * (1 - share) / total)
    text = f"{100 * share:.1f}±{100 * error:.1f}"
    if known is None:
        return text
    both = (hits + known * reps) / (total + reps)
    sigma = math.sqrt(both * (1 - both) * (1 / total + 1 / reps))
    return f"{text} ({100 * known:g}){'!' if abs(share - known) > 3 * sigma + 1e-9 else ''}"


def middle(values: Sequence[float], known: float | None, q: float = 0.5, least: float = _LEAST) -> str:
    """A quantile, its standard error from the order statistics around it, the published one, the flag."""
    if not values:
        return "-" if known is None else f"- ({known:g})!"
    found, error = float(np.quantile(values, q)), spread(values, q)
    text = f"{found:.4g}±{error:.2g}"
    if known is None:
        return text
    sigma = max(error * math.sqrt(1 + len(values) / published.OTHER_REPS), least)
    return f"{text} ({known:g}){'!' if abs(found - known) > 3 * sigma else ''}"


def spread(values: Sequence[float], q: float) -> float:
    """Half the distance between the order statistics one standard error of rank apart on each side."""
    half = math.sqrt(q * (1 - q) / len(values))
    low, high = np.quantile(values, [max(0.0, q - half), min(1.0, q + half)])
    return float(high - low) / 2


def failed(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those that were rolled back."""
    return [o for o in outcomes if o.failed is not None]


def print_null(results: Results) -> None:
    """False rollbacks by judge and world."""
    rows = []
    for judge, known in published.FALSE_ROLLBACK.items():
        cells = [
            rate(len(failed(results["null", w, judge])), len(results["null", w, judge]), k, published.NULL_REPS)
            for w, k in zip(published.WORLDS, known, strict=True)
        ]
        rows.append([judge, *cells])
    _print("False rollback over a whole rollout, canary identical, %", ["judge", *published.WORLDS], rows)


def print_detect(results: Results) -> None:
    """Power and canary requests by judge and change."""
    power, requests = [], []
    for judge, known in published.DETECT.items():
        found = [results["detect", change, judge] for change in published.CHANGES]
        power.append([judge, *(rate(len(failed(o)), len(o), k, published.OTHER_REPS) for o, (k, _) in zip(found, known, strict=True))])
        shown = []
        for outcomes, (_, median) in zip(found, known, strict=True):
            enough = 2 * len(failed(outcomes)) >= len(outcomes)
            shown.append(middle([o.fail_requests for o in failed(outcomes)], median) if enough or median else "-")
        requests.append([judge, *shown])
    _print("Rollback of a worse canary under drift, %", ["judge", *published.CHANGES], power)
    _print("Canary requests until that rollback, median", ["judge", *published.CHANGES], requests)


def print_race(results: Results) -> None:
    """FAIL against PASS, tolerated 5 %."""
    rows = []
    for row in RACE:
        outcomes = results["race", row, PLAIN]
        passed, lost = ([o for o in outcomes if o.kind == kind] for kind in ("pass", "fail"))
        known = published.RACE[row]
        shares = [rate(len(some), len(outcomes), k, published.OTHER_REPS) for some, k in ((passed, known[0]), (lost, known[1]))]
        asked = published.RACE_REQUESTS.get(row)
        requests = middle([o.pass_requests for o in passed], asked) if asked or len(passed) > len(outcomes) / 2 else "-"
        rows.append([row, *shares, rate(len(outcomes) - len(passed) - len(lost), len(outcomes), None, 1), requests])
    _print("PASS race, tolerated 5 %, drift, %", ["canary", "promoted", "rolled back", "undecided", "requests to promote"], rows)


def print_low_and_late(results: Results) -> None:
    """One request a second; and changes that begin at minute 30."""
    rows = []
    for row, (power, minutes) in published.LOW_TRAFFIC.items():
        outcomes = results["low traffic", row, ZERO]
        lost = failed(outcomes)
        times = [(o.failed or 0) / 2 for o in lost]
        found = middle(times, minutes, least=0.5) if minutes or 2 * len(lost) > len(outcomes) else "-"
        rows.append([row, rate(len(lost), len(outcomes), power, published.OTHER_REPS), found])
    _print("Low traffic: 1 request/s, 5 % canary, one hour, tolerated 0", ["canary", "rolled back, %", "minutes, median"], rows)
    rows = []
    for row, known in published.LATE_MINUTES.items():
        outcomes = results["late onset", row, ZERO]
        late = [(o.failed or 0) / 2 - 30 for o in failed(outcomes) if (o.failed or 0) > 60]
        rows.append([row, rate(len(late), len(outcomes), None, 1), middle(late, known, least=0.5)])
    _print("Late onset: worse from minute 30 on, tolerated 0, drift", ["canary", "rolled back, %", "minutes after, median"], rows)


def print_needed(needed: dict[str, Needed]) -> None:
    """Requests or pairs until one claim is proved."""
    rows = []
    for name, (power, median, most) in published.NEEDED.items():
        values = needed[name]
        found = [v for v in values if v is not None]
        usual = 2 * len(found) >= len(values)
        unit = {"probes": "pairs", "quality": "pairs", "memory": "minutes"}.get(name.split()[0], "canary requests")
        low = _LEAST if unit == "canary requests" else 1.0
        rows.append(
            [
                name,
                unit,
                rate(len(found), len(values), power, published.NULL_REPS if power and power < 0.5 else published.OTHER_REPS),
                middle(found, median, least=low) if usual or median else "-",
                middle(found, most, 0.9, least=low) if usual else "-",
            ]
        )
    _print(
        "Until one claim is proved, canary identical unless said, smooth traffic",
        ["claim", "in", "proved, %", "median", "90th percentile"],
        rows,
    )


def print_margins(results: Results) -> None:
    """Promotions at each unacceptable margin; a rollback before does not end the rollout here."""
    rows = []
    for (table, row, judge), outcomes in results.items():
        if table == "margin":
            whole = sum(o.kind == "pass" for o in outcomes)
            proved = sum(o.passed is not None for o in outcomes)
            rows.append([row, judge, rate(proved, len(outcomes), None, 1), rate(whole, len(outcomes), None, 1)])
    _print(
        "False promotion exactly at an unacceptable margin, %",
        ["canary, traffic", "judge", "PASS ever proved", "promoted (no FAIL before)"],
        rows,
    )


def print_detect20(results: Results) -> None:
    """The four settings against the Kayenta-like rule."""
    rows = []
    base = detect20(results, "Kayenta-like")
    for setting in SETTINGS:
        mine = detect20(results, setting)
        rows.append([setting, f"{mine:.0f}", f"{mine / base:.2f}", f"{mine / published.KAYENTA_20:.2f}"])
    head = ["setting", "canary requests", "of the Kayenta-like rule here", "of its published figure"]
    _print("+20 % under drift: canary requests of our four settings", head, rows)


def detect20(results: Results, judge: str) -> float:
    """Median canary requests until +20 % is rolled back; nan when it is not."""
    found = [o.fail_requests for o in failed(results["detect", "+20 %", judge])]
    return float(np.median(found)) if found else math.nan


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    print(f"\n## {title}\n")
    for row in [head, *rows]:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
