"""What the judge is told before the rollout and never changes during it.

Margins, error bounds, the evidence mode, the replica's noise, the reference histograms. Plain values that go into the store as JSON;
nothing here computes evidence.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from rollout.analysis.samples import Histogram, is_number

Mode = Literal["rich", "thin", "sparse"]
Quality = Literal["binary", "graded"]
LATENCIES = ("ttft", "e2e", "tpot")
METRICS = (*LATENCIES, "errors", "quality", "memory", "probes")
GIB = 1 << 30

_MOST = 1 << 53  # the first whole number that JSON does not keep
_LOUDEST = 5.0  # variance of a replica's log odds beyond which nothing could be judged
_AMOUNTS = (
    *("rungs", "tolerated_latency", "unacceptable_latency", "unacceptable_errors", "v", "phi", "alpha", "beta", "tail_odds"),
    *("tolerated_error_odds", "max_request_seconds", "healthy_error_rate", "healthy_restarts_per_hour"),
    *("planned_requests", "planned_seconds"),
)
_PROBES_MOOD = 0.10  # slow-down of probes that a single replica's moods are allowed

# Where the 1/alpha of evidence may come from; what a mode hardly sees weighs little. Metrics that are not there give their weight back.
_WEIGHTS: dict[str, dict[str, float]] = {
    "rich": {"ttft": 0.35, "e2e": 0.10, "tpot": 0.10, "errors": 0.25, "quality": 0.10, "memory": 0.05, "probes": 0.05},
    "thin": {"ttft": 0.25, "e2e": 0.07, "tpot": 0.07, "errors": 0.25, "quality": 0.11, "memory": 0.05, "probes": 0.20},
    "sparse": {"ttft": 0.08, "e2e": 0.04, "tpot": 0.04, "errors": 0.26, "quality": 0.20, "memory": 0.05, "probes": 0.33},
}
_UNACCEPTABLE = {"rich": (0.20, 0.01), "thin": (0.20, 0.02), "sparse": (0.50, 0.05)}  # slow-down, error risk difference
_LOST = {"rich": 0.05, "thin": 0.05, "sparse": 0.12}  # loss of mean score; 126 and 50 prompts can exclude it when no answer differs


@dataclass(frozen=True)
class Margin:
    """What a plan says of one metric, None = the mode's default. Latencies and probes: slow-downs (0.05 = +5 %). Errors: `tolerated` an
    odds ratio, `unacceptable` a risk difference. Quality: loss of mean score (0.05 = 5 points of 100). Memory: `tolerated` bytes an hour.
    """

    metric: str
    tolerated: float | None = None
    unacceptable: float | None = None


@dataclass(frozen=True)
class MetricNoise:
    """A latency metric's own replica noise, fitted on a history: log odds variance, correlation a window."""

    metric: str
    v: float
    phi: float


