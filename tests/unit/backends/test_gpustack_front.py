"""Whether a gateway stands at the inference URL, from what answers there."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from rollout.backends.gpustack_front import Front
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clock import SystemClock


def seen(answer: httpx.Response | None, *, apart: bool, said: str = "auto") -> bool | None:
    """What is made of one answer; None: nobody answers."""

    def reply(request: httpx.Request) -> httpx.Response:
        assert "authorization" not in request.headers
        if answer is None:
            raise httpx.ConnectError("refused", request=request)
        return answer

    async def look() -> bool | None:
        front = Front(
            Http("http://inference.lan", None, retry=Retry(SystemClock()), transport=httpx.MockTransport(reply)), apart=apart, said=said
        )
        try:
            return await front.gateway()
        finally:
            await front.aclose()

    return asyncio.run(look())


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("headers", [{"server": "istio-envoy"}, {"X-Envoy-Upstream-Service-Time": "3"}, {"Server": "Envoy"}])
@pytest.mark.parametrize("status", [200, 404, 503])
def test_envoy_names_itself_in_every_answer(headers: dict[str, str], status: int, apart: bool) -> None:
    assert seen(httpx.Response(status, headers=headers), apart=apart) is True


def test_the_management_url_without_envoy_is_the_servers_own_proxy() -> None:
    assert seen(httpx.Response(200, headers={"server": "uvicorn"}), apart=False) is False


def test_another_address_that_shows_nothing_leaves_it_open() -> None:
    assert seen(httpx.Response(200, headers={"server": "nginx"}), apart=True) is None


def test_nobody_there_leaves_it_open() -> None:
    assert seen(None, apart=False) is None


@pytest.mark.parametrize(("said", "expected"), [("enabled", True), ("disabled", False)])
def test_the_plans_word_is_not_doubted(said: str, expected: bool) -> None:
    assert seen(None, apart=True, said=said) is expected
