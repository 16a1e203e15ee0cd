"""The way back as calls: the order that loses no request, from each place a rollout may be in."""

from __future__ import annotations

from typing import Any

import pytest

from rollout.backends.gpustack_by_hand import put_back, way_back
from rollout.clients.gpustack_rows import Instance, Model, Route, Target
from rollout.domain.byhand import ByHand, WayBack
from rollout.domain.receipts import Receipts, TargetReceipt, take
from rollout.domain.world import RouteView, TargetView
from rollout.errors import NotFound, RollbackImpossible

ID = "3f2a91c07d6e"
MODELS = {"a": 1, "b": 2, "a-r3f2a91c0": 11, "b-r3f2a91c0": 12, "staging-r3f2a91c0": 13}


def receipts(weight: int = 100, scaled: int | None = None, **more: Any) -> Receipts:
    targets = (TargetView(1, 1, "a", weight, "active", {"max_running_requests": 9}),)
    made = take(ID, RouteView(4, "chat", targets, "weighted", {"team": "x"}, None), ("a",), {"a": scaled or weight}, 30, 1800)
    return made.model_copy(update=more)


class Rows:
    """What the server shows: the client's lists."""

    def __init__(self, weights: dict[str, int], *, marked: bool = True, probes: tuple[str, ...] = (), gone: tuple[str, ...] = ()) -> None:
        marker = {"rollout": {"id": ID, "nonce": "n", "receipts": receipts().model_dump(mode="json")}} if marked else {}
        self._models = {n: i for n, i in MODELS.items() if n not in gone}
        rows = [{"id": 4, "name": "chat", "meta": {"team": "x", **marker}}]
        rows += [{"id": 40 + n, "name": name, "meta": {"rollout-probe": "?"}} for n, name in enumerate(probes)]
        self._routes = [Route.model_validate(r) for r in rows]
        found = [
            {"id": 100 + n, "route_id": 4, "route_name": "chat", "model_id": MODELS[name], "weight": w, "state": "active"}
            for n, (name, w) in enumerate(weights.items())
        ]
        self._targets = [Target.model_validate(t) for t in found]

    async def version(self) -> str:
        return "v2.3.0"

    async def routes(self) -> list[Route]:
        return self._routes

    async def targets(self) -> list[Target]:
        return self._targets

    async def models(self) -> list[Model]:
        return [Model.model_validate({"id": i, "name": n, "replicas": 1}) for n, i in self._models.items()]

    async def instances(self) -> list[Instance]:
        return []

    async def workers(self) -> list[Any]:
        return []


def walk(rows: Rows, found: Receipts | None = None) -> WayBack:
    import asyncio

    return asyncio.run(way_back(rows, "chat", found))  # type: ignore[arg-type]


def lines(way: WayBack) -> list[str]:
    return [f"{c.method} {c.path}" for c in way.calls]


def test_on_a_rung_the_canary_leaves_only_once_stable_is_active_and_answers() -> None:
    way = walk(
        Rows({"a": 100, "a-r3f2a91c0": 25}, probes=("probe-r3f2a91c0-0-stable", "probe-r3f2a91c0-0-canary"), gone=("staging-r3f2a91c0",))
    )
    assert lines(way) == [
        "GET /v2/model-route-targets?route_id=4&model_id=1",
        "PUT /v2/model-routes/4",
        "POST /v1/chat/completions",
        "DELETE /v2/model-route-targets/101",
        "GET /v2/model-route-targets?route_id=4&model_id=11",
        "POST /v1/chat/completions",
        "DELETE /v2/model-routes/40",
        "DELETE /v2/model-routes/41",
        "DELETE /v2/models/11",
        "PUT /v2/model-routes/4",
    ]
    assert way.calls[1].body == {"name": "chat"}
    assert way.calls[2].body["model"] == "probe-r3f2a91c0-0-stable"
    assert way.calls[4].never
    assert way.calls[8].pause
    assert way.calls[9].body == {"name": "chat", "meta": {"team": "x"}}


def test_at_a_hundred_percent_stable_joins_first_with_everything_it_had() -> None:
    way = walk(Rows({"a-r3f2a91c0": 100}, probes=("probe-r3f2a91c0-0-stable",)))
    assert lines(way)[:3] == ["POST /v1/chat/completions", "PUT /v2/model-routes/4", "GET /v2/model-route-targets?route_id=4&model_id=1"]
    assert way.calls[1].body["targets"] == [
        {"id": 100, "model_id": 11, "weight": 100},
        {"model_id": 1, "weight": 100, "max_running_requests": 9},
    ]
    assert lines(way).index("PUT /v2/model-routes/4") < lines(way).index("DELETE /v2/model-route-targets/100")
    assert [line for line in lines(way) if line.startswith("DELETE /v2/models")] == ["DELETE /v2/models/11", "DELETE /v2/models/13"]
    assert [c.pause for c in way.calls if c.path.startswith("/v2/models/")] == [True, False], "waited for once"


def test_a_weight_that_was_too_coarse_comes_back_by_a_twin() -> None:
    way = walk(Rows({"a": 100, "a-r3f2a91c0": 10}), receipts(1, 100))
    at = lines(way).index("GET /v2/model-routes/4")
    assert way.calls[at - 1].body["targets"] == [{"id": 100, "model_id": 1, "weight": 100}, {"model_id": 1, "weight": 1}]
    assert lines(way)[at : at + 3] == ["GET /v2/model-routes/4", "PUT /v2/model-routes/4", "DELETE /v2/model-route-targets/100"]


def test_before_anything_was_attached_only_the_marker_goes() -> None:
    way = walk(Rows({"a": 100}, gone=("a-r3f2a91c0", "b-r3f2a91c0", "staging-r3f2a91c0")))
    assert lines(way) == ["PUT /v2/model-routes/4"]
    assert walk(Rows({"a": 100}, marked=False, gone=("a-r3f2a91c0", "staging-r3f2a91c0")), receipts()).calls == ()


def test_a_canary_that_a_person_made_is_not_deleted() -> None:
    pair = receipts().pairs[0].model_copy(update={"canary": "b", "keep": True, "adopted": TargetReceipt(deployment="b", weight=10)})
    way = walk(Rows({"a": 100, "b": 10}, gone=("staging-r3f2a91c0",)), receipts(pairs=(pair,)))
    assert "DELETE /v2/model-route-targets/101" in lines(way)
    assert not any(line.startswith("DELETE /v2/models") for line in lines(way))


def test_without_a_marker_or_without_the_old_side_there_is_no_way() -> None:
    with pytest.raises(NotFound):
        walk(Rows({"a": 100}, marked=False))
    with pytest.raises(RollbackImpossible, match="deployment a is gone"):
        walk(Rows({"a-r3f2a91c0": 100}, gone=("a",)))


def test_a_stable_only_is_put_back_by_one_list_write() -> None:
    rows = [
        {"id": 11, "model_id": 1, "deployment": "a", "weight": 100, "extra": {"max_running_requests": 9}},
        {"id": 12, "model_id": 2, "deployment": "b", "weight": 5, "extra": {}},
    ]
    call = put_back("chat", 4, rows, ["a"])
    assert isinstance(call, ByHand)
    assert call.body == {
        "name": "chat",
        "targets": [{"id": 11, "model_id": 1, "weight": 100, "max_running_requests": 9}, {"model_id": 2, "weight": 5}],
    }
