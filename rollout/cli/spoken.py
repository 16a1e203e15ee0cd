"""What a person says along with a command, as it is kept for ever: one line, not endless, nothing that steers a terminal, no secret.

It is bent to that and never refused: who goes back at night hands over the end of a log, and must not be turned away for it.
"""

from __future__ import annotations

from rollout.cli.secrets import redact
from rollout.plan.hidden import keepable_text

REASON = 1000
ACTOR = 100
"""characters that are kept"""
_LOOKED_AT = 4096
"""characters that are searched for secrets; more is cut off in any case"""


def kept(text: str, longest: int = REASON) -> str:
    """`text` as store, journal and screens may hold it; empty when it says nothing."""
    line = redact(" ".join(text.split()))[:_LOOKED_AT]
    line = keepable_text(line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def actor(name: str) -> str:
    """Who acts, from an option or a variable of the environment."""
    return kept(name, ACTOR) or "unknown"