@dataclass(frozen=True)
class JudgeConfig:
    """Fixed before the rollout (assumption A4). Build it with `config_for`, which knows the margins of each evidence mode.

    `alpha`: bound on ever rolling back a canary within the tolerated margins; `beta`: on ever passing one at an unacceptable margin.
    `tolerated_latency`, `unacceptable_latency`: slow-downs (0.1 = +10 %); `tail_odds`: unacceptable odds ratio in the tail;
    `tolerated_error_odds`: odds ratio; `unacceptable_errors`: risk difference (0.01 = +1 percentage point).
    `v`, `phi`: the replica's own noise (log odds variance, correlation per window); `guaranteed`: they were fitted, the bound is claimed.
    `rungs`: rungs below 100 %. `live`: engine metrics are expected (False: probes only, statuses of the arms are not waited for).
    `max_request_seconds`: no PASS before one longest request has had time to end. `memory_floor`: bytes, None = not watched.
    `margins`: what the plan says otherwise, by metric; `noises`: (v, phi) by latency metric where a history gave them. `quality`: prompts
    are replayed, "binary" = scores are 0 or 1, None = none are. `memory_noise`: (sd in bytes, correlation a window) of the difference of
    the arms' memory in use, None = no history gave it and the slope is not judged. `probe_slo`: seconds, for the tail of the probes.
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
    reference_tpot: Histogram | None = None
    margins: tuple[Margin, ...] = ()
    noises: tuple[MetricNoise, ...] = ()
    quality: Quality | None = None
    memory_noise: tuple[float, float] | None = None
    probe_slo: float | None = None

    def __post_init__(self) -> None:
        self._typed()
        if self.rungs < 1:
            raise ValueError("a ladder has at least one rung below 100 %")
        if not (0 < self.alpha < 1 and 0 < self.beta < 1):
            raise ValueError("alpha and beta must lie between 0 and 1")
        if self.tail_odds <= 1:
            raise ValueError("tail_odds must be more than 1")
        unknown = sorted(({m.metric for m in self.margins} | {n.metric for n in self.noises}) - set(METRICS))
        if unknown:
            raise ValueError(f"no metric is called {', '.join(unknown)}; known: {', '.join(METRICS)}")
        for v, phi in [(self.v, self.phi), *((n.v, n.phi) for n in self.noises)]:
            if not 0 <= v <= _LOUDEST or not 0 <= phi < 1:
                raise ValueError(f"noise needs 0 <= v <= {_LOUDEST:g} and 0 <= phi < 1, got v={v:g}, phi={phi:g}")
        if self.memory_noise is not None and not (self.memory_noise[0] > 0 and 0 <= self.memory_noise[1] < 1):
            raise ValueError(f"memory noise needs sd > 0 and 0 <= phi < 1, got {self.memory_noise}")
        for metric in (*LATENCIES, "probes", "quality"):
            low, high = self.tolerated(metric), self.unacceptable(metric)
            if not 0 <= low < high or (metric == "quality" and high >= 1):
                raise ValueError(f"{metric}: tolerated {low:g} must lie below unacceptable {high:g}")
        if self.tolerated("errors") < 1 or not 0 < self.unacceptable("errors") < 1:
            raise ValueError("errors: tolerated is an odds ratio of at least 1, unacceptable a share between 0 and 1")
        if self.tolerated("memory") < 0:
            raise ValueError("memory: tolerated is a rise in bytes an hour, at least 0")

    def _typed(self) -> None:
        """What a file or a person may have written instead of a number."""
        for name in _AMOUNTS:
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value < _MOST):
                raise ValueError(f"{name} is a number, at least 0, got {value!r}")
        for name in ("probe_slo", "memory_floor"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0 <= value < _MOST):
                raise ValueError(f"{name} is a number, at least 0, or nothing, got {value!r}")
        for name in ("guaranteed", "live"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is true or false, got {getattr(self, name)!r}")
        if self.healthy_error_rate > 1:
            raise ValueError(f"healthy_error_rate is a share of requests, got {self.healthy_error_rate:g}")
        if self.mode not in get_args(Mode) or self.quality not in (None, *get_args(Quality)):
            raise ValueError(f"mode {self.mode!r} and quality {self.quality!r} are not both known")

    def tolerated(self, metric: str) -> float:
        """The margin that a rollback has to prove exceeded."""
        said = next((m.tolerated for m in self.margins if m.metric == metric and m.tolerated is not None), None)
        defaults = {"errors": self.tolerated_error_odds, "quality": 0.0, "memory": float(GIB)}
        if self.noisy:  # a mood of one replica moves whole batches of probes, and no history tells how far
            defaults["probes"] = max(self.tolerated_latency, _PROBES_MOOD)
        return defaults.get(metric, self.tolerated_latency) if said is None else said

    def unacceptable(self, metric: str) -> float:
        """The margin that a promotion has to prove not reached. Memory has none: its floor and its slope are watched instead."""
        said = next((m.unacceptable for m in self.margins if m.metric == metric and m.unacceptable is not None), None)
        defaults = {"errors": self.unacceptable_errors, "quality": _LOST[self.mode]}
        return defaults.get(metric, self.unacceptable_latency) if said is None else said

    def noise(self, metric: str) -> tuple[float, float]:
        """(v, phi) of a latency metric."""
        return next(((n.v, n.phi) for n in self.noises if n.metric == metric), (self.v, self.phi))

    @property
    def noisy(self) -> bool:
        """Whether any latency is judged with replica noise."""
        return any(self.noise(metric)[0] > 0 for metric in LATENCIES if self.reference(metric) is not None)

    def claimed(self, probed: bool) -> bool:
        """Whether the error bounds are claimed. A fitted noise covers live latencies; of paired probes nobody has fitted how a replica's
        moods move them, so with such moods nothing is claimed where a verdict rests on probes too (`probed`).
        """
        return self.guaranteed and not (self.noisy and probed)

    def bound(self, probed: bool) -> str:
        """The words that go with each verdict about how far the error bound holds."""
        if self.claimed(probed):
            return f"wrong rollback <= {self.alpha:.3g}, wrong promotion <= {self.beta:.3g}"
        return "not guaranteed: one replica, judged by probes too" if self.guaranteed else "not guaranteed: one replica"

    def reference(self, metric: str) -> Histogram | None:
        """The reference histogram of a latency metric."""
        return {"ttft": self.reference_ttft, "e2e": self.reference_e2e, "tpot": self.reference_tpot}[metric]

    def weights(self) -> dict[str, float]:
        """Share of the rollback evidence by metric; sums to 1."""
        there = {metric: self.reference(metric) is not None for metric in LATENCIES}
        there |= {"quality": self.quality is not None, "memory": self.memory_noise is not None}
        known = {metric: weight for metric, weight in _WEIGHTS[self.mode].items() if there.get(metric, True)}
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
        for key in ("reference_ttft", "reference_e2e", "reference_tpot"):
            found = values.get(key)
            values[key] = Histogram(tuple(found["edges"]), tuple(found["counts"])) if found else None
        values["margins"] = tuple(Margin(**row) for row in values.get("margins", ()))
        values["noises"] = tuple(MetricNoise(**row) for row in values.get("noises", ()))
        if values.get("memory_noise") is not None:
            values["memory_noise"] = tuple(values["memory_noise"])
        return cls(**values)


def config_for(
    mode: Mode,
    *,
    rungs: int,
    reference_ttft: Histogram | None = None,
    reference_e2e: Histogram | None = None,
    reference_tpot: Histogram | None = None,
    noise: tuple[float, float] | None = None,
    noises: tuple[MetricNoise, ...] = (),
    **overrides: Any,
) -> JudgeConfig:
    """The defaults of an evidence mode. `noise`: (v, phi) for every latency, `noises` by metric (of `fit_history`): from an A/A
    comparison; without either the bound is not claimed and the defaults for one replica a side stand in: tolerated +10 %, v = 0.2,
    phi = 0.8. An empty reference counts as none.
    """
    fitted = noise is not None or bool(noises)
    v, phi = noise or _strongest(noises) or (0.2, 0.8)
    config = JudgeConfig(
        mode=mode,
        rungs=rungs,
        reference_ttft=_some(reference_ttft),
        reference_e2e=_some(reference_e2e),
        reference_tpot=_some(reference_tpot),
        tolerated_latency=0.05 if fitted else 0.10,
        unacceptable_latency=_UNACCEPTABLE[mode][0],
        unacceptable_errors=_UNACCEPTABLE[mode][1],
        v=v,
        phi=phi,
        noises=noises,
        guaranteed=fitted,
    )
    return replace(config, **overrides)


def _some(histogram: Histogram | None) -> Histogram | None:
    return histogram if histogram and histogram.total else None


def _strongest(noises: tuple[MetricNoise, ...]) -> tuple[float, float] | None:
    """For a metric the history did not show: the largest noise it did show."""
    worst = max(noises, key=lambda n: n.v * (1 + n.phi) / (1 - n.phi), default=None)
    return (worst.v, worst.phi) if worst else None
