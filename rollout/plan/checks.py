"""What the parts of a plan may not contradict. Pure; finds every contradiction of a part at once.

Only what a plan alone can show: what the servers say is preflight's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from rollout.plan import fields, history
from rollout.plan.finding import Problem, wrong
from rollout.plan.units import format_duration

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rollout.plan.model import (
        ChangeUnit,
        Drain,
        Evidence,
        Margins,
        Plan,
        Probes,
        QualityMargin,
        Route,
        SecretRef,
        SpeedMargin,
        StableTarget,
        Stage,
        Window,
    )

ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:\-]*$"
ROUTE_NAME = r"^[A-Za-z]([A-Za-z0-9_.:\-]*[A-Za-z0-9])?$"
"""as the server requires it"""
TOLERATED, UNACCEPTABLE = 0.10, 0.20
"""slow-downs that stand where a plan says nothing: the most that is tolerated and the least that is unacceptable in any evidence mode"""
LOSS = 0.05
"""of the mean score, unacceptable where a plan says nothing"""
PAIRS = 120
"""paired probes where a plan says nothing and live traffic is not rich"""
FILES_AFTER = 3600.0
"""seconds of window without which no file is deleted"""


def refuse(part: BaseModel) -> None:
    """Raise one error with all contradictions of `part`; parts without rules pass."""
    rule = _RULES.get(type(part).__name__)
    found = list(rule(part)) if rule else []
    if found:
        raise wrong(*found)


def url(text: str) -> str:
    """A server's base URL without a trailing slash. Raises when it is not one, or carries credentials."""
    expected = "a URL such as http://127.0.0.1:30080"
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
        (parts.hostname or "").encode("idna").decode("idna")
    except ValueError:
        raise wrong(Problem((), expected)) from None
    if parts.username is not None or parts.password is not None:
        raise wrong(
            Problem((), "a URL without credentials", "a user or password in it", "keys are references: `management_key`, `inference_key`")
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or any(c.isspace() for c in text):
        raise wrong(Problem((), expected))
    if parts.query or parts.fragment:
        raise wrong(Problem((), expected, "one with more behind its path", "without `?` and `#`"))
    path = parts.path.rstrip("/")
    if path.endswith(("/v1", "/v2", "/v1-openai")):
        raise wrong(Problem((), expected, hint=f"without {path[path.rindex('/') :]}"))
    return f"{parts.scheme}://{parts.netloc}{path}"


def rising(ladder: tuple[float, ...]) -> tuple[float, ...]:
    """A ladder that climbs to 100 over at least one rung below."""
    example = "such as [5, 25, 50, 100]"
    found = [
        Problem((i + 1,), f"a rung above {low:g}: shares rise, {example}") for i, (low, high) in enumerate(pairwise(ladder)) if high <= low
    ]
    if not found and (not ladder or ladder[-1] != 100):
        found.append(Problem((), f"a ladder that ends at 100, {example}"))
    elif not found and len(ladder) < 2:
        found.append(Problem((), f"at least one rung below 100, {example}", "no evidence before everything is moved"))
    if found:
        raise wrong(*found)
    return ladder


def distinct(stable: tuple[StableTarget, ...]) -> tuple[StableTarget, ...]:
    """Every deployment once."""
    names = [target.deployment for target in stable]
    found = [
        Problem((i, "deployment"), "each deployment once", f"`{name}` again", f"first in stable[{names.index(name)}]")
        for i, name in enumerate(names)
        if names.index(name) < i
    ]
    if found:
        raise wrong(*found)
    return stable


def _secret(ref: SecretRef) -> Iterator[Problem]:
    if (ref.env is None) == (ref.file is None):
        yield Problem((), "exactly one of `env` or `file`", "both" if ref.env is not None else "neither")


def _change(change: ChangeUnit) -> Iterator[Problem]:
    yield from fields.problems(change.unit, change.to)


def _stage(stage: Stage) -> Iterator[Problem]:
    if stage.worker is None and stage.skip is None:
        yield Problem((), "`worker` (the staging worker's name) or `skip` (the recorded reason)", "neither")


def _probes(probes: Probes) -> Iterator[Problem]:
    pairs = PAIRS if probes.pairs is None else probes.pairs
    if probes.batch > pairs:
        yield Problem(("batch",), f"at most `pairs` ({pairs})", str(probes.batch))


def _evidence(evidence: Evidence) -> Iterator[Problem]:
    yield from _at_most(evidence, "window", "min_time", "a rung would end inside its first window")
    yield from _at_most(evidence, "min_time", "deadline", "no rung could end before the verdict is due")
    yield from _at_most(evidence, "min_time_before_full", "deadline", "the last rung could not end before the verdict is due")
    other = history.misfit(evidence.history, evidence.window) if evidence.history else None
    if other is not None:
        yield other


def _margins(margins: Margins) -> Iterator[Problem]:
    """A margin that is tolerated lies below the one that is unacceptable, also where one of the two is a default."""
    for name in (*history.LATENCIES, "probes"):
        yield from _below(name, getattr(margins, name), TOLERATED, UNACCEPTABLE)
    yield from _below("quality", margins.quality, 0.0, LOSS)


def _below(name: str, margin: SpeedMargin | QualityMargin, tolerated: float, unacceptable: float) -> Iterator[Problem]:
    low, high = margin.tolerated, margin.unacceptable
    if low is not None and high is None and low >= unacceptable:
        hint = f"{unacceptable:g} by default"
        yield Problem((name, "tolerated"), "an `unacceptable` above it", f"`tolerated` {low:g} alone", hint)
    elif low is None and high is not None and high <= tolerated:
        yield Problem((name, "unacceptable"), "a `tolerated` below it", f"`unacceptable` {high:g} alone", f"up to {tolerated:g} by default")
    elif low is not None and high is not None and low >= high:
        yield Problem((name, "tolerated"), f"less than `unacceptable` ({high:g})", f"{low:g}", "between the two nothing is decided")


def _drain(drain: Drain) -> Iterator[Problem]:
    yield from _at_most(drain, "quiet", "deadline", "stable could never count as empty")
    if drain.on_timeout == "proceed" and drain.reason is None:
        yield Problem(("on_timeout",), "a `reason` beside `on_timeout: proceed`", "none", "it cuts the streams that still run")


def _window(window: Window) -> Iterator[Problem]:
    if window.keep == "parked":
        yield from _at_most(window, "warm", "duration", "stable would never be parked")


def _at_most(part: BaseModel, short: str, long: str, why: str) -> Iterator[Problem]:
    """`short` may not be longer than `long`; a default says that it is one."""
    small, big = getattr(part, short), getattr(part, long)
    if small is None or big is None or small <= big:
        return
    written = [name for name in (short, long) if name in part.model_fields_set]
    told = {n: f"{format_duration(getattr(part, n))}{'' if n in written else ' by default'}" for n in (short, long)}
    key = short if short in written else long
    if key == short:
        yield Problem((short,), f"at most `{long}` ({told[long]})", told[short], why)
    else:
        yield Problem((long,), f"at least `{short}` ({told[short]})", told[long], why)


def _route(route: Route) -> Iterator[Problem]:
    if route.accept_loss and not route.convert_to_weighted:
        yield Problem(("accept_loss",), "`convert_to_weighted: true` beside it", "none", "nothing else of a rollout may lose requests")


def _plan(plan: Plan) -> Iterator[Problem]:
    duration = plan.window.duration
    if plan.cleanup.files == "delete" and duration is not None and duration < FILES_AFTER:
        found = f"{format_duration(duration)}"
        why = "files are never deleted right after a deploy"
        yield Problem(("window", "duration"), f"at least {format_duration(FILES_AFTER)} beside `cleanup.files: delete`", found, why)
    sizings = [("canary", plan.canary), *((f"stable[{i}].canary", t.canary) for i, t in enumerate(plan.stable) if t.canary)]
    sized = next((where for where, canary in sizings if canary.sizing.gpu_memory_utilization is not None), None)
    parameters = plan.change.to.get("backend_parameters") or []
    for i, text in enumerate(parameters):
        if sized and str(text).startswith("--gpu-memory-utilization"):
            hint = f"it is also `{sized}.sizing.gpu_memory_utilization`"
            yield Problem(("change", "to", "backend_parameters", i), "the memory fraction in one place", "two", hint)


_RULES = cast(
    "dict[str, Callable[[BaseModel], Iterator[Problem]]]",
    {
        "SecretRef": _secret,
        "ChangeUnit": _change,
        "Stage": _stage,
        "Probes": _probes,
        "Evidence": _evidence,
        "Margins": _margins,
        "Drain": _drain,
        "Window": _window,
        "Route": _route,
        "Plan": _plan,
    },
)
