"""Lists are complete whatever the order of pages, and a wrong type is named, not guessed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rollout.clients.gpustack import GPUStack
from rollout.errors import BadAnswer, Refused
from tests.unit.clients.http_kit import http_to, run


def model(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "name": f"m-{number}", "replicas": 1, "ready_replicas": 1, "state": "running", **fields}


def page_of(rows: list[Any], page: int, per_page: int) -> dict[str, Any]:
    pages = -(-len(rows) // per_page)
    start = (page - 1) * per_page
    return {
        "items": rows[start : start + per_page],
        "pagination": {"page": page, "perPage": per_page, "total": len(rows), "totalPage": pages},
    }


def listing(rows: Callable[[int], list[Any]]) -> tuple[GPUStack, list[int]]:
    """A server whose list is `rows(number of calls so far)`."""
    calls: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(int(request.url.params["page"]))
        return httpx.Response(200, json=page_of(rows(len(calls)), calls[-1], int(request.url.params["perPage"])))

    return GPUStack(http_to(answer)), calls


@pytest.mark.parametrize("count", [0, 1, 100, 101, 350])
def test_a_list_is_complete_and_in_order_of_id(count: int) -> None:
    rows = [model(n) for n in range(count)]
    random.Random(count).shuffle(rows)
    client, calls = listing(lambda _: rows)
    assert [m.id for m in run(client.models())] == list(range(count))
    assert calls == list(range(1, max(1, -(-count // 100)) + 1))


def test_a_list_that_moves_while_it_is_read_is_read_again() -> None:
    rows = [model(n) for n in range(150)]
    moved = [rows[149], *rows[:149]]  # the last row was updated: it jumps to page 1, another one is seen twice
    client, calls = listing(lambda call: rows if call == 1 else moved)
    assert len(run(client.models())) == 150
    assert calls == [1, 2, 1, 2]


def test_a_list_that_never_adds_up_is_a_bad_answer() -> None:
    client, _ = listing(lambda call: [model(n) for n in range(100 + call)])
    with pytest.raises(BadAnswer, match="/v2/models"):
        run(client.models())


def test_a_list_of_endless_pages_is_a_bad_answer() -> None:
    body = {"items": [], "pagination": {"page": 1, "perPage": 100, "total": 10**9, "totalPage": 10**7}}
    client = GPUStack(http_to(lambda _: httpx.Response(200, json=body)))
    with pytest.raises(BadAnswer) as caught:
        run(client.models())
    assert "totalPage" in caught.value.why


def answering(body: Any) -> GPUStack:
    return GPUStack(http_to(lambda _: httpx.Response(200, json=body)))


PAGE = {"page": 1, "perPage": 100, "total": 1, "totalPage": 1}


@pytest.mark.parametrize(
    ("row", "key"),
    [
        (model(1, replicas="1"), "items.0.replicas"),
        (model(1, name=None), "items.0.name"),
        (model(1, ready_replicas=1.5), "items.0.ready_replicas"),
        ({"id": 1, "name": "m"}, "items.0.replicas"),
        ("text", "items.0"),
        ([], "items.0"),
        (None, "items.0"),
    ],
)
def test_a_wrong_type_or_a_missing_key_is_named(row: Any, key: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        run(answering({"items": [row], "pagination": PAGE}).models())
    assert f"`{key}" in caught.value.why


@pytest.mark.parametrize(
    "body", [None, [], "x", 1, {}, {"items": {}}, {"items": [], "pagination": None}, {"items": [], "pagination": {"total": "1"}}]
)
def test_a_list_without_its_frame_is_a_bad_answer(body: Any) -> None:
    with pytest.raises(BadAnswer):
        run(answering(body).models())


def test_a_weight_as_text_is_not_taken_for_a_number() -> None:
    row = {"id": 1, "route_id": 1, "route_name": "r", "model_id": 1, "weight": "90", "state": "active"}
    with pytest.raises(BadAnswer) as caught:
        run(answering({"items": [row], "pagination": PAGE}).targets())
    assert "items.0.weight" in caught.value.why
    assert "90" not in caught.value.why


def test_unknown_fields_are_ignored_and_kept_as_they_were_sent() -> None:
    row = model(1, brand_new={"a": [1]})
    models = run(answering({"items": [row], "pagination": PAGE}).models())
    assert models[0].raw == row


def test_heartbeats_are_read_from_text() -> None:
    row = {
        "id": 1,
        "name": "w",
        "state": "ready",
        "heartbeat_time": "2026-01-01T00:00:00Z",
        "status": {"memory": {"total": 0, "used": None}},
    }
    worker = run(answering({"items": [row], "pagination": PAGE}).workers())[0]
    assert worker.heartbeat_time is not None
    assert worker.status is not None


@pytest.mark.parametrize("body", [{}, {"version": 2}, {"version": None}, [], "v2.3.0"])
def test_a_version_that_is_none_is_a_bad_answer(body: Any) -> None:
    with pytest.raises(BadAnswer):
        run(answering(body).version())


def test_writes_send_what_the_contract_wants() -> None:
    sent: list[tuple[str, str, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.method, request.url.path, request.content))
        return httpx.Response(200, json={"id": 4, "name": "r"})

    client = GPUStack(http_to(answer))
    run(client.drop_cache(4, "r"))
    run(client.set_private(4, [7]))
    run(client.put_target(6, {"model_id": 1, "weight": 90}))
    run(client.delete_target(6))
    assert sent == [
        ("PUT", "/base/v2/model-routes/4", b'{"name":"r"}'),
        (
            "POST",
            "/base/v2/model-routes/4/access",
            b'{"access_policy":"allowed_principals","principals":[{"principal_type":"user","principal_id":7}]}',
        ),
        ("PUT", "/base/v2/model-route-targets/6", b'{"model_id":1,"weight":90}'),
        ("DELETE", "/base/v2/model-route-targets/6", b""),
    ]


def test_a_taken_name_is_told_apart_from_other_refusals() -> None:
    client = GPUStack(http_to(lambda _: httpx.Response(409, json={"code": 409, "reason": "AlreadyExists", "message": "exists"})))
    with pytest.raises(Refused) as caught:
        run(client.create_model({"name": "m"}))
    assert getattr(caught.value, "conflict", False)
