"""A way back that a person can walk without us: the calls, one after another, as values. Pure; knows no server's paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = Any
MANAGEMENT, INFERENCE = "management", "inference"


@dataclass(frozen=True)
class ByHand:
    """One call. `until`: repeat it once a second until its answer shows this (extended regular expression), at most `within` seconds,
    and stop the whole way back when it does not; `never`: it must not show. `pause`: first wait for running streams to end."""

    why: str
    method: str
    path: str
    body: Json = None
    key: str = MANAGEMENT
    until: str | None = None
    never: bool = False
    within: int = 60
    pause: bool = False


@dataclass(frozen=True)
class WayBack:
    """All calls of one rollback, from the world as it was when it was printed."""

    rollout: str
    route: str
    calls: tuple[ByHand, ...]
