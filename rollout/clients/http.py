"""One HTTP client for JSON APIs: bounded in time and size, blind to the environment, and unable to leak its key.

Every failure becomes one of three errors of `clients.errors`. It must not follow redirects (a key would travel along), read
proxy variables, or know what any answer means.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from rollout.clients.errors import Call, HttpBadAnswer, HttpUnreachable, HttpUntrusted, cut, quotable, refusal
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.errors import UsageError

Json = Any
T = TypeVar("T")
MIB = 1 << 20
ERROR_BODY = 64 << 10
"""bytes of an error answer that are read"""
DEEPEST = 64
"""levels of an answer: what is deeper can be read here, and fails wherever it is walked, copied or stored"""
IDLE = 4.0
"""seconds an idle connection is kept; uvicorn closes its side after 5, which would look like a lost answer"""


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes that one call may take. `total` bounds a server that sends one byte at a time."""

    connect: float = 3.0
    read: float = 10.0
    total: float = 30.0
    body: int = 16 * MIB


class _Bearer(httpx.Auth):
    """Puts the key into the request and nowhere else: not into the client, its repr or its default headers."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._secret.reveal()}"
        yield request


class Http:
    """JSON over HTTP to one server. Use as an async context manager, or call `aclose`."""

    def __init__(
        self,
        base_url: str,
        secret: Secret | None,
        *,
        retry: Retry,
        limits: Limits = Limits(),
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` is for tests. Raises UsageError for a URL that is not http(s) or that carries a password."""
        self._secret = secret
        self._limits = limits
        self.server_time: datetime | None = None
        """the `Date` of the latest answer"""
        self._retry = retry
        self._client = httpx.AsyncClient(
            base_url=_checked(base_url),
            auth=_Bearer(secret) if secret else None,
            verify=_trust(base_url),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(limits.read, connect=limits.connect, pool=limits.total),
            limits=httpx.Limits(max_connections=32, keepalive_expiry=IDLE),
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._client.aclose()

    async def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Json:
        """The JSON behind `path`; tried again within the retry's bounds."""
        return await self._retry.run(lambda: self._once("GET", path, params, None))

    async def headers(self, path: str) -> Mapping[str, str]:
        """The headers of the answer to GET `path`, whatever its status and body; names in lower case. Raises Unreachable."""
        call = Call("GET", path)
        try:
            async with asyncio.timeout(self._limits.total), self._client.stream("GET", path) as answer:
                return {name.lower(): value for name, value in answer.headers.items()}
        except TimeoutError:
            _unanswered(call, f"no answer within {self._limits.total:g} s")
        except (httpx.TransportError, httpx.StreamError) as error:
            _unanswered(call, self._words(error))

    async def write(self, method: str, path: str, body: Json = None, *, repeat: bool = False) -> Json:
        """One write. Sent once, unless `repeat` says that sending it twice is the same as once."""
        if repeat:
            return await self._retry.run(lambda: self._once(method, path, None, body))
        return await self._once(method, path, None, body)

    async def _once(self, method: str, path: str, params: Mapping[str, str | int] | None, body: Json) -> Json:
        call = Call(method, path)
        try:
            async with asyncio.timeout(self._limits.total), self._client.stream(method, path, params=params, json=body) as answer:
                call = Call(method, path, answer.status_code)
                self.server_time = _date(answer.headers.get("date")) or self.server_time
                raw = await self._read(call, answer)
        except TimeoutError:
            _unanswered(call, f"no complete answer within {self._limits.total:g} s")
        except httpx.TimeoutException as error:
            _unanswered(call, f"{self._words(error)} (connect {self._limits.connect:g} s, read {self._limits.read:g} s)")
        except httpx.ConnectError as error:
            if "[SSL" in str(error):
                raise HttpUntrusted(call, self._words(error)) from None
            _unanswered(call, self._words(error))
        except (httpx.TransportError, httpx.StreamError) as error:
            _unanswered(call, self._words(error))
        except httpx.DecodingError as error:
            raise HttpBadAnswer(call, self._words(error)) from None
        text = raw.decode("utf-8", "replace")
        if not answer.is_success:
            raise refusal(call, text, answer.headers, self._clean)
        return self._parsed(call, text)

    async def _read(self, call: Call, answer: httpx.Response) -> bytes:
        """The body, given up as soon as it is larger than allowed; of an error only the beginning."""
        parts: list[bytes] = []
        size = 0
        async for part in answer.aiter_bytes():
            parts.append(part)
            size += len(part)
            if not answer.is_success and size > ERROR_BODY:
                break
            if size > self._limits.body:
                raise HttpBadAnswer(call, f"the body is larger than {self._limits.body // MIB} MiB")
        return b"".join(parts)

    def _parsed(self, call: Call, text: str) -> Json:
        if not text.strip():
            return None
        try:
            read = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise HttpBadAnswer(call, f"it is not JSON: {quotable(text, self._clean)}") from None
        if _deeper(read, DEEPEST):
            raise HttpBadAnswer(call, f"it is nested deeper than {DEEPEST} levels")
        return read

    def _clean(self, text: str) -> str:
        return self._secret.scrub(text) if self._secret else text

    def _words(self, error: Exception) -> str:
        return quotable(str(error), self._clean) or type(error).__name__


def typed(adapter: TypeAdapter[T], data: Json, call: Call) -> T:
    """`data` as the adapter's type. Raises BadAnswer that names each wrong key; the values are not quoted."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        found = [
            f"`{'.'.join(str(p) for p in e['loc']) or 'answer'}`: {e['msg']}" for e in error.errors(include_input=False, include_url=False)
        ]
        raise HttpBadAnswer(call, cut("; ".join(found))) from None


def _date(header: str | None) -> datetime | None:
    """An HTTP date; None when there is none or it cannot be read."""
    try:
        found = parsedate_to_datetime(header) if header else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _deeper(value: Json, levels: int) -> bool:
    """Level by level, since a walk that calls itself is what a deep value breaks."""
    inside = [value]
    for _ in range(levels + 1):
        groups = [v.values() if isinstance(v, dict) else v for v in inside if isinstance(v, dict | list)]
        inside = [v for group in groups for v in group]
        if not groups:
            return False
    return True


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _unanswered(call: Call, why: str) -> NoReturn:
    # the cause is not chained: its request object holds the key
    raise HttpUnreachable(call, why) from None


def _trust(base_url: str) -> ssl.SSLContext:
    """Whom to believe: the system's store and SSL_CERT_FILE, as the timed client does. Without TLS nobody, which costs nothing."""
    return ssl.create_default_context() if base_url.startswith("https") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _checked(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
        url.raw_host, url.host  # noqa: B018 - both decode the name, which may be impossible
    except (httpx.InvalidURL, ValueError) as error:
        why = cut(str(error))
        raise UsageError(
            f"`{cut(base_url)}` is not a server URL.", why=why, hint="Expected http://gpustack.example:30080 or alike."
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"`{cut(base_url)}` is not a server URL.", hint="Expected something like http://gpustack.example:30080.")
    if url.userinfo:
        raise UsageError("The server URL carries a user name or password.", hint="Remove it from the URL and give a key by reference.")
    return base_url
