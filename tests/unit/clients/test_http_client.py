"""Every sick answer is one of three errors, quotes little, and never the key."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import pytest

from rollout.clients.errors import HttpBadAnswer, HttpRefused, HttpUnreachable
from rollout.clients.http import Http, Limits
from rollout.clients.retry import Retry
from rollout.errors import BadAnswer, ExitCode, Refused, ServerError, Unreachable, UsageError
from tests.unit.clients.http_kit import KEY, http_to, run


def answered(status: int, text: str = "", **headers: str) -> Http:
    return http_to(lambda _: httpx.Response(status, text=text, headers=headers))


def said(error: ServerError) -> str:
    return f"{error} {error.message} {error.why} {error.hint} {error!r} {error.__cause__!r}"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "<html><body>Sign in</body></html>"),
        (200, '{"items": [1, 2'),
        (200, "{'single': 'quotes'}"),
        (200, "\x00\x01\x02"),
        (200, '{"weight": NaN}'),
        (200, "[" * 200_000),
        (301, ""),
        (302, "<html>moved</html>"),
        (307, ""),
    ],
)
def test_what_is_not_the_api_is_a_bad_answer(status: int, text: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        run(answered(status, text, location="http://elsewhere.test/").get("/v2/models"))
    assert "GET /v2/models" in caught.value.message
    assert len(caught.value.why) < 400


def test_a_redirect_is_not_followed() -> None:
    hosts = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(302, headers={"location": "http://thief.test/"})

    with pytest.raises(BadAnswer):
        run(http_to(answer).get("/v2/models"))
    assert hosts == ["gpustack.test"]


@pytest.mark.parametrize("status", [400, 404, 405, 409, 413, 422])
def test_a_client_error_is_refused_with_status_method_and_path(status: int) -> None:
    with pytest.raises(Refused) as caught:
        run(answered(status, '{"code": 1, "reason": "Invalid", "message": "no such thing"}').write("PUT", "/v2/models/7", {}))
    error = caught.value
    assert isinstance(error, HttpRefused)
    assert (error.call.method, error.call.path, error.call.status) == ("PUT", "/v2/models/7", status)
    assert error.why == "no such thing"
    assert error.exit_code is ExitCode.REFUSED


@pytest.mark.parametrize(("status", "word"), [(401, "key"), (403, "scope")])
def test_a_wrong_key_comes_with_a_remedy(status: int, word: str) -> None:
    with pytest.raises(Refused) as caught:
        run(answered(status, '{"message": "Invalid authentication credentials"}').get("/v2/models"))
    assert word in caught.value.hint


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_what_may_pass_is_unreachable(status: int) -> None:
    with pytest.raises(Unreachable) as caught:
        run(answered(status, '{"error": {"message": "busy"}}').get("/v2/models"))
    assert caught.value.why == "busy"
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_an_unknown_id_that_the_server_reports_as_500_is_refused() -> None:
    text = '{"code": 500, "reason": "InternalServerError", "message": "Failed: ModelRouteTargets with ids \'9\' not found."}'
    with pytest.raises(Refused) as caught:
        run(answered(500, text).write("PUT", "/v2/model-routes/1", {}))
    assert isinstance(caught.value, HttpRefused)
    assert caught.value.not_found


def test_a_500_page_that_merely_mentions_it_stays_unreachable() -> None:
    with pytest.raises(Unreachable):
        run(answered(500, "<h1>upstream host not found</h1>").get("/v2/models"))


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError])
def test_no_answer_is_unreachable(error: type[httpx.TransportError]) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error("connection to gpustack.test broke")

    with pytest.raises(HttpUnreachable) as caught:
        run(http_to(fail).write("POST", "/v2/models", {}))
    assert caught.value.call.status is None
    assert caught.value.__cause__ is None


class Body(httpx.AsyncByteStream):
    """Sends `size` bytes in parts, with a pause before each, and counts what was taken."""

    def __init__(self, size: int, part: int = 1 << 16, pause: float = 0.0) -> None:
        self.size, self.part, self.pause, self.sent = size, part, pause, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.sent < self.size:
            await asyncio.sleep(self.pause)
            self.sent += self.part
            yield b"1" * self.part


@pytest.mark.parametrize("status", [200, 500])
def test_a_100_mib_body_is_given_up_early(status: int) -> None:
    body = Body(100 << 20)
    tracemalloc.start()
    try:
        with pytest.raises((BadAnswer, Unreachable)):
            run(http_to(lambda _: httpx.Response(status, stream=body)).get("/v2/models"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body.sent <= 17 << 20
    assert peak < 40 << 20


def test_a_body_that_drips_for_ever_ends_at_the_total_limit() -> None:
    body = Body(1 << 30, part=1, pause=0.01)
    with pytest.raises(Unreachable) as caught:
        run(http_to(lambda _: httpx.Response(200, stream=body), limits=Limits(total=0.1)).get("/v2/models"))
    assert "0.1 s" in caught.value.why


def test_cancelling_a_hanging_call_ends_it() -> None:
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError

    async def work() -> None:
        task = asyncio.create_task(http_to(hang).get("/v2/models"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


@pytest.mark.parametrize("status", [200, 400, 401, 500, 302])
def test_an_answer_that_echoes_the_key_does_not_get_it_into_the_error(status: int) -> None:
    text = f"Authorization: Bearer {KEY} {'x' * 5000}"
    with pytest.raises(ServerError) as caught:
        run(answered(status, text).get("/v2/models"))
    assert KEY not in said(caught.value)
    assert len(caught.value.why) <= 300


def test_a_json_error_that_echoes_the_key_is_cleaned_too() -> None:
    with pytest.raises(ServerError) as caught:
        run(answered(400, f'{{"message": "bad key {KEY}"}}').get("/v2/models"))
    assert KEY not in said(caught.value)
    assert "bad key ***" in caught.value.why


def test_the_key_travels_as_bearer_and_is_in_no_repr() -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json=None)

    http = http_to(answer)
    run(http.get("/v2/models"))
    assert seen == [f"Bearer {KEY}"]
    assert KEY not in repr(vars(http)) + repr(vars(http._client))


def test_the_base_path_stays_and_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    paths = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(str(request.url))
        return httpx.Response(200, text="")

    http = http_to(answer)
    assert run(http.get("/v2/models", {"page": 1})) is None
    assert paths == ["http://gpustack.test/base/v2/models?page=1"]
    assert not http._client.trust_env


@pytest.mark.parametrize("url", ["ftp://x", "gpustack:30080", "http://", "http://admin:pw@gpustack.test", ""])
def test_a_url_that_is_none_or_carries_a_password_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Http(url, None, retry=Retry(clock=object()))  # type: ignore[arg-type]
    assert "pw" not in str(caught.value)


def test_an_own_bad_answer_is_the_clients_class() -> None:
    with pytest.raises(HttpBadAnswer):
        run(answered(200, "{").get("/version"))
