"""The rollouts that the tests of this folder look at, each played once: what was done, and what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.scenario import ENGINE, Row, Scenario
from rollout.domain.effective import Carrier, Seat, carried
from rollout.domain.state import Phase, RolloutState
from rollout.errors import ExitCode
from rollout.testing.traffic import Load, Record
from tests.conftest import release
from tests.e2e.lab.live import LIGHT, PLAIN, QUICK, SHORT, STREAMS, Live, figures

SKIP = {"skip": "staging has a play of its own"}
META = {"team": "chat", "nested": {"list": [1, None, 0.5], "text": "Grüße"}}
SLOW = {"unit": "parameters", "to": {"env": {**ENGINE, "SIM_TTFT_FACTOR": "2"}}}


@dataclass
class Seen:
    """What a play leaves behind."""

    code: int
    screen: str
    records: list[Record]
    before: Row
    after: Row
    leftovers: list[str]
    states: list[RolloutState]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def phase(self) -> Phase:
        return self.states[0].phase


def sibling_fields(scene: Scenario) -> Row:
    """Optional fields of a target that is not ours; 2.2 knows no limit, and behind a gateway a fallback is refused."""
    limit = {"max_running_requests": 64} if release(scene.described["version"]) >= (2, 3) else {}
    return {**limit, **({"fallback_status_codes": ["5xx"]} if scene.described["mode"] == "disabled" else {})}


def carrier(scene: Scenario) -> Carrier:
    """Who splits the traffic on this lab."""
    if scene.described["mode"] == "disabled":
        return Carrier.PROXY
    return Carrier.RULE if release(scene.described["version"]) >= (2, 3) else Carrier.PERCENT


def share_of(scene: Scenario, deployment: str) -> float:
    """What a deployment with one instance gets of the route's requests, beside others of one instance, as the route is now."""
    targets = scene.targets()
    seats = [Seat(row["weight"], 1, bool(row.get("fallback_status_codes"))) for row in targets.values()]
    return max(carried(seats, list(targets).index(deployment), carrier(scene)))


def live(scene: Scenario, *loads: Load, tail: float = 120.0) -> Live:
    """Users of the scenario's route: a key of somebody who is no administrator."""
    return Live(scene.described["inference_url"], scene.described["user_key"], scene.name, *loads, tail=tail)


def seen(scene: Scenario, code: int, before: Row, records: list[Record], **more: Any) -> Seen:
    """Everything a test may ask for, read at the end of a play; one line of figures and the screen are printed."""
    operator = scene.operator
    print(f"{scene.name}: {figures(records)}\n{operator.screen()}")
    return Seen(code, operator.screen(), records, before, scene.snapshot(), scene.leftovers(), operator.states(), more)


def on_rung(target: int = 0) -> Callable[[RolloutState], bool]:
    """The share of the first rung has been proved by traffic."""
    return lambda s: bool(s.target == target and s.fact(f"{target}.rung.0.proved"))


def healthy(scene: Scenario) -> Seen:
    """A whole rollout with staging, under 40 clients, half of them in streams of 5-60 s.

    Streams on the new side that still run 10 s after the end are let go and not counted: nothing happens to them any more.
    """
    stable = scene.deploy("a", "spark-01")
    scene.route({stable: 100}, meta=META)
    plan = scene.operator.plan([stable])
    before = scene.snapshot()
    with live(scene, STREAMS, PLAIN, tail=10.0) as users:
        users.more(20)
        code = scene.operator.finished(scene.operator.start("run", plan, "--until", "completed"))
    return seen(scene, code, before, users.records, stable=stable)


def bad_canary(scene: Scenario) -> Seen:
    """A canary whose first token takes twice as long, beside a target that is not ours; nobody intervenes."""
    stable, sibling = scene.deploy("a", "spark-01"), scene.deploy("b", "spark-02")
    scene.route({stable: 60, sibling: 30}, {sibling: sibling_fields(scene)}, meta=META)
    plan = scene.operator.plan([stable], change=SLOW, stage=SKIP)
    before, ids = scene.snapshot(), {name: row["id"] for name, row in scene.targets().items()}
    with live(scene, SHORT, LIGHT) as users:
        code = scene.operator.finished(scene.operator.start("run", plan, "--until", "completed"))
    after = {name: row["id"] for name, row in scene.targets().items()}
    return seen(scene, code, before, users.records, ids=ids, ids_after=after, sibling=sibling, extra=sibling_fields(scene))


