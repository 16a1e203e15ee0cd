"""What a simulated engine says: the same text for the same prompt, so that paired comparison has something to compare."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

_TEXT = (
    "the model answers with care and names its source before it counts tokens over every node in the rack while "
    "memory stays flat and each stream ends by itself because a drain waits for quiet queues rather than a clock"
)
_WORDS = _TEXT.split()


def prompt_text(body: dict[str, Any]) -> str:
    """The part of a request that decides the answer: messages, prompt or input, nothing else."""
    for key in ("messages", "prompt", "input", "query"):
        if body.get(key):
            return json.dumps(body[key], sort_keys=True)
    return ""


def prompt_tokens(text: str) -> int:
    """A plain tokenizer's count: four characters a token."""
    return max(1, len(text) // 4)


def is_wrong(text: str, rate: float) -> bool:
    """Whether a prompt is one of the share `rate` (0..1) that is answered wrongly: the same prompt always is, or never."""
    drawn = int.from_bytes(hashlib.sha256(b"wrong?|" + text.encode()).digest()[:4])
    return drawn < rate * (1 << 32)


def words(text: str, count: int, *, wrong: bool = False) -> list[str]:
    """`count` output tokens for a prompt; a shorter answer is a prefix of a longer one."""
    seed = hashlib.sha256(("wrong|" if wrong else "right|").encode() + text.encode()).digest()
    chosen = random.Random(seed).choices(_WORDS, k=count)
    return [word + " " for word in chosen]


def embedding(text: str, size: int = 8, *, wrong: bool = False) -> list[float]:
    """A deterministic vector for a text."""
    seed = hashlib.sha256(("wrong|" if wrong else "right|").encode() + text.encode()).digest()
    rng = random.Random(seed)
    return [round(rng.uniform(-1, 1), 6) for _ in range(size)]


def prompt_set(count: int, max_tokens: int = 64) -> str:
    """Lines of a prompt set whose expected answers are a healthy engine's own, for requests of `max_tokens`."""
    prompts = [f"Question {number}: what does node {number} say?" for number in range(1, count + 1)]
    rows = [
        {"id": f"q{number}", "prompt": prompt, "expected": "".join(words(_asked(prompt), max_tokens)).strip()}
        for number, prompt in enumerate(prompts, 1)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def _asked(prompt: str) -> str:
    """What a chat request with this one message is decided by."""
    return prompt_text({"messages": [{"role": "user", "content": prompt}]})
