"""The timed client on a real socket: whole answers, stamps, kept connections, and every way in which a server can let it down."""

import asyncio

import pytest
from wire_server import WireServer, chunked, page

from rollout.clients.sse import Call, Failure, TimedClient
from rollout.clock import SystemClock
from rollout.errors import UsageError


def talk(server, *calls, timeout=5.0, cap=1 << 20, pause=0.0):
    """The exchanges of the calls, one after the other over one client."""

    async def go():
        async with server, TimedClient(SystemClock()) as client:
            done = []
            for method, path, body in calls:
                call = Call(method, server.url + path, {"Authorization": "Bearer top-secret"}, body)
                done.append(await client.exchange(call, timeout=timeout, cap=cap))
                await asyncio.sleep(pause)
            return done

    return asyncio.run(go())


GET = ("GET", "/metrics?x=1", b"")
POST = ("POST", "/v1/chat/completions", b'{"a": 1}')


def test_a_call_goes_out_whole_and_its_answer_comes_back_whole():
    server = WireServer(page("hello"))
    (answer,) = talk(server, POST)
    assert (answer.status, answer.body, answer.failure) == (200, b"hello", None)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    request = server.requests[0]
    assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert request.endswith(b'\r\n\r\n{"a": 1}')
    assert f"host: 127.0.0.1:{server.port}".encode() in request.lower()


def test_every_piece_is_stamped_when_it_arrives():
    (answer,) = talk(WireServer(chunked(b"one", b"two", b"three", gap=0.05)), GET)
    times = [at - answer.scheduled for at, _ in answer.pieces]
    assert [data for _, data in answer.pieces] == [b"one", b"two", b"three"]
    assert times == pytest.approx([0.05, 0.10, 0.15], abs=0.04)
    assert 0 <= answer.sent - answer.scheduled < 0.03
    assert answer.ended >= answer.pieces[-1][0]


def test_connections_are_kept_for_the_next_call():
    server = WireServer(chunked(b"x"))
    assert all(answer.body == b"x" for answer in talk(server, GET, POST, GET))
    assert server.connections == 1


def test_a_body_that_ends_with_the_connection_is_whole():
    reply = [b"HTTP/1.1 200 OK\r\n\r\nall of it", None]
    assert [(a.body, a.failure) for a in talk(WireServer(reply), GET, GET)] == [(b"all of it", None)] * 2


def test_a_kept_connection_that_was_closed_is_asked_again_on_a_fresh_one_and_said_so():
    server = WireServer(page("first"), [None], page("second"))
    first, second = talk(server, POST, POST)
    assert (first.body, first.retried) == (b"first", False)
    assert (second.body, second.retried, second.failure) == (b"second", True, None)
    assert len(server.requests) == 3


def test_a_connection_that_closed_while_idle_is_not_used():
    server = WireServer([*page("first"), None], page("second"))
    _, second = talk(server, GET, GET, pause=0.05)
    assert (second.body, second.retried) == (b"second", False)
    assert server.connections == 2


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ([None], Failure.CUT),
        (chunked(b"data: x\n\n", end=False), Failure.CUT),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", None], Failure.CUT),
        ([b"garbage\r\n\r\n"], Failure.CUT),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], Failure.CUT),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", 9.0], Failure.TIMEOUT),
        ([9.0], Failure.TIMEOUT),
        (page(b"x" * 3000), Failure.TOO_LARGE),
    ],
    ids=["no-answer", "no-last-chunk", "short-body", "not-http", "bad-chunk", "half-a-body", "silence", "too-large"],
)
def test_what_a_server_does_is_said_and_never_raised(reply, failure):
    (answer,) = talk(WireServer(reply), GET, timeout=0.3, cap=2000)
    assert answer.failure is failure
    assert answer.detail
    assert answer.ended is not None
    assert "top-secret" not in repr(answer)


def test_what_arrived_before_the_cut_is_kept():
    (answer,) = talk(WireServer(chunked(b"data: x\n\n", end=False)), GET)
    assert answer.body == b"data: x\n\n"


def test_after_a_time_out_the_connection_is_not_used_again():
    server = WireServer([1.0, *page("late")], page("right"))
    slow, fast = talk(server, GET, GET, timeout=0.2)
    assert slow.failure is Failure.TIMEOUT
    assert (fast.body, server.connections) == (b"right", 2)


def test_nobody_listening_is_a_connect_error():
    async def go():
        async with WireServer([None]) as server:
            url = server.url
        async with TimedClient(SystemClock()) as client:
            return await client.exchange(Call("GET", url), timeout=2)

    answer = asyncio.run(go())
    assert (answer.failure, answer.status) == (Failure.CONNECT, None)
    assert "refused" in answer.detail.lower()


def test_connections_opened_ahead_are_used_and_not_opened_twice():
    async def go():
        server = WireServer([0.02, *page("x")])
        async with server, TimedClient(SystemClock()) as client:
            await client.open(server.url, 3)
            await client.open(server.url, 3)
            await asyncio.gather(*(client.exchange(Call("GET", server.url + "/"), timeout=2) for _ in range(3)))
            return server.connections

    assert asyncio.run(go()) == 3


def test_a_cancelled_call_closes_its_connection():
    async def go():
        server = WireServer([9.0])
        async with server, TimedClient(SystemClock()) as client:
            task = asyncio.create_task(client.exchange(Call("GET", server.url + "/"), timeout=9))
            await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return client._usable(next(iter(client._kept)))

    assert asyncio.run(go()) == []


@pytest.mark.parametrize("url", ["ftp://h/x", "http:///x", "http://user:pw@h/", "http://h:99999/", "h:80"])
def test_a_url_that_cannot_be_called_is_refused_without_showing_it(url):
    with pytest.raises(UsageError) as caught:
        asyncio.run(TimedClient(SystemClock()).exchange(Call("GET", url), timeout=1))
    assert "pw" not in f"{caught.value} {caught.value.why}"


def test_a_call_does_not_show_its_key():
    assert "top-secret" not in repr(Call("GET", "http://h/", {"Authorization": "Bearer top-secret"}, b"top-secret"))
