"""What the judge is told before the rollout and never changes during it.

Margins, error bounds, the evidence mode, the replica's noise, the reference histograms. Plain values that go into the store as JSON;
nothing here computes evidence.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from rollout.analysis.samples import Histogram

Mode = Literal["rich", "thin", "sparse"]
LATENCIES = ("ttft", "e2e")

# Where the 1/alpha of evidence may come from; what a mode hardly sees weighs little. Metrics that are not there give their weight back.
_WEIGHTS: dict[str, dict[str, float]] = {
    "rich": {"ttft": 0.50, "e2e": 0.15, "errors": 0.30, "probes": 0.05},
    "thin": {"ttft": 0.35, "e2e": 0.10, "errors": 0.30, "probes": 0.25},
    "sparse": {"ttft": 0.10, "e2e": 0.05, "errors": 0.35, "probes": 0.50},
}
_UNACCEPTABLE = {"rich": (0.20, 0.01), "thin": (0.20, 0.02), "sparse": (0.50, 0.05)}  # slow-down, error risk difference


@dataclass(frozen=True)
class JudgeConfig:
    """Fixed before the rollout (assumption A4). Build it with `config_for`, which knows the margins of each evidence mode.

    `alpha`: bound on ever rolling back a canary within the tolerated margins; `beta`: on ever passing one at an unacceptable margin.
    `tolerated_latency`, `unacceptable_latency`: slow-downs (0.1 = +10 %); `tail_odds`: unacceptable odds ratio in the tail;
    `tolerated_error_odds`: odds ratio; `unacceptable_errors`: risk difference (0.01 = +1 percentage point).
    `v`, `phi`: the replica's own noise (log odds variance, correlation per window); `guaranteed`: they were fitted, the bound is claimed.
    `rungs`: rungs below 100 %. `live`: engine metrics are expected (False: probes only, statuses of the arms are not waited for).
    `max_request_seconds`: no PASS before one longest request has had time to end. `memory_floor`: bytes, None = not watched.
    `healthy_error_rate`, `healthy_restarts_per_hour`, `planned_requests`, `planned_seconds`: only for the breaker's own alpha.
    """

    mode: Mode
    rungs: int
    reference_ttft: Histogram | None
    reference_e2e: Histogram | None
    tolerated_latency: float
    unacceptable_latency: float
    unacceptable_errors: float
    v: float
    phi: float
    guaranteed: bool
    alpha: float = 0.01
    beta: float = 0.05
    tail_odds: float = 2.0
    tolerated_error_odds: float = 1.25
    live: bool = True
    max_request_seconds: float = 0.0
    memory_floor: int | None = None
    healthy_error_rate: float = 0.01
    healthy_restarts_per_hour: float = 0.01
    planned_requests: int = 4000
    planned_seconds: float = 7200.0

    def __post_init__(self) -> None:
        if self.rungs < 1:
            raise ValueError("a ladder has at least one rung below 100 %")
        if not 0 <= self.tolerated_latency < self.unacceptable_latency:
            raise ValueError(f"tolerated latency {self.tolerated_latency} must lie below unacceptable {self.unacceptable_latency}")
        if not (0 < self.alpha < 1 and 0 < self.beta < 1 and 0 < self.unacceptable_errors < 1):
            raise ValueError("alpha, beta and unacceptable_errors must lie between 0 and 1")
        if self.tolerated_error_odds < 1 or self.tail_odds <= 1:
            raise ValueError("tolerated_error_odds must be at least 1, tail_odds more than 1")
        if self.v < 0 or not 0 <= self.phi < 1:
            raise ValueError(f"noise needs v >= 0 and 0 <= phi < 1, got v={self.v}, phi={self.phi}")

    @property
    def bound(self) -> str:
        """The words that go with each verdict about how far the error bound holds."""
        if self.guaranteed:
            return f"wrong rollback <= {self.alpha:.3g}, wrong promotion <= {self.beta:.3g}"
        return "not guaranteed: one replica"

    def reference(self, metric: str) -> Histogram | None:
        """The reference histogram of a latency metric."""
        return {"ttft": self.reference_ttft, "e2e": self.reference_e2e}[metric]

    def weights(self) -> dict[str, float]:
        """Share of the rollback evidence by metric; sums to 1."""
        known = {m: w for m, w in _WEIGHTS[self.mode].items() if m not in LATENCIES or self.reference(m) is not None}
        total = sum(known.values())
        return {metric: weight / total for metric, weight in known.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal config back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "JudgeConfig":
        """The inverse of `to_json`. Unknown keys (a newer release wrote them) are left out."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        for key in ("reference_ttft", "reference_e2e"):
            found = values.get(key)
            values[key] = Histogram(tuple(found["edges"]), tuple(found["counts"])) if found else None
        return cls(**values)


def config_for(
    mode: Mode,
    *,
    rungs: int,
    reference_ttft: Histogram | None = None,
    reference_e2e: Histogram | None = None,
    noise: tuple[float, float] | None = None,
    **overrides: Any,
) -> JudgeConfig:
    """The defaults of an evidence mode. `noise`: (v, phi) fitted on an A/A comparison; without it the bound is not claimed and the
    defaults for one replica a side stand in: tolerated +10 %, v = 0.2, phi = 0.8. An empty reference counts as none.
    """
    v, phi = noise or (0.2, 0.8)
    config = JudgeConfig(
        mode=mode,
        rungs=rungs,
        reference_ttft=reference_ttft if reference_ttft and reference_ttft.total else None,
        reference_e2e=reference_e2e if reference_e2e and reference_e2e.total else None,
        tolerated_latency=0.05 if noise else 0.10,
        unacceptable_latency=_UNACCEPTABLE[mode][0],
        unacceptable_errors=_UNACCEPTABLE[mode][1],
        v=v,
        phi=phi,
        guaranteed=noise is not None,
    )
    return replace(config, **overrides)
