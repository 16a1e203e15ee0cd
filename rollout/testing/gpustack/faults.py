"""What can go wrong between a controller and the server, on demand, and a log of every management write.

A fault matches requests by method and path and does one thing to them. The server underneath knows nothing of it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

KINDS = ("status", "hang", "drop", "delay", "ignore", "revert", "html", "truncate")


@dataclass
class Fault:
    """One fault.

    kind: `status` answers `status`; `hang` waits until released; `drop` closes the connection; `delay` waits `seconds`;
    `ignore` answers success and applies nothing; `revert` undoes the write after `seconds`; `html` answers a proxy's error
    page; `truncate` cuts the JSON answer in half. `applied`: the request takes effect before (status, hang, drop, html).
    `method` is a regex on the whole method, `path` one searched in the path; one that says `v1` is for inference only
    (status, hang, drop, delay, html). `times` None: until cleared.
    """

    kind: str
    method: str = ".*"
    path: str = ""
    times: int | None = 1
    status: int = 503
    seconds: float = 0.0
    applied: bool = False
    id: int = 0
    hits: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault kind {self.kind!r}; one of {', '.join(KINDS)}")

    def matches(self, method: str, path: str) -> bool:
        """Whether this request is to be hit."""
        left = self.times is None or self.hits < self.times
        return left and re.fullmatch(self.method, method) is not None and re.search(self.path, path) is not None

    def shown(self) -> dict[str, Any]:
        """The fault as `/_fault` lists it."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "released"}


@dataclass(frozen=True)
class Write:
    """One management write as it arrived. `status` 0: no answer was sent; `fault` names what was done to it."""

    t: float  # seconds since the server started
    method: str
    path: str
    body: Any
    status: int
    fault: str | None = None


class Faults:
    """The active faults, the log of writes, and how often each path was read."""

    def __init__(self) -> None:
        self.active: list[Fault] = []
        self.writes: list[Write] = []
        self.reads: Counter[str] = Counter()
        self._ids = itertools.count(1)

    def add(self, fault: Fault) -> Fault:
        """Arm a fault; the first match in order of arming wins."""
        fault.id = next(self._ids)
        self.active.append(fault)
        return fault

    def take(self, method: str, path: str, *, inference: bool = False) -> Fault | None:
        """The fault for this request, counted as used."""
        for fault in self.active:
            if inference == ("v1" in fault.path) and fault.matches(method, path):
                fault.hits += 1
                return fault
        return None

    def release(self, fault: Fault) -> None:
        """Let what hangs in a fault go on, and match no more."""
        fault.times = fault.hits
        fault.released.set()

    def clear(self) -> None:
        """Remove all faults; hanging requests go on."""
        for fault in self.active:
            self.release(fault)
        self.active = []
