"""Windows as plain JSON and back: what a rollout records, and what can be judged again from it.

A recorded file is lines of JSON: a header that holds `rollout_windows` (the format's number), then one window a line. Only the shape is
known here; files are opened elsewhere.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, get_args

from rollout.analysis.config import LATENCIES
from rollout.analysis.samples import ArmWindow, Histogram, ProbePair, QualityPair, Status, Window

FORMAT = 1
_ARM = {f.name for f in fields(ArmWindow)}
_WINDOW = {f.name for f in fields(Window)}


def window_to_json(window: Window) -> dict[str, Any]:
    """Plain JSON values; `window_from_json` gives an equal window back."""
    return asdict(window)


def window_from_json(data: Mapping[str, Any]) -> Window:
    """The inverse of `window_to_json`; keys a newer release added are left out. ValueError names the key that is missing or wrong."""
    values: dict[str, Any] = {key: value for key, value in data.items() if key in _WINDOW}
    for key in ("id", "rung", "seconds", "stable", "canary"):
        if key not in values:
            raise ValueError(f"`{key}` is missing")
    for key in ("stable", "canary"):
        values[key] = _told(key, lambda k=key: _arm(values[k]))
    for key, kind in (("pairs", ProbePair), ("quality", QualityPair)):
        values[key] = _told(key, lambda k=key, of=kind: tuple(of(**row) for row in values.get(k) or ()))
    if values.get("share_counts") is not None:
        values["share_counts"] = _told("share_counts", lambda: tuple(values["share_counts"]))
    return Window(**values)


def _arm(data: Mapping[str, Any]) -> ArmWindow:
    values: dict[str, Any] = {key: value for key, value in data.items() if key in _ARM}
    for metric in LATENCIES:
        found = values.get(metric)
        values[metric] = Histogram(tuple(map(float, found["edges"])), tuple(found["counts"])) if found else None
    if values.get("status", "OK") not in get_args(Status):
        raise ValueError(f"status {values['status']!r} is none of {', '.join(get_args(Status))}")
    return ArmWindow(**values)


def _told(key: str, read: Any) -> Any:
    try:
        return read()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"`{key}`: {said}") from None
