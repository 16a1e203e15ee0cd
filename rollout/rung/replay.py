"""Replayed prompts on a rung: which come next, what a batch of them told so far. Pure; the judging itself is `evidence`'s.

Each prompt is used once for a target, in an order that the rollout's id draws: what a person put first must not be judged first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from rollout.analysis import QualityPair
from rollout.domain.context import Ctx
from rollout.domain.decision import Act, HoldOn
from rollout.domain.effects import Effect

Json = Any
WORST = 20
"""ids of lost prompts that are kept"""
SOUND, SOUND_SHARE = 20, 0.5
"""after so many prompts stable itself has scored at least this much, or the set does not fit the model"""


def prompts(ctx: Ctx) -> list[dict[str, Json]]:
    """The whole set as it is asked, in the order of this rollout: {id, messages, expected}. Empty when the plan has none."""
    quality = ctx.the_plan.evidence.quality
    asked = [{"id": p.id, "messages": p.conversation, "expected": p.expected} for p in quality.prompts] if quality else []

    def drawn(prompt: Mapping[str, Json]) -> str:
        return hashlib.sha256(f"{ctx.state.id}:{ctx.state.target}:{prompt['id']}".encode()).hexdigest()

    return sorted(asked, key=drawn)


def begun(ctx: Ctx, seen: Mapping[str, Json]) -> dict[str, Json]:
    """What is known of the replay when a rung begins: what was known before; nothing where the plan has no set."""
    quality = ctx.the_plan.evidence.quality
    if quality is None:
        return {}
    none = {"used": 0, "of": len(quality.prompts), "stable": 0.0, "canary": 0.0, "errors": [0, 0], "lost": 0, "worst": []}
    return {"replay": seen.get("replay") or none}


def used(seen: Mapping[str, Json]) -> int:
    """Prompts of this target that are evidence already."""
    return int((seen.get("replay") or {}).get("used", 0))


def wanted(ctx: Ctx, seen: Mapping[str, Json]) -> bool:
    """Whether prompts are left."""
    quality = ctx.the_plan.evidence.quality
    return quality is not None and used(seen) < len(quality.prompts)


def batch(ctx: Ctx, seen: Mapping[str, Json]) -> Act | None:
    """The next batch; None without a set. The prompts are handed over beside what is journaled."""
    quality, first = ctx.the_plan.evidence.quality, used(seen)
    if quality is None:
        return None
    following = prompts(ctx)[first : first + quality.batch]
    args = {
        "stable": ctx.pair.stable_probe,
        "canary": ctx.pair.canary_probe,
        "n": len(following),
        "max_tokens": quality.max_tokens,
        "seq": first,
    }
    why = f"replayed prompts {first + 1} to {first + len(following)} of {len(quality.prompts)}"
    return Act(Effect(verb="replay_pairs", args=args, why=why, fact=ctx.key("replay"), unkept={"prompts": following}))


def unusable(done: Mapping[str, Json], seen: Mapping[str, Json]) -> str | None:
    """Why a finished batch is no evidence: nobody answered, or its prompts are not the next ones (judging began afresh meanwhile)."""
    if int(done["seq"]) != used(seen):
        return "it was asked before judging began afresh"
    return str(done["invalid"]) if done.get("invalid") else None


def pairs(done: Mapping[str, Json]) -> tuple[QualityPair, ...]:
    """A batch as the judge takes it."""
    return tuple(QualityPair(stable, canary) for stable, canary, *_ in done["pairs"])


def told(ctx: Ctx, seen: Mapping[str, Json], done: Mapping[str, Json]) -> dict[str, Json]:
    """What is known after this batch: {used, of, stable, canary, errors: [stable, canary], lost, worst}. Sums of scores; ids only."""
    before, rows = begun(ctx, seen)["replay"], done["pairs"]
    return {
        "used": before["used"] + len(rows),
        "of": before["of"],
        "stable": before["stable"] + _sum(row[0] for row in rows),
        "canary": before["canary"] + _sum(row[1] for row in rows),
        "errors": [before["errors"][side] + sum(not row[2 + side] for row in rows) for side in (0, 1)],
        "lost": before["lost"] + sum((row[0] or 0.0) > (row[1] or 0.0) for row in rows),
        "worst": [*before["worst"], *(row["id"] for row in done["lost"])][:WORST],
    }


def _sum(scores: Any) -> float:
    return float(sum(score or 0.0 for score in scores))


def sentence(done: Mapping[str, Json]) -> str:
    """One batch in words."""
    rows: Sequence[Sequence[Json]] = done["pairs"]
    right = [f"{_sum(row[side] for row in rows):g}" for side in (0, 1)]
    lost = ", ".join(row["id"] for row in done["lost"])
    return f"{len(rows)} replayed prompts used as evidence: stable {right[0]} right, canary {right[1]}" + (f"; lost {lost}" if lost else "")


def misfit(seen: Mapping[str, Json]) -> HoldOn | None:
    """A set that stable itself does not answer measures nothing: two sides that are both wrong look equal, so no PASS may rest on it."""
    known = seen.get("replay") or {}
    count, right = int(known.get("used", 0)), float(known.get("stable", 0.0))
    if count < SOUND or right >= SOUND_SHARE * count:
        return None
    detail = f"the prompt set does not fit: stable itself answered {right:g} of {count} prompts as expected"
    return HoldOn("inconclusive", detail, verbs=("approve --accept-inconclusive", "promote", "rollback", "abort"))
