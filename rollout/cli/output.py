"""Two outlets: results on stdout, progress on stderr. Colour only on a terminal, never the only carrier of a meaning."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rollout.cli.secrets import redact

if TYPE_CHECKING:
    from rich.console import Console


def result(text: str) -> None:
    """One result for whoever called, person or script."""
    print(redact(text))


def progress(text: str) -> None:
    """One line about what goes on."""
    print(redact(text), file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    """The result as JSON, one document."""
    print(redact(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A rich console that obeys NO_COLOR and plain pipes; imported late, because it is slow to load."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False, width=width)
