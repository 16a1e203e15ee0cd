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

    def __init__(
        self,
        weights: dict[str, int],
        *,
        marked: bool = True,
        probes: tuple[str, ...] = (),
        gone: tuple[str, ...] = (),
        parked: tuple[str, ...] = (),
        version: str = "v2.3.0",
    ) -> None:
        self._parked, self._version = parked, version
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
        return self._version

    async def routes(self) -> list[Route]:
        return self._routes

    async def targets(self) -> list[Target]:
        return self._targets

    async def models(self) -> list[Model]:
        return [Model.model_validate({"id": i, "name": n, "replicas": int(n not in self._parked)}) for n, i in self._models.items()]

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
        "GET /v2/model-route-targets?model_id=11",
        "DELETE /v2/models/11",
        "PUT /v2/model-routes/4",
    ]
    assert way.calls[1].body == {"name": "chat"}
    assert way.calls[2].body["model"] == "probe-r3f2a91c0-0-stable"
    assert way.calls[4].never
    assert way.calls[8].pause
    assert way.calls[8].never, "nobody else's route sends to it"
    assert way.calls[10].body == {"name": "chat", "meta": {"team": "x"}}


def test_at_a_hundred_percent_stable_joins_first_with_everything_it_had() -> None:
    way = walk(Rows({"a-r3f2a91c0": 100}, probes=("probe-r3f2a91c0-0-stable",)))
    assert lines(way)[:3] == ["POST /v1/chat/completions", "PUT /v2/model-routes/4", "GET /v2/model-route-targets?route_id=4&model_id=1"]
    assert way.calls[1].body["targets"] == [
        {"id": 100, "model_id": 11, "weight": 100},
        {"model_id": 1, "weight": 100, "max_running_requests": 9},
    ]
    assert lines(way).index("PUT /v2/model-routes/4") < lines(way).index("DELETE /v2/model-route-targets/100")
    assert [line for line in lines(way) if line.startswith("DELETE /v2/models")] == ["DELETE /v2/models/11", "DELETE /v2/models/13"]
    assert [c.pause for c in way.calls if c.path.startswith("/v2/model-route-targets?model_id=")] == [True, False], "waited for once"


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


CONVERTED = {"converted": {"a": 100}, "targets": (TargetReceipt(deployment="a", weight=0),)}


def test_a_parked_stable_is_waited_for_before_anything_else() -> None:
    """The write would carry the whole spec, and a spec may hold secrets."""
    first = walk(Rows({"a-r3f2a91c0": 100}, parked=("a",))).calls[0]
    assert (first.method, first.path, first.until) == ("GET", "/v2/models/1", '"ready_replicas": ?1[,}]')
    assert first.why == "a is parked: set its replicas to 1 in GPUStack now; this waits until it is loaded"


def test_a_converted_route_gets_its_weights_back_in_one_write_after_the_canary_left() -> None:
    calls = walk(Rows({"a": 100, "a-r3f2a91c0": 100}), receipts(**CONVERTED)).calls
    back = next(n for n, c in enumerate(calls) if c.why == "the route balances again as it was found")
    assert calls[back].body == {"name": "chat", "targets": [{"id": 100, "model_id": 1, "weight": 0}]}
    assert any(c.method == "DELETE" and "101" in c.path for c in calls[:back])
    assert not any("too coarse" in c.why or "second target" in c.why for c in calls)


@pytest.mark.parametrize("version", ["v2.3.0", "v2.2.3"])
@pytest.mark.parametrize("found", [receipts(**CONVERTED), receipts(weight=1, scaled=100)], ids=["converted", "made finer"])
def test_a_target_that_somebody_else_set_meanwhile_is_never_overwritten(found: Receipts, version: str) -> None:
    """The canary leaves, and there it ends: the marker stays, since the rest is still to be taken back."""
    calls = walk(Rows({"a": 100, "a-r3f2a91c0": 100, "b": 77}, version=version), found).calls
    assert any("leaves the route" in c.why for c in calls)
    assert calls[-1].method == "GET"
    assert calls[-1].why.startswith("somebody else set b 77 on this route")
    lists = [c.body["targets"] for c in calls if c.method == "PUT" and "targets" in c.body]
    assert all({"id": 102, "model_id": 2, "weight": 77} in rows for rows in lists)


def test_on_2_2_a_target_leaves_by_a_list_without_it() -> None:
    calls = walk(Rows({"a": 100, "a-r3f2a91c0": 100}, version="v2.2.3")).calls
    leaves = next(c for c in calls if "leaves the route" in c.why)
    assert (leaves.method, leaves.path) == ("PUT", "/v2/model-routes/4")
    assert [row["id"] for row in leaves.body["targets"]] == [100]


@pytest.mark.parametrize(("version", "more"), [("v2.2.3", {}), ("v2.3.0", CONVERTED)])
def test_where_the_new_ids_are_needed_it_is_printed_again(version: str, more: dict[str, Any]) -> None:
    """Stable is back and active by then, so nothing is in a hurry."""
    calls = walk(Rows({"a-r3f2a91c0": 100}, version=version), receipts(**more)).calls
    assert calls[-1].why.startswith("the rest needs the ids of the targets that just came")
    assert not any(c.method == "DELETE" for c in calls)


def test_on_2_2_a_weight_that_was_made_finer_comes_back_in_two_prints() -> None:
    first = walk(Rows({"a": 1000}, version="v2.2.3"), receipts(scaled=1000)).calls
    assert [c.method for c in first] == ["PUT", "GET", "PUT", "GET"]
    assert first[-1].why.startswith("the rest needs the ids")
    there = Rows({"a": 1000}, version="v2.2.3")
    twin = {"id": 109, "route_id": 4, "route_name": "chat", "model_id": 1, "weight": 100, "state": "active"}
    there._targets.append(Target.model_validate(twin))
    then = walk(there, receipts(scaled=1000)).calls
    assert [row["id"] for row in then[0].body["targets"]] == [109]
    assert then[-1].why == "remove the marker; everything else stays"
