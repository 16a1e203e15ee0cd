"""One HTTP/1.1 exchange, timed: every byte of an answer is stamped when it arrives, before anything looks at it.

Server-sent events come back raw, as (time, bytes); what they say is read later, so that a slow reader never delays another
stream's stamp. It speaks on the loop's own transport because a connection pool's bookkeeping shows up as latency at some
tens of streams. This room interprets no answer, follows no redirect, reads no proxy variables, and keeps no key.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

import h11

from rollout.clock import Clock
from rollout.errors import UsageError

MIB = 1 << 20
CONNECT = 5.0
"""seconds for name, connection and TLS"""
IDLE = 4.0
"""seconds a kept connection is used again; servers close theirs after 5"""


class Failure(StrEnum):
    """Why an exchange has no whole answer."""

    CONNECT = "connect_error"
    TIMEOUT = "timeout"
    CUT = "truncated"
    TOO_LARGE = "too_large"


@dataclass(frozen=True)
class Call:
    """What to send. `headers` carry the key, which is why a Call is never printed: its repr holds neither headers nor body."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass
class Exchange:
    """What came back. Times are seconds of `Clock.monotonic`; `sent` is the last byte handed to the socket."""

    scheduled: float
    sent: float | None = None
    ended: float | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    failure: Failure | None = None
    detail: str = ""
    retried: bool = False
    """a kept connection turned out to be closed, and the call was sent once more on a fresh one"""

    @property
    def body(self) -> bytes:
        """All that was received of the body."""
        return b"".join(piece for _, piece in self.pieces)


@dataclass(frozen=True)
class _Origin:
    """Scheme, host and port: connections are kept for each."""

    secure: bool
    host: str
    port: int


@dataclass(frozen=True)
class _Order:
    """A call made ready for the wire."""

    origin: _Origin
    request: h11.Request
    body: bytes
    cap: int


