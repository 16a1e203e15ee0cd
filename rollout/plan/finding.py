"""What is wrong with a plan, in parts that a screen, an editor or a script can use. Pure; prints nothing.

A `Problem` is relative to a part of the plan and is raised by the model; a `Finding` has a place in a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the plan: `("stable", 0, "deployment")`."""

_LONGEST_WORD = 64
"""characters; comparing longer words costs time and helps nobody"""


@dataclass(frozen=True)
class Problem:
    """One thing that a part of the plan contradicts; `path` is relative to that part."""

    path: Path
    expected: str
    found: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a file. Line and column count from 1; `key` is the path as people write it."""

    file: str
    line: int
    column: int
    key: str
    expected: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " + (f"{self.key}: " if self.key else "")
        said = f"expected {self.expected}" + (f", found {self.found}" if self.found else "")
        return place + said + (f" ({self.hint})" if self.hint else "")


def wrong(*problems: Problem) -> PydanticCustomError:
    """The error a validator raises: all problems of one part at once."""
    text = "; ".join(f"expected {p.expected}" + (f", found {p.found}" if p.found else "") for p in problems)
    return PydanticCustomError("plan", "{text}", {"text": text, "problems": problems})


def key_of(path: Path) -> str:
    """`("stable", 0, "deployment")` -> `stable[0].deployment`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word a person most likely meant; forgives case, dashes and camelCase. None when nothing is near."""
    if not word or len(word) > _LONGEST_WORD:
        return None
    plain = {_plain(k): k for k in known}
    close = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None


def _plain(word: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower().replace("-", "_").replace(" ", "_")


def one_of(words: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{w}`" for w in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" or {quoted[-1]}"
