"""Behind a gateway that refuses what the server writes: the API shows it, the traffic does not, and the traffic is believed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lab.gateway import GatewayView
from lab.scenario import Scenario, wrote
from rollout.domain.state import Phase
from rollout.errors import ExitCode
from tests.e2e.lab.conftest import Stage
from tests.e2e.lab.live import LIGHT, cut, figures, lost
from tests.e2e.lab.plays import META, SKIP, live, on_rung

pytestmark = [pytest.mark.lab, pytest.mark.only(gateway=True), pytest.mark.timeout(420)]
OBJECTS = ("wasmplugins/gpustack-model-mapper", "ingresses/")
"""what carries a split: the exact rule of 2.3, the percents of 2.2"""
GIVES_UP = 30.0
"""seconds after which the server no longer repeats a refused write: five tries 2 s apart, for each of the events that one change causes"""


@pytest.fixture
def gateway(scene: Scenario, stage: Stage) -> Iterator[GatewayView]:
    """The gateway's side, with nobody else on the lab; well again afterwards."""
    stage.quiet()
    view = GatewayView.of(scene.described)
    yield view
    view.heal()


def refuse(gateway: GatewayView) -> None:
    for path in OBJECTS:
        gateway.refuse_writes(path)


@pytest.mark.modes
def test_a_refused_write_is_dropped_and_a_name_only_write_brings_it(scene: Scenario, gateway: GatewayView) -> None:
    a, b = scene.deploy("a", "spark-01"), scene.deploy("b", "spark-02")
    scene.route({a: 90, b: 10})
    route, target = scene.the_route(), scene.targets()[b]
    before = scene.until(lambda: len((seen := gateway.shares(route["id"]))[1]) == 2 and seen, "the gateway knows both")
    refuse(gateway)
    wrote(scene.api.put(f"/v2/model-route-targets/{target['id']}", json={"model_id": target["model_id"], "weight": 90}))
    time.sleep(GIVES_UP)
    gateway.heal()
    time.sleep(2)
    shown = scene.targets()[b]
    assert (shown["weight"], shown["state"]) == (90, "active")
    assert gateway.shares(route["id"]) == before
    wrote(scene.api.put(f"/v2/model-routes/{route['id']}", json={"name": scene.name}))
    scene.until(lambda: len(set(gateway.shares(route["id"])[1].values())) == 1, "the gateway was told: half each", 5)


@pytest.mark.slow
def test_a_dropped_write_holds_and_goes_on_when_the_gateway_listens_again(scene: Scenario, gateway: GatewayView) -> None:
    stable, operator = scene.deploy("a", "spark-01"), scene.operator
    scene.route({stable: 90}, meta=META)
    plan = operator.plan([stable], ladder=[10, 50, 100], stage=SKIP, gates={"approve_before": ["canary"]}, evidence={"min_time": "10m"})
    before = scene.snapshot()
    operator.run("run", plan, code=ExitCode.HOLDING)
    operator.say("approve", "the gateway is about to fail")
    with live(scene, LIGHT) as users:
        refuse(gateway)
        operator.run("run", operator.state().id, code=ExitCode.HOLDING)
        gateway.heal()
        held = operator.state()
        assert held.hold is not None
        assert held.hold.reason == "weight_not_effective"
        assert held.fact("0.rung.0.proved") is None
        canary = held.fact("receipts")["pairs"][0]["canary"]
        assert canary in scene.targets()
        assert all(r.deployment != canary for r in users.records)
        operator.say("resume", "the gateway's API works again")
        process = operator.start("run", held.id)
        operator.until(on_rung(), "the first rung is proved")
        operator.say("abort", "seen enough")
        operator.finished(process)
    print(figures(users.records))
    assert lost(users.records) + cut(users.records) == []
    assert operator.state().phase is Phase.ABORTED
    assert scene.snapshot() == before
    assert scene.leftovers() == []
