"""A file that a plan names: it lies in the plan's folder or below, and is read once, with the plan. Knows no content.

What a plan says must not make the tool read anything else of the machine it is started on, so no way leads out of that folder: not
an absolute path, not `..`, not a link.
"""

from __future__ import annotations

import os
import stat
from difflib import get_close_matches
from pathlib import Path, PurePath

from rollout.plan.hidden import quoted
from rollout.plan.reading import beginning

WHERE = "a file in the plan's folder or below"


class Unfit(Exception):
    """Why the file cannot be used, in the parts of a finding."""

    def __init__(self, expected: str, found: str, hint: str = "") -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found, self.hint = expected, found, hint


def read_beside(folder: Path, name: str, limit: int) -> bytes:
    """The whole file `name` as seen from `folder`, at most `limit` bytes. Raises Unfit."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise Unfit(WHERE, quoted(name), "write its path as seen from the plan, without `..`")
    try:
        home, real = folder.resolve(strict=True), (folder / name).resolve(strict=True)
        if not real.is_relative_to(home):
            raise Unfit(WHERE, "a link that leads out of it", "copy the file there: whoever reads the plan needs it too")
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise Unfit(WHERE, "a folder" if real.is_dir() else "a device or a pipe", "name the file itself")
        data = beginning(real, limit + 1)
    except FileNotFoundError:
        raise Unfit(WHERE, "none of that name", _near(folder / name)) from None
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise Unfit("a file that can be read", getattr(error, "strerror", None) or "an impossible name") from None
    if len(data) > limit:
        raise Unfit(f"a file of at most {limit >> 10} KiB", "a larger one", "it is stored with the plan: keep what tells the most")
    return data


def _near(path: Path) -> str:
    """The name that was likely meant."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "its path is seen from the plan"
