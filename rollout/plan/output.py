"""Generated files: write one, or say that it is stale. Used by the plan's schema and its reference page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def keep(text: str, default: Path, arguments: Sequence[str], module: str) -> int:
    """Write `text` to the file named in `arguments` (else `default`); with `--check` only compare. Exit code 0, or 1 when stale."""
    names = [a for a in arguments if not a.startswith("-")]
    unknown = [a for a in arguments if a.startswith("-") and a != "--check"]
    if unknown or len(names) > 1:
        print(f"usage: python -m {module} [--check] [FILE]", file=sys.stderr)
        return 2
    path = Path(names[0]) if names else default
    if "--check" not in arguments:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path}")
        return 0
    if path.is_file() and path.read_text("utf-8") == text:
        print(f"{path} is up to date")
        return 0
    print(f"{path} is stale: run `python -m {module}`", file=sys.stderr)
    return 1
