"""What one window costs: six metrics (ttft, e2e, tpot, errors, quality, memory), milliseconds, and whether memory stays flat."""

import json
import time
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.judge.worlds import Drifting, Rng
from rollout.analysis import JudgeConfig, QualityPair, Window, absorb, config_for, new_state

_GIB = float(1 << 30)
_PROMPTS = 10  # pairs replayed in a window
_LONG = 10_000
_ALLOWED = 256 * 1024  # bytes of growth over all but the first windows: caches may settle


@dataclass(frozen=True)
class Speed:
    """Medians in milliseconds; `grown`: bytes that `absorb` kept over 10,000 windows; `state`: bytes of the saved state at the end."""

    window_ms: float
    window20k_ms: float
    fitted_ms: float
    fitted20k_ms: float
    grown: int
    state: int

    @property
    def flat(self) -> bool:
        """Whether memory stayed flat."""
        return self.grown <= _ALLOWED


def measured() -> Speed:
    """All of it; nothing else should run meanwhile."""
    grown, state = _growth()
    return Speed(_median_ms(300), _median_ms(20_000), _median_ms(300, (0.2, 0.8)), _median_ms(20_000, (0.2, 0.8)), grown, state)


def spoken(speed: Speed) -> str:
    """One paragraph."""
    return (
        f"\nsix metrics, median ms a window: 300 requests {speed.window_ms:.2f}, 20,000 requests {speed.window20k_ms:.2f}; "
        f"with fitted noise {speed.fitted_ms:.2f} and {speed.fitted20k_ms:.2f}\n"
        f"over 10,000 windows memory grew by {speed.grown} bytes; saved state {speed.state} bytes"
    )


def _median_ms(requests: int, noise: tuple[float, float] = (0.0, 0.0), windows: int = 60) -> float:
    config, seen = _six_metrics(requests, noise, windows)
    state, took = new_state(config), []
    for window in seen:
        started = time.perf_counter()
        state = absorb(config, state, window)
        took.append(time.perf_counter() - started)
    return float(np.median(took)) * 1e3


def _six_metrics(requests: int, noise: tuple[float, float], windows: int) -> tuple[JudgeConfig, list[Window]]:
    world = Drifting(drift=False, rate=requests / 30.0, windows=windows)
    rng = np.random.default_rng(1)
    reference = world.references(rng, 1)[0]
    config = config_for(
        "rich",
        rungs=1,
        reference_ttft=reference,
        reference_e2e=reference,
        reference_tpot=reference,
        noise=noise,
        quality="binary",
        memory_noise=(0.3 * _GIB, 0.9),
    )
    shapes = [world.traffic(rng, 1) for _ in range(3)]
    return config, [_joined([s.window(0, t) for s in shapes], rng) for t in range(windows)]


def _joined(windows: list[Window], rng: Rng) -> Window:
    """One window with the three latencies of three windows; counts need not agree, each metric is judged by itself."""
    first, second, third = windows
    arms = []
    for arm in ("stable", "canary"):
        one, two, three = (getattr(w, arm) for w in (first, second, third))
        arms.append(replace(one, e2e=two.ttft, tpot=three.ttft, memory_used=int((40 + 0.3 * rng.normal()) * _GIB)))
    scores = rng.random((_PROMPTS, 2)) < 0.92
    pairs = tuple(QualityPair(float(s), float(c)) for s, c in scores)
    return replace(first, stable=arms[0], canary=arms[1], quality=pairs)


def _growth() -> tuple[int, int]:
    config, seen = _six_metrics(300, (0.0, 0.0), 50)
    state, settled = new_state(config), 0
    tracemalloc.start()
    for i in range(_LONG):
        state = absorb(config, state, replace(seen[i % len(seen)], id=i))
        if i == _LONG // 10:
            settled = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - settled
    tracemalloc.stop()
    return grown, len(json.dumps(state.to_json()))
