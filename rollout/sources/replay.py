"""Replayed prompts: the same prompt to both private routes at once, whole answers compared with the expected one.

Prompts and answers are kept nowhere: what comes back is scores, the ids of what the canary lost, and a short hash of each answer
there, by which two rollouts can be seen to have said the same. Judges nothing, and nothing here raises because a server fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from rollout.clock import Clock
from rollout.errors import UsageError
from rollout.sources.answers import Answer
from rollout.sources.chat import Chat
from rollout.sources.pairs import ask_pair

Json = Any
VERB = "replay_pairs"
PATIENCE = 300.0
"""seconds for one whole answer"""
LASTS = 20.0
"""seconds after which a batch begins no further prompt: until it ends, nobody looks at the guards"""
TOLD = 10
"""differences kept in a result"""
ERRORS = 5
"""errors kept in a result"""
HASH = 12
"""hex digits of SHA-256"""


class Replayer:
    """The `Measurer` for replay_pairs."""

    def __init__(self, chat: Chat, clock: Clock) -> None:
        self._chat, self._clock = chat, clock

    def knows(self, verb: str) -> bool:
        return verb == VERB

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """{stable, canary, max_tokens, seq, prompts: [{id, messages, expected}]} ->

        {pairs: [[stable score | None, canary score | None, stable ok, canary ok], ...], lost, errors, invalid, seq, seconds}.

        One in flight a side; who is sent first alternates, counted on over batches by `seq`. A side without a whole answer (a cut
        stream too) has no score and is not ok: its error. `lost`: [{id, stable, canary, said: [hash, hash]}], where the canary scored
        less, the worst first, at most TOLD. `pairs` may be fewer than `prompts`: a batch ends after LASTS seconds. With `invalid` set
        no side gave one answer, so the batch says nothing about the sides and must be thrown away.
        """
        if not self.knows(verb):
            raise UsageError(f"No measurement is called `{verb}`.", hint=f"Known: {VERB}.")
        began, seq = self._clock.monotonic(), int(args.get("seq", 0))
        await self._chat.connect(2)
        asked: list[tuple[Json, Answer, Answer]] = []
        for turn, prompt in enumerate(args["prompts"], seq):
            if asked and self._clock.monotonic() - began >= LASTS:
                break
            asked.append((prompt, *await ask_pair(self._chat, self._clock, args, prompt["messages"], turn=turn, timeout=PATIENCE)))
        rows = [[score(stable, p["expected"]), score(canary, p["expected"]), stable.ok, canary.ok] for p, stable, canary in asked]
        failed = [_fault(answer) for _, *both in asked for answer in both if not answer.ok]
        silent = bool(asked) and len(failed) == 2 * len(asked)
        return {
            "pairs": rows,
            "lost": _lost(asked, rows),
            "errors": failed[:ERRORS],
            "invalid": f"neither side answered one of {len(asked)} prompts ({failed[0]})" if silent else None,
            "seq": seq,
            "seconds": self._clock.monotonic() - began,
        }


def score(answer: Answer, expected: str) -> float | None:
    """Exact match: 1 when the whole answer is the expected text, blanks at both ends aside, else 0; None without a whole answer."""
    return float(answer.content.strip() == expected.strip()) if answer.ok else None


def _fault(answer: Answer) -> str:
    """What failed, with the status alone: a server's own words may repeat the prompt."""
    return f"{answer.outcome} {answer.detail.partition(' ')[0]}" if answer.outcome == "http_error" else answer.outcome


def _lost(asked: Sequence[tuple[Json, Answer, Answer]], rows: Sequence[Sequence[Json]]) -> list[dict[str, Json]]:
    """Prompts on which the canary scored less, the worst first; a failed side counts as 0."""
    found = [
        {"id": prompt["id"], "stable": one, "canary": other, "said": [_hash(stable), _hash(canary)]}
        for (prompt, stable, canary), (one, other, *_) in zip(asked, rows, strict=True)
        if (one or 0.0) > (other or 0.0)
    ]
    return sorted(found, key=lambda row: (row["canary"] or 0.0) - row["stable"])[:TOLD]


def _hash(answer: Answer) -> str | None:
    return hashlib.sha256(answer.content.strip().encode("utf-8", "replace")).hexdigest()[:HASH] if answer.ok else None
