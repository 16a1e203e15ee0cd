"""When a window ends, and whether a stable side could come back: from one tick's world, without anybody acting."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rollout.domain.context import Ctx
from rollout.domain.receipts import Pair, Receipts, take
from rollout.domain.restore import Restorable, crowded, kept, restorable
from rollout.domain.state import Event, Phase, RolloutState, Said, StepName, evolve
from rollout.domain.window import ends, left, live, opening
from rollout.domain.world import (
    DeploymentView,
    EngineSample,
    FileView,
    InstanceSample,
    InstanceView,
    RouteView,
    TargetView,
    WorkerView,
    World,
)
from rollout.plan.load import parse_plan
from tests.unit.plan.kit import GOOD, plus

AT = datetime(2026, 11, 1, tzinfo=UTC)
ID = "7f3a9c2d1b00"
GIB = 1 << 30
SPEC = {"image_name": "sim/vllm:1", "replicas": 1, "env": {"HF_TOKEN": "***"}}
FILE = FileView(7, "spark-01", "local_path /m", ("/m",), 5 * GIB, "ready", ("a",))


def receipts(replicas: int | None = 1) -> Receipts:
    route = RouteView(1, "chat", (TargetView(1, 1, "a", 100, "active"),), "weighted", {}, "authed")
    return take(ID, route, ("a",), {}, 10, 1800, replicas={"a": replicas} if replicas else None)


def pair(replicas: int | None = 1) -> Pair:
    return receipts(replicas).pairs[0]


def stable(replicas: int = 1, state: str = "running", **row: Any) -> DeploymentView:
    rows = (InstanceView(1, "a-0", state, "spark-01", claim=20 * GIB, **row),) if replicas else ()
    ready = 1 if rows and state == "running" else 0
    return DeploymentView(1, "a", replicas, ready, state, {**SPEC, "env": {"HF_TOKEN": "hf_secret"}, "replicas": replicas}, rows)


def worker(available: int | None = 64 * GIB, state: str = "ready") -> WorkerView:
    return WorkerView(1, "spark-01", state, 1.0, 128 * GIB, available, True)


def requests(count: float | None, engine: str = "x-0") -> EngineSample:
    row = InstanceSample(0, 0, count, 0, 0, None, None)
    return EngineSample(AT, "OK", {engine: row})


def ctx(view: DeploymentView | None, *, after: float = 0.0, text: str = GOOD, facts: Mapping[str, Any] | None = None, **world: Any) -> Ctx:
    shown = {"workers": {"spark-01": worker()}, "files": (FILE,), **world}
    seen = World(AT + timedelta(seconds=after), "v2.3.0", None, {"a": view} if view else {}, **shown)
    state = RolloutState(
        id=ID,
        name="n",
        server="s",
        route="chat",
        plan_digest="",
        phase=Phase.PROMOTED,
        step=StepName.CLEANUP,
        created=AT,
        entered=AT,
        facts={"receipts": receipts().model_dump(mode="json"), "found": {"a": SPEC}, **(facts or {})},
    )
    return Ctx(parse_plan(text), state, seen, lambda *_: {}, lambda *_: [])


def opened(**fact: Any) -> dict[str, Any]:
    """The facts of a window that began while stable ran."""
    record = kept(ctx(stable(loaded=95.0)), 0, pair())
    base = {"at": AT.isoformat(), "duration": 3600.0, "live": None, "base": {}, "kept": {"a": record}}
    return {"window": {**base, **fact}}


def test_what_is_kept_of_a_side_that_runs() -> None:
    """Where it runs with how much, from which files, and how long its start took."""
    assert opened()["window"]["kept"]["a"] == {
        "workers": {"spark-01": 20 * GIB},
        "files": [{"id": 7, "worker": "spark-01", "source": "local_path /m", "paths": ["/m"], "size": 5 * GIB}],
        "load": 95.0,
    }


def test_a_load_time_nobody_recorded_is_that_of_its_successor() -> None:
    """A row that was touched long after its start tells no load time."""
    facts = {"0.attach.created": {"at": AT.isoformat()}, "0.attach.routed": {"at": (AT + timedelta(seconds=80)).isoformat()}}
    assert kept(ctx(stable(loaded=None), facts=facts), 0, pair())["load"] == 80
    assert kept(ctx(stable(loaded=40000.0), facts=facts), 0, pair())["load"] == 80
    assert kept(ctx(stable(loaded=None)), 0, pair())["load"] is None


def test_warm_is_at_once_whatever_the_rest_says() -> None:
    """It serves: a rollback needs no file and no memory."""
    assert restorable(ctx(stable(), facts=opened(), files=(), workers={}), pair()) == Restorable("at_once")


def test_parked_is_by_loading_with_its_time() -> None:
    found = restorable(ctx(stable(0), facts=opened()), pair())
    assert (found.word, found.told) == ("by_loading", "restorable by loading, about 95 s")
    again = {**opened(), "undo.a.loaded": {"seconds": 120.0}}
    assert restorable(ctx(stable(0), facts=again), pair()).seconds == 120.0


@pytest.mark.parametrize(
    ("view", "world", "cause", "why"),
    [
        (None, {}, "deleted", "deployment a was deleted"),
        (stable(0), {"files": ()}, "files", "the files of a are gone: /m on spark-01"),
        (stable(0), {"files": (replace(FILE, worker="spark-02"),)}, "files", "the files of a are gone: /m on spark-01"),
        (stable(0), {"files": (replace(FILE, paths=("/n",)),)}, "files", "the files of a are gone: /m on spark-01"),
        (stable(0), {"files": (replace(FILE, state="error"),)}, "files", "the files of a are gone: /m on spark-01"),
        (stable(0), {"workers": {}}, "worker", "spark-01, where a ran, is gone"),
        (stable(0), {"workers": {"spark-01": worker(state="maintenance")}}, "worker", "spark-01, where a ran, is maintenance"),
        (stable(0), {"workers": {"spark-01": worker(27 * GIB)}}, "memory", "needs 20.0 and the floor of 8.0"),
        (replace(stable(0), spec={**SPEC, "image_name": "other"}), {}, "spec", "a was changed since (image_name)"),
        (stable(1, "error"), {"files": ()}, "files", "the files of a are gone"),
    ],
)
def test_what_stands_in_the_way_is_named(view: DeploymentView | None, world: dict[str, Any], cause: str, why: str) -> None:
    found = restorable(ctx(view, facts=opened(), **world), pair())
    assert (found.word, found.cause) == ("not", cause)
    assert why in found.why


@pytest.mark.parametrize(
    "world",
    [
        {"files": (replace(FILE, id=99),)},  # downloaded again
        {"files": None},  # nobody looked
        {"workers": {"spark-01": worker(None)}},  # unknown memory is neither free nor short
        {"workers": {"spark-01": worker(28 * GIB)}},
    ],
)
def test_what_does_not_stand_in_the_way(world: dict[str, Any]) -> None:
    assert restorable(ctx(stable(0), facts=opened(), **world), pair()).word == "by_loading"


def test_memory_does_not_count_against_a_side_that_only_starts_again() -> None:
    """Its reservation is still there."""
    assert restorable(ctx(stable(1, "starting"), facts=opened(), workers={"spark-01": worker(GIB)}), pair()).word == "by_loading"


def test_without_its_replicas_nothing_is_guessed() -> None:
    """A receipt of an older release does not say how many it had."""
    assert restorable(ctx(stable(0), facts=opened()), pair(None)).cause == "replicas"


def test_after_a_takeover_what_was_never_recorded_is_not_held_against_it() -> None:
    bare = ctx(stable(0), files=None, workers={})
    bare.state.facts.pop("found")
    assert restorable(bare, pair()).told == "restorable by loading, load time unknown"


@pytest.mark.parametrize(("free", "needed"), [(15 * GIB, True), (16 * GIB, False), (None, False)])
def test_memory_is_needed_below_twice_the_floor(free: int | None, needed: bool) -> None:
    assert (crowded(ctx(stable(), workers={"spark-01": worker(free)}), pair()) is not None) is needed


# --- how long


@pytest.mark.parametrize(
    ("text", "mode", "duration", "requests_"),
    [
        (GOOD, "sparse", 86400.0, 50),
        (GOOD, "thin", 86400.0, None),
        (plus("window: {duration: 24h}"), "sparse", 86400.0, None),
        (plus("window: {duration: 2h}"), "sparse", 7200.0, None),
    ],
)
def test_a_default_window_waits_for_requests_on_sparse_traffic_alone(text: str, mode: str, duration: float, requests_: int | None) -> None:
    """A stated duration stands."""
    found = opening(ctx(stable(), text=text, facts={"mode": mode}))
    assert (found["duration"], found["live"]) == (duration, requests_)


@pytest.mark.parametrize(
    ("after", "seen", "open_"),
    [
        (3599, requests(0), True),
        (3600, requests(49), True),
        (3600, requests(50), False),
        (3600, None, True),
        (3600, requests(None), True),
        (3 * 86400, requests(0), False),
    ],
)
def test_too_few_requests_keep_it_open_but_not_for_ever(after: float, seen: EngineSample | None, open_: bool) -> None:
    now = ctx(None, after=after, facts=opened(live=50, base={"x": {}}), samples={"x": seen} if seen else {})
    assert (left(now) is not None) is open_


def test_requests_are_counted_from_the_beginning_and_a_restart_only_loses_some() -> None:
    base = {"x": {"x-0": 100.0}, "y": None}
    two = {"x": requests(130), "y": requests(5, "y-0")}
    assert live(ctx(None, samples=two), base) == 35
    assert live(ctx(None, samples={"x": requests(7)}), base) == 7
    assert live(ctx(None, samples={"x": EngineSample(AT, "METRIC_ERROR")}), base) is None


def said(state: RolloutState, after: float, **args: Any) -> RolloutState:
    word = Said(verb="extend_window", actor="x", reason="y", at=AT).model_dump(mode="json")
    return evolve(state, Event(kind="command", at=AT + timedelta(seconds=after), actor="x", text="", data={"said": word, "args": args}))


def test_an_extension_adds_up_and_a_moment_only_moves_later() -> None:
    state = said(said(ctx(None, facts=opened()).state, 60, by=600.0), 70, by=60.0)
    assert ends(state) == AT + timedelta(seconds=3600 + 660)
    later = (AT + timedelta(hours=9)).isoformat()
    state = said(said(state, 80, until=later), 90, until=(AT + timedelta(hours=2)).isoformat())
    assert ends(state) == AT + timedelta(hours=9)


def test_an_extension_of_a_window_that_is_over_counts_from_now() -> None:
    assert ends(said(ctx(None, facts=opened()).state, 7200, by=600.0)) == AT + timedelta(seconds=7800)


def test_an_extension_before_the_window_is_kept_for_it() -> None:
    state = said(ctx(None).state, 0, by=600.0)
    assert ends(state) is None
    assert ends(state.model_copy(update={"facts": {**state.facts, **opened()}})) == AT + timedelta(seconds=4200)
