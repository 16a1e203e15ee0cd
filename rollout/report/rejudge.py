"""Recorded windows judged once more, through the same `absorb` and `verdict` as live. Pure: an attempt in, what was said out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rollout.analysis import JudgeConfig, Verdict, absorb, new_state, verdict
from rollout.analysis.recording import Attempt

Json = Any


@dataclass(frozen=True)
class Said:
    """After one window: its number and rung, canary requests compared so far, the verdict, and what was said live (None = not kept)."""

    window: int
    rung: int
    requests: int
    found: Verdict
    live: tuple[str, str] | None

    @property
    def differs(self) -> bool:
        """Whether the live judge said something else."""
        return self.live is not None and self.live != (self.found.kind, self.found.sentence)

    @property
    def against(self) -> float:
        """log10 of the evidence for a rollback."""
        return float(self.found.details["evidence_against"]["log10"])

    @property
    def supporting(self) -> float:
        """log10 of the evidence of the weakest claim that a promotion needs."""
        return min(map(float, self.found.details["evidence_for"]["log10_by_claim"].values()), default=0.0)


def again(attempt: Attempt, config: JudgeConfig | None = None) -> Iterator[Said]:
    """Every look of an attempt, oldest first. `config`: the attempt's own when absent."""
    told = config or attempt.config
    state = new_state(told)
    for look in attempt.looks:
        state = absorb(told, state, look.window)
        found = verdict(told, state)
        yield Said(look.window.id, look.window.rung, found.details["live_requests"]["canary"], found, look.said)


def as_json(attempt: Attempt, said: list[Said], *, each: bool) -> dict[str, Json]:
    """One attempt as a script takes it; `each`: with every look."""
    last = said[-1] if said else None
    told = [one for one in said if one.live is not None]
    differing = next((one.window for one in told if one.differs), None)
    rows = {"looks": [{"window": s.window, "rung": s.rung, "kind": s.found.kind, "sentence": s.found.sentence} for s in said]}
    return {
        **attempt.about,
        "windows": len(said),
        "kind": last.found.kind if last else "none",
        "sentence": last.found.sentence if last else "",
        "details": last.found.details if last else {},
        "as_live": {"told": len(told), "same": sum(not one.differs for one in told), "first_other": differing},
        **(rows if each else {}),
    }
