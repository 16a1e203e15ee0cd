"""The recording of what a judge saw, as lines of text and back: what `rollout windows` writes and `rollout judge --windows` reads.

Each attempt begins with a header line that holds `rollout_windows` (the format's number), the judge's config and whose windows follow;
then one window a line, oldest first. A window may carry when it was closed (`at`) and what was said then (`verdict`). Files may be joined
end to end: the next header begins the next attempt, and evidence is never carried over it. Pure: lines in, lines out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rollout.analysis.config import LATENCIES, JudgeConfig
from rollout.analysis.recorded import FORMAT, window_from_json, window_to_json
from rollout.analysis.samples import Window, is_number

Json = Any
HEADER = "rollout_windows"
_NEEDED = ("mode", "rungs", "tolerated_latency", "unacceptable_latency", "unacceptable_errors", "v", "phi", "guaranteed")
_NUMBERS = ("seconds", "load_ratio", "expected_share", "memory_available")
MOST_REQUESTS = 1_000_000
"""of one side in one window"""
_AGAIN = "write the recording again with `rollout windows ID --out FILE`"


class Unreadable(ValueError):
    """A line that is no part of a recording. `line` counts from 1; `key` is empty where the whole line is meant; `remedy`: what to do."""

    def __init__(self, line: int, key: str, what: str, remedy: str = _AGAIN) -> None:
        super().__init__(what)
        self.line, self.key, self.what, self.remedy = line, key, what, remedy


@dataclass(frozen=True)
class Look:
    """One recorded window. `said`: kind and sentence of the verdict that was given after it, None where that was not kept."""

    window: Window
    at: str | None = None
    said: tuple[str, str] | None = None


@dataclass(frozen=True)
class Attempt:
    """Everything one judge saw, from its config on. `about`: whose windows these are (rollout, route, target, stable, canary, attempt,
    began); any key may be missing.
    """

    config: JudgeConfig
    looks: tuple[Look, ...]
    about: Mapping[str, Json] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Who was compared with whom."""
        return f"{self.about.get('canary') or 'canary'} against {self.about.get('stable') or 'stable'}"


def written(attempts: Iterable[Attempt]) -> Iterator[str]:
    """The lines of a recording, without line ends."""
    for attempt in attempts:
        yield _line({HEADER: FORMAT, **attempt.about, "config": attempt.config.to_json()})
        for look in attempt.looks:
            row = window_to_json(look.window)
            row |= {"at": look.at} if look.at else {}
            row |= {"verdict": {"kind": look.said[0], "sentence": look.said[1]}} if look.said else {}
            yield _line(row)


def read(lines: Iterable[str]) -> tuple[Attempt, ...]:
    """The attempts of a recording. Raises Unreadable at the first line that is no part of one; nothing is guessed or left out."""
    attempts: list[Attempt] = []
    looks: list[Look] = []
    begun: tuple[JudgeConfig, dict[str, Json]] | None = None
    number = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        row = _object(number, text)
        if HEADER in row:
            if begun:
                attempts.append(Attempt(begun[0], tuple(looks), begun[1]))
            begun, looks = _header(number, row), []
        elif begun is None:
            what = f"the first line is no header: it has no `{HEADER}`"
            raise Unreadable(number, HEADER, what, f"{_AGAIN}; a file of bare windows needs the header of its rollout before them")
        else:
            looks.append(_look(number, row, looks[-1] if looks else None))
    if begun is None:
        raise Unreadable(max(number, 1), HEADER, "the file is empty")
    return (*attempts, Attempt(begun[0], tuple(looks), begun[1]))


def _line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _object(number: int, text: str) -> dict[str, Json]:
    try:
        row = json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        whole = text.rstrip().endswith("}") and text.lstrip().startswith("{")
        cut = "" if whole else "; the line looks cut off or is no JSON at all"
        before = f", or judge only the lines before this one: `head -n {number - 1}`" if number > 1 else ""
        raise Unreadable(number, "", f"the line is no JSON: {error}{cut}", f"{_AGAIN}{before}") from None
    if not isinstance(row, dict):
        raise Unreadable(number, "", f"the line holds {_kind(row)}, not an object")
    return row


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _header(number: int, row: dict[str, Json]) -> tuple[JudgeConfig, dict[str, Json]]:
    form = row[HEADER]
    if form != FORMAT or isinstance(form, bool):
        remedy = "read it with the release that wrote it, or export it again with this one"
        raise Unreadable(number, HEADER, f"the recording has format {form!r}, this release reads {FORMAT}", remedy)
    config = row.get("config")
    if not isinstance(config, dict):
        raise Unreadable(number, "config", f"the header holds {_kind(config)} where the judge's config belongs")
    for key in _NEEDED:
        if key not in config:
            raise Unreadable(number, f"config.{key}", "the judge's config lacks it")
    try:
        known = JudgeConfig.from_json(config)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise Unreadable(number, "config", f"the judge's config cannot be used: {error}") from None
    return known, {key: value for key, value in row.items() if key not in (HEADER, "config")}


def _look(number: int, row: dict[str, Json], before: Look | None) -> Look:
    for key in _NUMBERS:
        _checked(number, key, row.get(key), lambda v: v is None or is_number(v), "a number")
    _checked(number, "pairs", row.get("pairs"), lambda v: v is None or isinstance(v, list), "a list")
    for n, pair in enumerate(row.get("pairs") or ()):
        for key in ("stable_ttft", "canary_ttft"):
            seen = pair.get(key) if isinstance(pair, dict) else None
            _checked(number, f"pairs[{n}].{key}", seen, lambda v: v is None or is_number(v), "a number")
    _checked(number, "share_counts", row.get("share_counts"), lambda v: v is None or (isinstance(v, list) and len(v) == 2), "two counts")
    try:
        window = window_from_json(row)
        _sized(window)
    except (TypeError, ValueError, OverflowError) as error:
        key = str(error).partition("`")[2].partition("`")[0]
        raise Unreadable(number, key, str(error)) from None
    if before is not None and window.id <= before.window.id:
        what = f"window {window.id} comes after window {before.window.id}: a window counts once, and ids rise"
        raise Unreadable(number, "id", what, f"leave the repeated line out, put the header of its attempt before it, or {_AGAIN}")
    if before is not None and window.rung < before.window.rung:
        raise Unreadable(number, "rung", f"rung {window.rung} comes after rung {before.window.rung}: within an attempt rungs only rise")
    said = row.get("verdict")
    whole = {"kind", "sentence"}
    _checked(number, "verdict", said, lambda v: v is None or (isinstance(v, dict) and whole <= set(v)), "an object with kind and sentence")
    return Look(window, row.get("at"), (str(said["kind"]), str(said["sentence"])) if said else None)


def _sized(window: Window) -> None:
    """Counts up to what a window can hold: the evidence of more would take longer than anybody waits."""
    for name, arm in (("stable", window.stable), ("canary", window.canary)):
        totals = [h.total for metric in LATENCIES if (h := arm.histogram(metric)) is not None]
        if max(arm.requests, *totals, 0) > MOST_REQUESTS:
            raise ValueError(f"`{name}`: more than {MOST_REQUESTS:,} requests in one window")


def _checked(number: int, key: str, value: Json, right: Callable[[Json], bool], wanted: str) -> None:
    try:
        good = right(value)
    except TypeError:
        good = False
    if not good:
        raise Unreadable(number, key, f"`{key}` holds {_kind(value)}, not {wanted}")


def _kind(value: Json) -> str:
    known = {dict: "an object", list: "a list", str: "a text", type(None): "nothing", bool: "yes or no"}
    return known.get(type(value), f"{value!r}")
