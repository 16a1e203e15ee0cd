"""What the one call about the inference key shows, and what it leaves open."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollout.errors import BadAnswer, Unreachable
from rollout.sources.reach import Reach
from tests.unit.clients.http_kit import KEY, http_to, run

LIST = {"object": "list", "data": [{"id": "chat", "object": "model"}, {"id": "embed"}, "odd"]}


def seen(status: int, body: object, route: str = "chat") -> dict[str, Any]:
    reach = Reach(lambda: http_to(lambda _: httpx.Response(status, json=body)))
    return run(reach.perform("probe_key", {"model": route}))


def test_a_listed_route_may_be_used() -> None:
    assert seen(200, LIST) == {"status": 200, "listed": True, "error": ""}
    assert seen(200, LIST, "secret")["listed"] is False


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_a_result_that_quotes_the_server_and_not_the_key(status: int) -> None:
    found = seen(status, {"code": status, "message": f"Invalid authentication credentials {KEY}"})
    assert (found["status"], found["listed"]) == (status, None)
    assert f"GET /v1/models was refused ({status}). Invalid authentication credentials" in found["error"]
    assert KEY not in found["error"]


@pytest.mark.parametrize("body", [{"models": []}, [], {"data": {"chat": 1}}])
def test_another_form_of_list_says_nothing(body: object) -> None:
    assert seen(200, body)["listed"] is None


def test_no_answer_and_no_json_are_errors() -> None:
    with pytest.raises(Unreachable):
        seen(503, {})
    page = Reach(lambda: http_to(lambda _: httpx.Response(200, text="<html>Sign in</html>")))
    with pytest.raises(BadAnswer):
        run(page.perform("probe_key", {"model": "chat"}))
