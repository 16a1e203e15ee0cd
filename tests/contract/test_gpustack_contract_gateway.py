"""What a gateway is told, on the real server: shares as predicted, from exact rules (2.3) or whole percents (2.2)."""

from __future__ import annotations

import asyncio
import time

import pytest

from lab.gateway import GatewayView
from rollout.backends.gpustack_front import Front
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clock import SystemClock
from rollout.domain.effective import WHOLE, Carrier, Seat, carried
from rollout.domain.weights import canary_weight
from tests.contract.conftest import Pair
from tests.contract.site import Row, Site, unique

pytestmark = pytest.mark.only(gateway=True)
RUNGS = (0.01, 0.02, 0.05, 0.10, 0.25, 0.50)
FOLLOWS = 2.0
"""seconds after which a gateway that is well has been told; measured 0.2 to 1.7"""


def put(site: Site, target: Row, weight: int) -> None:
    body = {"model_id": target["model_id"], "weight": weight}
    site.api.put(f"/v2/model-route-targets/{target['id']}", json=body).raise_for_status()


def scale(site: Site, model: Row, replicas: int) -> None:
    """Other replicas, all running."""
    site.api.put(f"/v2/models/{model['id']}", json={**site.model(model["id"]), "replicas": replicas}).raise_for_status()
    site.until(lambda: [i["state"] for i in site.instances(model["id"])] == ["running"] * replicas, f"{replicas} replicas run", 60)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_rendered_shares_are_as_predicted_for_every_size_and_rung(gpustack: Site) -> None:
    a = gpustack.deploy(unique("many"), backend="Custom")
    b = gpustack.deploy(unique("many"), backend="Custom", worker="spark-02")
    route = gpustack.new_route({a["id"]: 99, b["id"]: 1}, wait=False)
    for of_a, of_b in ((1, 1), (4, 4), (3, 7), (8, 8)):
        scale(gpustack, a, of_a)
        scale(gpustack, b, of_b)
        for rung in RUNGS:
            lines(gpustack, route, a, b, (of_a, of_b), rung)


@pytest.mark.modes
@pytest.mark.timeout(120)
def test_rendered_shares_of_two_times_four_instances(gpustack: Site) -> None:
    """The shape in which whole percents go wrong: 2 % is nothing or 4 %, 10 % is 8 % or 12 %."""
    a = gpustack.deploy(unique("four"), backend="Custom", replicas=4)
    b = gpustack.deploy(unique("four"), backend="Custom", replicas=4, worker="spark-02")
    route = gpustack.new_route({a["id"]: 99, b["id"]: 1}, wait=False)
    for rung in (0.02, 0.10):
        lines(gpustack, route, a, b, (4, 4), rung)


def lines(site: Site, route: Row, a: Row, b: Row, instances: tuple[int, int], rung: float) -> None:
    """One rung is written; what is rendered for it lies in what was predicted."""
    stable = 1000 - round(1000 * rung)
    weight = canary_weight(stable, rung)
    targets = site.targets(route["id"])
    for model, wanted in ((a, stable), (b, weight)):
        put(site, targets[model["id"]], wanted)
        site.active(route, targets[model["id"]])
    time.sleep(FOLLOWS)  # an annotation that does not change is not written: there is nothing else to wait for
    site.followed(route["name"])
    mode, given = GatewayView.of(site.described).shares(route["id"])
    carrier = Carrier.RULE if mode == "lb" else Carrier.PERCENT
    assert carrier is (Carrier.RULE if site.balances else Carrier.PERCENT)
    share = given.get(b["id"], 0) / sum(given.values())
    predicted = carried([Seat(stable, instances[0]), Seat(weight, instances[1])], 1, carrier)
    shown = " or ".join(f"{WHOLE * one:g} %" for one in sorted(predicted))
    print(f"{instances[0]}+{instances[1]} asked {WHOLE * rung:g} %: rendered {WHOLE * share:.4g} %, predicted {shown}")
    assert any(abs(share - one) < 1e-9 for one in predicted)


@pytest.mark.only(since="2.3")
def test_the_same_request_id_goes_to_the_same_target(gpustack: Site, pair: Pair) -> None:
    route = gpustack.new_route({pair.a["id"]: 50, pair.b["id"]: 50})
    gpustack.followed(route["name"])
    body = {"model": route["name"], "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    for request_id in ("first", "second", "third"):
        headers = {"X-Request-Id": request_id}
        served = {gpustack.inference.post("/v1/chat/completions", json=body, headers=headers).json()["model"] for _ in range(6)}
        assert len(served) == 1


@pytest.mark.modes
def test_it_is_seen_in_front_of_the_inference_url_and_not_at_the_apis(gpustack: Site) -> None:
    async def look(url: str) -> bool | None:
        front = Front(Http(url, None, retry=Retry(SystemClock())), apart=url != gpustack.described["server_url"])
        try:
            return await front.gateway()
        finally:
            await front.aclose()

    assert asyncio.run(look(gpustack.described["inference_url"])) is True
    assert asyncio.run(look(gpustack.described["server_url"])) is False
