"""Whole rollouts on routes as people make them, on the sandbox over real HTTP: forward, and back from the ladder.

What each write does to such a route is said by the contract tests, on the real server too; here the engine decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.receipts import receipts_of
from rollout.domain.state import Phase, RolloutState
from tests.contract.site import Site, unique
from tests.e2e.inside import Inside, keys
from tests.e2e.support import VOLATILE, Case, Row, case, opened

CONVERT = {"route: {name: ": "route: {convert_to_weighted: true, accept_loss: true, name: "}
POET = {"lora_list": [{"lora_name": "poet", "source": "local_path", "local_path": "/loras/poet"}]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A sandbox for all tests of this file."""
    with opened("sandbox", tmp_path_factory.mktemp("sandbox"), ttft_base=0.005) as found, keys(found):
        yield found


def put_list(made: Case, *more: Row, **stable: Any) -> None:
    """Fields on stable's target, and more targets beside it."""
    own = made.site.target_list(made.row["id"])[0]
    entry = {"id": own["id"], "model_id": own["model_id"], "weight": own["weight"], **stable}
    body = {"name": made.route, "targets": [entry, *more]}
    made.site.api.put(f"/v2/model-routes/{made.row['id']}", json=body).raise_for_status()
    made.site.until(lambda: all(t["state"] == "active" for t in made.site.target_list(made.row["id"])), "every target active")


def adapter(made: Case) -> None:
    put_list(made, overridden_model_name=f"{made.stable}:poet", max_running_requests=5)


def company(made: Case) -> None:
    """A foreign deployment, a fallback and a provider beside stable; the route in its best clothes."""
    provider = {"name": unique("provider"), "config": {"type": "openai"}, "api_tokens": [{"input": "x"}], "models": [{"name": "gpt-x"}]}
    row = made.site.api.post("/v2/model-providers", json=provider).json()
    made.site.forget("model-providers", row["id"])
    foreign, spare = made.site.deploy(worker="spark-02"), made.site.deploy(worker="spark-02")
    put_list(
        made,
        {"model_id": foreign["id"], "weight": 50, "max_running_requests": 9},
        {"model_id": spare["id"], "weight": 0, "fallback_status_codes": ["5xx"]},
        {"provider_id": row["id"], "weight": 70, "overridden_model_name": "gpt-x"},
    )
    dress = {"name": made.route, "description": "for the search team", "categories": ["llm", "unknown"], "generic_proxy": True}
    made.site.api.put(f"/v2/model-routes/{made.row['id']}", json=dress).raise_for_status()


def nothing(_made: Case) -> None:
    """As the server made it."""


@dataclass(frozen=True)
class Shape:
    """How a route is made, and how stable's successor stands in it after a promotion: fields of its target, by its name."""

    dress: Callable[[Case], None] = nothing
    deployed: Row = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)
    successor: Callable[[str], Row] = lambda _name: {}
    weight: int = 100


SHAPES = {
    "adapter": Shape(adapter, POET, successor=lambda name: {"overridden_model_name": f"{name}:poet", "max_running_requests": 5}),
    "company": Shape(company),
    "made by a deployment": Shape(deployed={"enable_model_route": True}),
    "scored": Shape(deployed={"enable_model_route": True, "replicas": 2}, changes=CONVERT),
}
SERVERS = {"created_model_id", "lb_mode", "plugins"}
"""the server's own: which deployment brought the route along is forgotten with its target; the mode is told from the first write on"""


def shown(made: Case) -> Row:
    """The route's own fields and everybody's targets by id."""
    route = {k: v for k, v in made.site.route(made.row["id"]).items() if k not in {*VOLATILE, *SERVERS}}
    targets = {t["id"]: {k: v for k, v in t.items() if k not in VOLATILE} for t in made.site.target_list(made.row["id"])}
    return {"route": route, "targets": targets}


def climb(inside: Inside, rollout_id: str, until: Callable[[RolloutState], bool] = lambda _s: False) -> RolloutState:
    """Go on; a person promotes after the first window, since nobody else asks this route."""
    inside.run(rollout_id, until=lambda s: int((s.fact("0.seen") or {}).get("id", 0)) > 0)
    inside.say(rollout_id, "promote")
    return inside.run(rollout_id, until=until)


@pytest.mark.parametrize("name", SHAPES)
def test_a_promotion_changes_stables_target_alone(site: Site, tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    with case(site, tmp_path, shape.changes, deployed=shape.deployed) as made:
        shape.dress(made)
        before = shown(made)
        mine = next(key for key, row in before["targets"].items() if row.get("model_id") == made.deployment["id"])
        inside = Inside(made)
        state = climb(inside, inside.start())
        assert state.phase is Phase.COMPLETED, inside.events[-1][0].text
        after = shown(made)
        assert after["route"] == before["route"]
        others = {key: row for key, row in before["targets"].items() if key != mine}
        assert {key: after["targets"].get(key) for key in others} == others
        (new,) = (row for key, row in after["targets"].items() if key not in others)
        successor = receipts_of(state).pairs[0].canary  # type: ignore[union-attr]
        assert made.names()[new["model_id"]] == successor
        extra = {k: v for k, v in new.items() if k not in ("id", "name", "route_name", "route_id", "model_id", "created_at", "weight")}
        assert (new["weight"], extra) == (shape.weight, shape.successor(successor))


@pytest.mark.parametrize("name", SHAPES)
def test_going_back_from_the_ladder_restores_all_of_it(site: Site, tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    with case(site, tmp_path, shape.changes, deployed=shape.deployed) as made:
        shape.dress(made)
        before, inside = shown(made), Inside(made)
        rollout_id = inside.start()
        climb(inside, rollout_id, until=lambda s: s.fact("0.handed") is not None)
        inside.say(rollout_id, "rollback")
        state = inside.run(rollout_id)
        assert state.phase is Phase.ROLLED_BACK, inside.events[-1][0].text
        after = shown(made)
        assert after["route"] == before["route"]
        born = ("id", "name", "created_at")
        rows = [sorted(str({k: v for k, v in r.items() if k not in born}) for r in seen["targets"].values()) for seen in (before, after)]
        assert rows[0] == rows[1]
        mine = made.deployment["id"]
        kept = {key: row for key, row in before["targets"].items() if row.get("model_id") != mine}
        assert {key: row for key, row in after["targets"].items() if row.get("model_id") != mine} == kept
        assert made.made() == []
