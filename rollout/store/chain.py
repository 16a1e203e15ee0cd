"""The hash chain of the journal: each row carries the hash of the one before it. Pure.

hash = sha256 over the canonical JSON array [rollout_id, seq, at, kind, actor, text, data, prev_hash], with `at` and `data`
exactly as they are stored. It shows that a row was edited, removed or added by someone who did not rewrite everything after
it; against one who does, keep a hash elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rollout.errors import JournalBroken

Json = Any


@dataclass(frozen=True)
class Link:
    """A journal row in its stored form: `at` and `data` are the column's text, not yet parsed."""

    rollout_id: str
    seq: int
    at: str
    kind: str
    actor: str
    text: str
    data: str
    prev_hash: str
    hash: str = ""

    def digest(self) -> str:
        """What `hash` must be. ValueError when `data` is no JSON, or a text is not text (SQLite keeps what it is given)."""
        if not all(isinstance(value, str) for value in (self.at, self.kind, self.actor, self.text, self.data)):
            msg = "a text column holds something else"
            raise ValueError(msg)
        row = [self.rollout_id, self.seq, self.at, self.kind, self.actor, self.text, json.loads(self.data), self.prev_hash]
        return hashlib.sha256(canonical(row).encode()).hexdigest()


def genesis(rollout_id: str) -> str:
    """`prev_hash` of the first row: it belongs to this rollout and to no other."""
    return "0" * 64 + rollout_id


def canonical(value: Json) -> str:
    """One text for one value: keys sorted, no blanks, ASCII. A number that is not finite is unknown: null."""
    from pydantic_core import to_jsonable_python  # slow to load, and `early` needs the rest of this room at once

    plain_value = to_jsonable_python(value, inf_nan_mode="null")
    return json.dumps(plain_value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def instant(at: datetime) -> str:
    """UTC with microseconds, always 27 characters: sorts as time does. ValueError when `at` has no zone."""
    if at.tzinfo is None:
        msg = f"{at.isoformat()} has no time zone"
        raise ValueError(msg)
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def plain(text: str) -> str:
    """`text` as any database keeps it: a server's answer may hold NUL or half a surrogate pair, which PostgreSQL refuses."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def check(rollout_id: str, links: Iterable[Link], head_seq: int, head_hash: str) -> int:
    """How many rows were checked, from the first to the head that the rollout's own row names. JournalBroken names the bad one."""
    prev, seq = genesis(rollout_id), 0
    for link in links:
        seq += 1
        _check_one(link, seq, prev, rollout_id)
        prev = link.hash
    if seq < head_seq:
        raise _broken(rollout_id, seq + 1, f"it and what follows are missing: the rollout has {head_seq} rows, the journal {seq}")
    if seq > head_seq:
        raise _broken(rollout_id, head_seq + 1, f"it was added: the rollout has {head_seq} rows, the journal {seq}")
    if prev != head_hash:
        raise _broken(rollout_id, seq, "its hash is not the last one that the rollout remembers")
    return seq


def _check_one(link: Link, seq: int, prev: str, rollout_id: str) -> None:
    if link.seq != seq:
        raise _broken(rollout_id, seq, f"it is missing: row {link.seq} stands in its place")
    if link.prev_hash != prev:
        raise _broken(rollout_id, seq, f"it does not follow row {seq - 1}" if seq > 1 else "it is not a first row of this rollout")
    try:
        sound = link.digest() == link.hash and canonical(json.loads(link.data)) == link.data
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise _broken(rollout_id, seq, "its content does not fit its hash: it was changed after it was written")


def _broken(rollout_id: str, seq: int, why: str) -> JournalBroken:
    hint = "Trust no row from there on. Compare with a backup of the store; the world itself is read afresh at each tick."
    return JournalBroken(f"The journal of rollout {rollout_id} is broken at row {seq}.", why=f"Row {seq}: {why}.", hint=hint)
