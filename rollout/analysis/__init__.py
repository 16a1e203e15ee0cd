"""Are canary and stable different? Numbers in, verdict out: no I/O, no clock, no logging.

`config_for` fixes the question, `new_state` opens the evidence, `absorb` takes a window, `verdict` says what is known. Numpy is imported
with the first judgement and not before, so that commands which do not judge start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rollout.analysis.config import JudgeConfig, Margin, MetricNoise, Mode, config_for
from rollout.analysis.counters import CounterSample, InstanceCounters, window_delta
from rollout.analysis.recorded import window_from_json, window_to_json
from rollout.analysis.samples import ArmWindow, Histogram, ProbePair, QualityPair, Status, Window

if TYPE_CHECKING:
    from rollout.analysis.assess import ShareAlarm, Verdict, share_alarm, verdict
    from rollout.analysis.betting import share_inside
    from rollout.analysis.judge import absorb, absorb_many, new_state
    from rollout.analysis.state import JudgeState

_LATER = {
    "JudgeState": "state",
    "ShareAlarm": "assess",
    "Verdict": "assess",
    "absorb": "judge",
    "absorb_many": "judge",
    "new_state": "judge",
    "share_alarm": "assess",
    "share_inside": "betting",
    "verdict": "assess",
}

__all__ = [
    "ArmWindow",
    "CounterSample",
    "Histogram",
    "InstanceCounters",
    "JudgeConfig",
    "JudgeState",
    "Margin",
    "MetricNoise",
    "Mode",
    "ProbePair",
    "QualityPair",
    "ShareAlarm",
    "Status",
    "Verdict",
    "Window",
    "absorb",
    "absorb_many",
    "config_for",
    "new_state",
    "share_alarm",
    "share_inside",
    "verdict",
    "window_delta",
    "window_from_json",
    "window_to_json",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rollout.analysis.{_LATER[name]}"), name)