class _Wire(asyncio.Protocol):
    """One connection with at most one exchange on it."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._done: asyncio.Future[None] | None = None
        self._room = 0
        self.closed = False
        self.idle_since = 0.0

    def begin(self, order: _Order, exchange: Exchange) -> asyncio.Future[None]:
        """Sends the call; the future ends with the answer or with its failure, never with an exception."""
        transport = self._transport
        assert transport is not None  # set before the connection is handed out
        self._exchange, self._room = exchange, order.cap
        self._done = asyncio.get_running_loop().create_future()
        parts = [self._http.send(event) for event in (order.request, h11.Data(data=order.body), h11.EndOfMessage())]
        transport.write(b"".join(part for part in parts if part))
        exchange.sent = self._now()
        return self._done

    def abort(self) -> None:
        """Closes at once and lets the exchange go as it is."""
        self.closed = True
        self._exchange = self._done = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # a stream protocol is given a stream transport

    def data_received(self, data: bytes) -> None:
        now = self._now()  # first of all: parsing must not be inside the stamp
        if self._exchange is None:
            self.abort()  # bytes that nobody asked for: this connection cannot be trusted with a request
            return
        self._feed(now, data)

    def eof_received(self) -> bool:
        self.closed = True
        if self._exchange is not None:
            self._feed(self._now(), b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._finish(self._now(), Failure.CUT, f"connection lost: {exc}" if exc else "connection closed before the end of the answer")

    def _feed(self, now: float, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._exchange is not None:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(now, event, self._exchange)
        except h11.RemoteProtocolError as error:
            self._finish(now, Failure.CUT, str(error))

    def _take(self, now: float, event: object, exchange: Exchange) -> None:
        if isinstance(event, h11.Response):
            exchange.status = event.status_code
            exchange.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            self._room -= len(event.data)
            if self._room < 0:
                self._finish(now, Failure.TOO_LARGE, "the answer is larger than allowed")
            else:
                exchange.pieces.append((now, bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            self._finish(now)
        elif isinstance(event, h11.ConnectionClosed):
            self._finish(now, Failure.CUT, "connection closed without an answer")

    def _finish(self, now: float, failure: Failure | None = None, detail: str = "") -> None:
        exchange, done = self._exchange, self._done
        if exchange is None or done is None:
            return
        self._exchange = self._done = None
        exchange.ended, exchange.failure, exchange.detail = now, failure, detail
        reusable = failure is None and self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if reusable and not self.closed:
            self._http.start_next_cycle()
            self.idle_since = now
        else:
            self.abort()
        if not done.done():
            done.set_result(None)


class TimedClient:
    """Sends calls and stamps answers. Keeps connections for the next call; use as an async context manager, or call `aclose`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: defaultdict[_Origin, list[_Wire]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the kept connections."""
        for wires in self._kept.values():
            for wire in wires:
                wire.abort()
        self._kept.clear()
        await asyncio.sleep(0)  # lets the transports close before the loop does

    async def open(self, url: str, count: int) -> None:
        """Connects ahead, so that `count` calls at once find a connection. Failures are left for the call to report."""
        origin = _order(Call("GET", url), 0).origin
        missing = count - len(self._usable(origin))
        made = await asyncio.gather(*(self._connect(origin) for _ in range(missing)), return_exceptions=True)
        self._kept[origin].extend(wire for wire in made if isinstance(wire, _Wire))

    async def exchange(self, call: Call, *, timeout: float, cap: int = 16 * MIB, scheduled: float | None = None) -> Exchange:
        """One call and its whole answer. Never raises for what a server does: see `Exchange.failure`.

        `timeout` and `cap` bound the whole exchange in seconds and body bytes; `scheduled` is the instant the times count from (now).
        Raises UsageError for a URL that is not http(s).
        """
        order = _order(call, cap)
        answer = Exchange(self._clock.monotonic() if scheduled is None else scheduled)
        try:
            async with asyncio.timeout(timeout):
                await self._attempt(order, answer)
        except TimeoutError:
            answer.ended, answer.failure = self._clock.monotonic(), Failure.TIMEOUT
            answer.detail = f"no complete answer within {timeout:g} s"
        return answer

    async def _attempt(self, order: _Order, answer: Exchange) -> None:
        kept = self._usable(order.origin)
        if kept:
            await self._on(kept.pop(), order, answer)
            if answer.failure is not Failure.CUT or answer.status is not None:
                return
            # The server closed a kept connection while the call was under way: nothing was answered, so it is asked once more.
            answer.failure, answer.detail, answer.retried = None, "", True
        try:
            wire = await self._connect(order.origin)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no resolver takes
            answer.ended, answer.failure, answer.detail = self._clock.monotonic(), Failure.CONNECT, _words(error)
            return
        await self._on(wire, order, answer)

    async def _on(self, wire: _Wire, order: _Order, answer: Exchange) -> None:
        try:
            await wire.begin(order, answer)
        except asyncio.CancelledError:
            wire.abort()
            raise
        if not wire.closed:
            self._kept[order.origin].append(wire)

    def _usable(self, origin: _Origin) -> list[_Wire]:
        """Connections that may be used again, the last used one last; the others are closed."""
        oldest = self._clock.monotonic() - IDLE
        kept = self._kept[origin]
        for wire in [wire for wire in kept if wire.closed or wire.idle_since < oldest]:
            kept.remove(wire)
            wire.abort()
        return kept

    async def _connect(self, origin: _Origin) -> _Wire:
        """Raises OSError (TimeoutError and TLS errors included)."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT):
            _, wire = await loop.create_connection(lambda: _Wire(self._clock), origin.host, origin.port, ssl=self._context(origin))
        wire.idle_since = self._clock.monotonic()
        return wire

    def _context(self, origin: _Origin) -> ssl.SSLContext | None:
        if origin.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls if origin.secure else None


def _order(call: Call, cap: int) -> _Order:
    """The call ready to send. Raises UsageError for a URL that cannot be called."""
    split = urlsplit(call.url)
    try:
        port = split.port
    except ValueError:
        port = -1
    if split.scheme not in ("http", "https") or not split.hostname or split.username is not None or port == -1:
        raise UsageError("A URL cannot be called.", why="expected http(s)://HOST[:PORT]/PATH without user and password")
    secure = split.scheme == "https"
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    headers = {"Host": split.netloc, "Accept-Encoding": "identity", **call.headers, "Content-Length": str(len(call.body))}
    request = h11.Request(method=call.method, target=target, headers=list(headers.items()))
    return _Order(_Origin(secure, split.hostname, port or (443 if secure else 80)), request, call.body, cap)


def _words(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "the name cannot be looked up"
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT:g} s"
    if isinstance(error, ssl.SSLError) or not error.errno or error.errno < 0:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
