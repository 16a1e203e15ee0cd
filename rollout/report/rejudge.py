"""An attempt that was judged again, as a script takes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollout.analysis.recording import Attempt
from rollout.analysis.replay import Judged, as_live

Json = Any


def as_json(attempt: Attempt, again: Sequence[Judged], *, each: bool) -> dict[str, Json]:
    """One attempt with its last verdict, and how far it is as live; `each`: with every window."""
    last = again[-1].verdict if again else None
    live = as_live(again)
    rows = [
        {"window": one.look.window.id, "rung": one.look.window.rung, "kind": one.verdict.kind, "sentence": one.verdict.sentence}
        for one in again
    ]
    return {
        **attempt.about,
        "windows": len(again),
        "kind": last.kind if last else "none",
        "sentence": last.sentence if last else "",
        "details": last.details if last else {},
        "as_live": {
            "told": live.told,
            "same": live.same,
            "same_words": live.same_words,
            "first_other": live.first_other.window.id if live.first_other else None,
        },
        **({"looks": rows} if each else {}),
    }
