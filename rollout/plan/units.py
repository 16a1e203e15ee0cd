"""Durations and sizes as people write them. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from rollout.plan.finding import Problem, wrong

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PARTS = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in ("d", "h", r"m(?!s)", "s", "ms")))
_WORDS = {
    "milliseconds": "ms",
    "msecs": "ms",
    "seconds": "s",
    "secs": "s",
    "minutes": "m",
    "mins": "m",
    "hours": "h",
    "hrs": "h",
    "days": "d",
}
LONGEST = 366 * 86400.0
"""seconds; a longer duration is a slip of the pen"""
_DURATION = "a duration such as 30s, 10m, 2h or 1h30m"
_SIZE = "a size such as 8GiB or 500MB"


def parse_duration(value: object) -> float:
    """Seconds from `90s`, `1h30m`, `2.5m`. A bare number other than 0 is refused: the unit must be said.

    Raises PydanticCustomError (a ValueError) with what was expected and, where it can be guessed, what to write instead.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(_DURATION)
    if isinstance(value, int | float):
        if value == 0:
            return 0.0
        raise _wrong(_DURATION, f"say the unit: {value:g}s or {value:g}m" if value > 0 else "")
    text = value.strip()
    if text == "0":
        return 0.0
    match = _PARTS.fullmatch(text) if text else None
    if match is None or not any(match.groups()):
        raise _wrong(_DURATION, _duration_hint(text))
    seconds = sum(float(n) * _SECONDS[u] for n, u in zip(match.groups(), ("d", "h", "m", "s", "ms"), strict=True) if n)
    if seconds > LONGEST:
        raise _wrong("a duration of at most 366d")
    return seconds


def _duration_hint(text: str) -> str:
    match = re.fullmatch(rf"({_NUMBER})\s*([A-Za-z]+)", text)
    if match is None:
        return "say the unit: s, m, h or d" if re.fullmatch(_NUMBER, text) else ""
    word = match[2].lower()
    unit = next((u for w, u in _WORDS.items() if word in (w, w.removesuffix("s"), u)), None)
    return f"write {match[1]}{unit}" if unit else "units are ms, s, m, h and d"


def format_duration(seconds: float) -> str:
    """The shortest exact writing of whole milliseconds: `5400` -> `1h30m`, `0.5` -> `500ms`."""
    if seconds != int(seconds):
        return f"{round(seconds * 1000)}ms"
    rest, text = int(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def parse_bytes(value: object) -> int:
    """Bytes from `8GiB`, `500MB` or an integer. Raises PydanticCustomError (a ValueError)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _wrong(_SIZE)
    if isinstance(value, int):
        return _plausible(value, str(value))
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*", value)
    if match is None:
        raise _wrong(_SIZE)
    if match[2] not in _BYTES:
        stem = match[2].lower().removesuffix("b").removesuffix("i")
        unit = next((u for u in _BYTES if u.endswith("iB") and u[0].lower() == stem), None)
        raise _wrong(_SIZE, f"write {match[1]}{unit}" if unit else "units are KiB, MiB, GiB, TiB, kB, MB, GB and TB")
    size = int(float(match[1]) * _BYTES[match[2]])
    return size if match[2] else _plausible(size, match[1])


def _plausible(size: int, written: str) -> int:
    """A bare number is bytes; one that small was meant with a unit."""
    if 0 < size < _BYTES["MiB"]:
        raise _wrong(_SIZE, f"say the unit: {written}GiB or {written}MiB")
    return size


def format_bytes(size: int) -> str:
    """The largest binary unit that divides `size`: `8589934592` -> `8GiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def _wrong(expected: str, hint: str = "") -> PydanticCustomError:
    return wrong(Problem((), expected, hint=hint))


DURATION_PATTERN = r"^0$|^([0-9]+(\.[0-9]+)?\s*(d|h|m|s|ms)\s*)+$"
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}], "examples": ["30s", "10m", "24h"]}),
]
Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*([KMGT]iB|[kMGT]?B)?$"}],
            "examples": ["8GiB", "500MB"],
        }
    ),
]
