"""Tried again: only what may pass, bounded in attempts and in time, and never a write that is not idempotent."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import httpx
import pytest

from rollout.clients.errors import Call, HttpRefused, HttpUnreachable
from rollout.clients.retry import Retry
from rollout.errors import Refused, Unreachable
from tests.unit.clients.http_kit import JumpClock, http_to, run


def failing(
    times: int, error: Exception, clock: JumpClock | None = None, takes: float = 0.0
) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        if clock:
            clock.seconds += takes
        if len(calls) <= times:
            raise error
        return "done"

    return call, calls


def busy(retry_after: float | None = None) -> HttpUnreachable:
    return HttpUnreachable(Call("GET", "/x", 503), "busy", retry_after=retry_after)


def test_it_goes_on_until_it_works() -> None:
    clock = JumpClock()
    call, calls = failing(2, busy())
    assert run(Retry(clock, rng=random.Random(1)).run(call)) == "done"
    assert len(calls) == 3
    assert len(clock.slept) == 2


def test_attempts_are_bounded_and_the_last_error_is_raised() -> None:
    call, calls = failing(99, busy())
    with pytest.raises(Unreachable, match="GET /x answered 503"):
        run(Retry(JumpClock(), attempts=4).run(call))
    assert len(calls) == 4


def test_time_is_bounded_also_when_each_attempt_is_slow() -> None:
    clock = JumpClock()
    call, calls = failing(99, busy(), clock, takes=9.0)
    with pytest.raises(Unreachable):
        run(Retry(clock, attempts=10, seconds=20.0).run(call))
    assert len(calls) == 3
    assert clock.seconds < 30


def test_what_was_refused_is_not_tried_again() -> None:
    call, calls = failing(99, HttpRefused(Call("GET", "/x", 404), "no"))
    with pytest.raises(Refused):
        run(Retry(JumpClock()).run(call))
    assert len(calls) == 1


def test_the_servers_word_decides_the_wait() -> None:
    clock = JumpClock()
    call, _ = failing(1, busy(retry_after=7.0))
    run(Retry(clock).run(call))
    assert clock.slept == [7.0]


def test_a_wait_that_would_end_too_late_is_not_begun() -> None:
    clock = JumpClock()
    call, calls = failing(9, busy(retry_after=3600.0))
    with pytest.raises(Unreachable):
        run(Retry(clock).run(call))
    assert (len(calls), clock.slept) == (1, [])


def test_waits_grow_and_differ_between_engines() -> None:
    def waits(seed: int) -> list[float]:
        clock = JumpClock()
        call, _ = failing(99, busy())
        with pytest.raises(Unreachable):
            run(Retry(clock, attempts=6, seconds=1e9, rng=random.Random(seed)).run(call))
        return clock.slept

    first, second = waits(1), waits(2)
    assert first != second
    assert all(0.1 <= w <= 4.0 for w in (*first, *second))
    assert max(first[3:]) > first[0]


def test_waiting_can_be_turned_off() -> None:
    clock = JumpClock()
    call, _ = failing(3, busy(retry_after=9.0))
    run(Retry(clock, waiting=False).run(call))
    assert clock.seconds == 0


def sick(times: int) -> tuple[Callable[[httpx.Request], httpx.Response], list[str]]:
    methods: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return httpx.Response(503 if len(methods) <= times else 200, json={"message": "later"}, headers={"retry-after": "1"})

    return answer, methods


@pytest.mark.parametrize(("method", "repeat", "sent"), [("POST", False, 1), ("PUT", False, 1), ("DELETE", False, 1), ("PUT", True, 3)])
def test_a_write_is_sent_once_unless_repeating_it_is_harmless(method: str, repeat: bool, sent: int) -> None:
    answer, methods = sick(2)
    http = http_to(answer, attempts=5)
    if repeat:
        run(http.write(method, "/v2/x", {}, repeat=True))
    else:
        with pytest.raises(Unreachable):
            run(http.write(method, "/v2/x", {}))
    assert methods == [method] * sent


def test_a_read_is_tried_again_with_the_servers_wait() -> None:
    clock = JumpClock()
    answer, methods = sick(2)
    run(http_to(answer, clock=clock, attempts=5).get("/v2/x"))
    assert methods == ["GET"] * 3
    assert clock.slept == [1.0, 1.0]