def dark(scene: Scenario, count: int = 300) -> Seen:
    """Held dark while users ask and stable's engine dies and comes back; then 10 % of the route; then a person aborts."""
    stable, operator = scene.deploy("a", "spark-01"), scene.operator
    scene.route({stable: 90}, meta=META)
    plan = operator.plan([stable], ladder=[10, 50, 100], stage=SKIP, gates={"approve_before": ["canary"]}, evidence={"min_time": "10m"})
    before = scene.snapshot()
    operator.run("run", plan, code=ExitCode.HOLDING)
    state = operator.state()
    canary, probe = (state.fact("receipts")["pairs"][0][key] for key in ("canary", "canary_probe"))
    reached = scene.engine(canary)["total"]
    with live(scene, QUICK) as users:
        users.more(count // 3)
        scene.kill_engine(stable)
        users.more(1, when=lambda r: not r.ok)
        users.more(count - count // 3, when=lambda r: r.ok)
    in_the_dark = users.records
    refused = {name: scene.ask(name, client=scene.user).status_code for name in (canary, probe)}
    print(f"{scene.name} dark: {figures(in_the_dark)}; a user's key on {refused}")
    at_most = {"in_the_dark": in_the_dark, "refused": refused, "reached": scene.engine(canary)["total"] - reached, "canary": canary}
    operator.say("approve", "dark is proved")
    process = operator.start("run", state.id)
    operator.until(on_rung(), "the first rung is proved")
    with live(scene, QUICK) as users:
        users.more(count)
    operator.say("abort", "seen enough")
    code = operator.finished(process)
    return seen(scene, code, before, users.records, stable=stable, **at_most)


def two_targets(scene: Scenario) -> Seen:
    """Two stable targets beside one that is not ours, replaced one after another; a person promotes instead of the judge."""
    first, second, sibling = scene.deploy("a", "spark-01"), scene.deploy("b", "spark-02"), scene.deploy("c", "staging")
    scene.route({first: 40, second: 30, sibling: 30}, {sibling: sibling_fields(scene)}, meta=META)
    plan, operator = scene.operator.plan([first, second], stage=SKIP), scene.operator
    before, ids = scene.snapshot(), {name: row["id"] for name, row in scene.targets().items()}
    with live(scene, SHORT, LIGHT) as users:
        operator.run("run", plan, "--until", "stage", code=ExitCode.DONE)
        operator.say("promote", "the judge has a play of its own")
        code = operator.finished(operator.start("run", operator.state().id, "--until", "completed"))
    after = {name: row["id"] for name, row in scene.targets().items()}
    return seen(scene, code, before, users.records, stable=[first, second], sibling=sibling, ids=ids, ids_after=after)


def abort_in_the_second(scene: Scenario) -> Seen:
    """Two stable targets; the first is replaced and drained, the second shares with its canary when a person aborts."""
    first, second = scene.deploy("a", "spark-01"), scene.deploy("b", "spark-02")
    scene.route({first: 40, second: 30}, meta=META)
    plan, operator = scene.operator.plan([first, second], stage=SKIP, gates={"approve_before": ["shift"]}), scene.operator
    before = scene.snapshot()
    with live(scene, SHORT, LIGHT) as users:
        operator.run("run", plan, "--until", "stage", code=ExitCode.DONE)
        operator.say("promote", "the judge has a play of its own")
        operator.run("run", operator.state().id, code=ExitCode.HOLDING)
        operator.say("approve", "the first may be replaced")
        operator.run("run", operator.state().id, code=ExitCode.HOLDING)
        halfway = {name: row["weight"] for name, row in scene.targets().items()}
        code = operator.finished(operator.start("abort", operator.state().id, "--reason", "the second looks wrong"))
    return seen(scene, code, before, users.records, halfway=halfway, stable=[first, second])


PLAYS: dict[str, Callable[[Scenario], Seen]] = {
    play.__name__: play for play in (healthy, bad_canary, dark, two_targets, abort_in_the_second)
}
