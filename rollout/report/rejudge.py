"""An attempt that was judged again, as a script takes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollout.analysis.recording import Attempt
from rollout.analysis.replay import Judged

Json = Any


def as_json(attempt: Attempt, again: Sequence[Judged], *, each: bool) -> dict[str, Json]:
    """One attempt with its last verdict, and how far it is as live; `each`: with every window."""
    last = again[-1].verdict if again else None
    told = [one for one in again if one.as_said is not None]
    other = next((one.look.window.id for one in told if not one.as_said), None)
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
            "told": len(told),
            "same": sum(bool(one.as_said) for one in told),
            "same_words": sum(bool(one.worded_as_said) for one in told),
            "first_other": other,
        },
        **({"looks": rows} if each else {}),
    }
