"""What the judge remembers between windows: frozen, and the same after a trip through JSON.

At v = 0 a few hundred floats; with replica noise the filtered laws come on top (half precision, packed: some 10 kB). Its size does not
grow with the number of windows.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rollout.analysis.breaker import Breaker
from rollout.analysis.noise import Bank
from rollout.analysis.slope import Trend

_VERSION = 2
_READABLE = (1, 2)
"""1 knew no quality, no memory slope and no time per token; its config does not ask for them either"""


@dataclass(frozen=True)
class Tally:
    """Plain counts for the words of a verdict. `live_*`: requests of windows that were compared; `balanced_windows`: those in which
    latency may pass. `*_status`: the newest; `blind`: windows in a row in which one of them was not OK; `idle`: windows in a row without
    anything to compare, probes included. `share_*`: requests on this rung. `pair_errors_*`: of probes and replayed prompts; `score_*`: sums
    over the replayed prompts that both arms answered (`scored_pairs`).
    """

    windows: int = 0
    dropped: int = 0
    live_canary: int = 0
    live_stable: int = 0
    errors_canary: int = 0
    errors_stable: int = 0
    live_windows: int = 0
    live_seconds: float = 0.0
    balanced_windows: int = 0
    pairs: int = 0
    timed_pairs: int = 0
    pair_errors_canary: int = 0
    pair_errors_stable: int = 0
    restarts_canary: int = 0
    restarts_stable: int = 0
    share_canary: int = 0
    share_total: int = 0
    share_expected: float = 0.0
    canary_status: str = "OK"
    stable_status: str = "OK"
    blind: int = 0
    idle: int = 0
    load_ratio: float | None = None
    quality_pairs: int = 0
    scored_pairs: int = 0
    score_canary: float = 0.0
    score_stable: float = 0.0


@dataclass(frozen=True)
class Crossing:
    """The first window at which the rollback evidence sufficed; the verdict stays FAIL whatever comes after."""

    window: int
    log_evidence: float
    culprits: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class JudgeState:
    """Evidence after window `last_id`. `starts`: the rungs at which a fresh copy was opened, oldest first; `rung`: the newest seen."""

    last_id: int = -1
    elapsed: float = 0.0
    rung: int | None = None
    starts: tuple[int, ...] = ()
    banks: Mapping[str, Bank] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    breaker: Breaker = field(default_factory=Breaker)
    crossing: Crossing | None = None
    trend: Trend = field(default_factory=Trend)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; floats survive to the last bit."""
        return {
            "version": _VERSION,
            "last_id": self.last_id,
            "elapsed": self.elapsed,
            "rung": self.rung,
            "starts": list(self.starts),
            "banks": {name: _pack(bank) for name, bank in self.banks.items()},
            "tally": asdict(self.tally),
            "breaker": asdict(self.breaker),
            "crossing": asdict(self.crossing) if self.crossing else None,
            "trend": asdict(self.trend),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JudgeState":
        """The inverse of `to_json`. ValueError when a newer release wrote it: guessing at evidence would break the bound."""
        if data["version"] not in _READABLE:
            raise ValueError(f"judge state of version {data['version']}, this release reads {_VERSION}")
        breaker, crossing = data["breaker"], data["crossing"]
        rings = {key: tuple((a, b) for a, b in breaker[key]) for key in ("canary", "stable", "restarts")}
        return cls(
            last_id=data["last_id"],
            elapsed=data["elapsed"],
            rung=data["rung"],
            starts=tuple(data["starts"]),
            banks={name: _unpack(bank) for name, bank in data["banks"].items()},
            tally=Tally(**data["tally"]),
            breaker=Breaker(**rings, tripped=breaker["tripped"]),
            crossing=Crossing(crossing["window"], crossing["log_evidence"], tuple(crossing["culprits"])) if crossing else None,
            trend=Trend(**data.get("trend", {})),
        )


def _pack(bank: Bank) -> dict[str, Any]:
    shape = list(bank.law.shape)
    law = base64.b64encode(zlib.compress(bank.law.astype("<f2").tobytes())).decode() if shape[2] > 1 else None
    return {"log": bank.log.tolist(), "shape": shape, "law": law}


def _unpack(data: Mapping[str, Any]) -> Bank:
    rows, hypotheses, grid = data["shape"]
    log = np.array(data["log"], dtype=np.float64).reshape(rows, hypotheses - 1)
    if data["law"] is None:
        return Bank(log, np.ones((rows, hypotheses, grid), dtype=np.float16))
    raw = np.frombuffer(zlib.decompress(base64.b64decode(data["law"])), dtype="<f2")
    return Bank(log, raw.astype(np.float16).reshape(rows, hypotheses, grid))
