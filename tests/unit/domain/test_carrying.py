"""The capability of a site by version and by what is seen, and the rungs that its carrier cannot express."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rollout.domain.carrying import carrier_of, live_shares, rung_shares, untold, version_of
from rollout.domain.effective import Carrier
from rollout.domain.ladder import shares_of
from rollout.domain.preflight import findings
from rollout.domain.world import InstanceView, World
from tests.unit.domain.test_ladder import plan, world


def site(version: str = "v2.2.3", *, gateway: bool | None = True, replicas: int = 4, **weights: int) -> World:
    """A route as a server of that version shows it, each deployment with that many running instances."""
    seen = world(**(weights or {"chat_a": 100}))
    views = {
        n: replace(
            v, replicas=replicas, ready_replicas=replicas, instances=tuple(InstanceView(i, n, "running", n) for i in range(replicas))
        )
        for n, v in seen.deployments.items()
    }
    assert seen.route is not None
    mode = "weighted" if version_of(version) >= (2, 3, 0) else None
    return replace(seen, server_version=version, gateway=gateway, deployments=views, route=replace(seen.route, lb_mode=mode))


@pytest.mark.parametrize(
    ("version", "gateway", "carrier"),
    [
        ("v2.3.0", False, Carrier.PROXY),
        ("v2.3.0", True, Carrier.RULE),
        ("v2.3.1rc1", True, Carrier.RULE),
        ("v2.2.3", False, Carrier.PROXY),
        ("v2.2.3", True, Carrier.PERCENT),
        ("v2.2.3", None, Carrier.PERCENT),
        ("v0.0.0", True, Carrier.PERCENT),
        ("main", True, Carrier.PERCENT),
    ],
)
def test_the_carrier_by_version_and_gateway(version: str, gateway: bool | None, carrier: Carrier) -> None:
    assert carrier_of(site(version, gateway=gateway)) is carrier


def test_a_route_that_shows_its_mode_says_more_than_a_version_that_cannot_be_read() -> None:
    seen = site("v0.0.0")
    assert seen.route is not None
    assert carrier_of(replace(seen, route=replace(seen.route, lb_mode="weighted"))) is Carrier.RULE


def test_a_gateway_that_cannot_be_seen_is_asked_for_only_where_it_matters() -> None:
    assert untold(site("v2.2.3", gateway=None))
    assert not untold(site("v2.3.0", gateway=None))
    (found,) = findings(plan(), site("v2.2.3", gateway=None))
    assert "say `gpustack.gateway: enabled` or `disabled`" in found


@pytest.mark.parametrize(("rung", "seen"), [(1, "0 %"), (2, "0 % or 4 %"), (5, "4 %"), (10, "8 % or 12 %")])
def test_a_rung_that_whole_percents_cannot_express_is_refused_with_the_nearest(rung: int, seen: str) -> None:
    """Four instances on each side: a percent of the route is dealt to an instance or not at all."""
    stable = site(chat_a=100 - rung)
    (found,) = findings(plan(ladder=[rung, 100]), stable)
    assert f"rung {rung} % beside `chat-a`" in found
    assert f"the canary would get {seen} of the route" in found
    offered = float(found.rpartition("nearest that can be: ")[2].removesuffix(" %"))
    assert findings(plan(ladder=[offered, 100]), stable) == []
    assert not any(findings(plan(ladder=[p / 2, 100]), stable) == [] for p in range(1, 199) if abs(p / 2 - rung) < abs(offered - rung))


def test_the_same_rungs_stand_where_weights_are_exact_or_instances_are_few() -> None:
    for seen in (site("v2.3.0"), site(gateway=False), site(replicas=1)):
        assert findings(plan(ladder=[1, 2, 5, 10, 50, 100]), seen) == []


def test_a_ladder_of_our_own_choice_leaves_out_what_cannot_be_expressed() -> None:
    rich: dict[str, Any] = {"evidence": {"mode": "rich"}}
    assert shares_of(plan(**rich), site("v2.3.0")) == (0.05, 0.10, 0.25, 0.50, 1.0)
    assert shares_of(plan(**rich), site()) == (0.25, 0.50, 1.0)
    assert findings(plan(**rich), site()) == []


def test_the_number_of_the_canarys_own_instances_counts() -> None:
    sized = plan(ladder=[5, 100], canary={"sizing": {"replicas": 7}})
    assert rung_shares(sized, site(replicas=3), 0, 95, 5) == {0.07}
    assert any("would get 7 %" in one for one in findings(sized, site(replicas=3, chat_a=95)))


def test_without_stable_the_canary_has_its_share_of_what_is_left() -> None:
    seen = site("v2.3.0", chat_a=60, chat_b=40)
    assert rung_shares(plan(), seen, 0, None, 60) == {0.6}


def test_live_shares_follow_the_instances_that_run() -> None:
    seen = site(chat_a=90, chat_b=10)
    assert live_shares(seen, "chat-b", Carrier.PERCENT) == {0.08, 0.12}
    lone = replace(seen.deployments["chat-b"], instances=seen.deployments["chat-b"].instances[:1])
    assert live_shares(replace(seen, deployments={**seen.deployments, "chat-b": lone}), "chat-b", Carrier.PERCENT) == {0.10}
    assert live_shares(seen, "chat-c", Carrier.PERCENT) == frozenset()
