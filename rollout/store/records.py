"""What the store hands out: frozen values, free of any database. No logic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rollout.domain.state import RolloutState

Json = Any


@dataclass(frozen=True)
class StoredRollout:
    """One rollout as it was last written."""

    state: RolloutState
    plan: dict[str, Json]
    plan_text: str
    """the plan file as its author wrote it"""
    owner: str | None
    """who ticks it (`host:pid:start-token`), None when nobody does"""
    fence: int
    """how often it was claimed; only the latest claim may write"""
    lease_until: datetime | None
    next_wake: datetime | None
    """when the next tick is due; None: at once, or never when ended"""


@dataclass(frozen=True)
class JournalRow:
    """One journal entry and its place in the chain. `seq` counts from 1 without gaps."""

    rollout_id: str
    seq: int
    at: datetime
    kind: str
    actor: str
    text: str
    data: dict[str, Json]
    prev_hash: str
    hash: str


@dataclass(frozen=True)
class Command:
    """Something a person said that no tick has taken up yet."""

    id: int
    rollout_id: str
    verb: str
    actor: str
    reason: str
    args: dict[str, Json]
    at: datetime


@dataclass(frozen=True)
class StoredReport:
    """A staging capacity report, by the digest of the spec that was load-tested."""

    spec_digest: str
    report: dict[str, Json]
    created: datetime
