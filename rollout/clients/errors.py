"""From an answer to an error: which statuses are temporary, which are final, and what a person can do.

Unreachable = look again before acting again (no answer, 5xx, 429). Refused = the same call will be refused again (4xx).
BadAnswer = an answer outside the contract. All three keep method, path and status; none may carry a secret or a whole body.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.errors import BadAnswer, KeyRefused, Refused, Unreachable
from rollout.plan.hidden import keepable_text

CUT = 256
"""characters of an answer that an error may quote"""
LOOKED_AT = 4096
"""characters of an answer that are searched for what must not be quoted"""
TEMPORARY = frozenset({408, 425, 429})
"""4xx that mean "later", not "no\""""
RECIPE = "docs/how-to/hand-out-keys.md has the two calls that make both keys."


def remedy(path: str, status: int | None) -> str:
    """What a person does about a refused key; which key it was shows in the path."""
    scope = "inference" if path.startswith("/v1") else "management"
    key = f"`gpustack.{scope}_key`"
    if status == 401:
        return f"The key behind {key} is wrong, expired or deleted: make a new one with scope `{scope}` and put it there. {RECIPE}"
    if status == 403:
        also = ", of a user who is an administrator" if scope == "management" else ""
        return f"The key behind {key} lacks the scope `{scope}`: put one there that has it{also}. {RECIPE}"
    return ""


@dataclass(frozen=True)
class Call:
    """The call that failed. `status` is None when there was no answer."""

    method: str
    path: str
    status: int | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class HttpUnreachable(Unreachable):
    """{call} got no usable answer. A write may have been applied."""

    def __init__(self, call: Call, why: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds the server asks to wait, when it says so."""
        broke = call.status is not None and call.status < 300
        said = "broke off in its answer" if broke else f"answered {call.status}" if call.status else "got no answer"
        super().__init__(f"{call} {said}.", why=why, hint="Check that the server runs and can be reached from here.")
        self.call = call
        self.retry_after = retry_after


class HttpRefused(Refused):
    """{call} was refused."""

    def __init__(self, call: Call, why: str) -> None:
        super().__init__(f"{call} was refused ({call.status}).", why=why, hint=remedy(call.path, call.status))
        self.call = call

    @property
    def not_found(self) -> bool:
        """The thing is not there. GPUStack says so with 404 and, for ids inside a body, with 500."""
        return self.call.status == 404 or (self.call.status == 500 and "not found" in self.why.lower())

    @property
    def conflict(self) -> bool:
        """Something of that name exists already."""
        return self.call.status == 409


class HttpKeyRefused(HttpRefused, KeyRefused):
    """{call}: the key was refused."""


class HttpBadAnswer(BadAnswer):
    """{call} answered outside its contract."""

    def __init__(self, call: Call, why: str) -> None:
        hint = "Check that the URL is the server's API and not another program, a login page or a proxy."
        super().__init__(f"{call} gave an answer that cannot be used.", why=why, hint=hint)
        self.call = call


class HttpUntrusted(HttpBadAnswer):
    """{call} met a server that is not proved to be the right one; nothing was sent to it."""

    def __init__(self, call: Call, why: str) -> None:
        super().__init__(call, why)
        self.message = f"{call}: the server's certificate is not trusted; nothing was sent."
        plain = "wrong version number" in why.lower()
        self.hint = (
            "The port speaks no TLS: write http:// in the plan, or name the TLS port."
            if plain
            else "Put its CA into the system's store, or name the CA's file in SSL_CERT_FILE; the check cannot be switched off."
        )


def refusal(
    call: Call, text: str, headers: Mapping[str, str], clean: Callable[[str], str]
) -> HttpUnreachable | HttpRefused | HttpBadAnswer:
    """The error for an answer that is not 2xx. `text` is the body; `clean` takes secrets out of what is quoted."""
    status = call.status or 0
    why = quotable(_said(text) or text.strip() or "it said nothing", clean)
    if 300 <= status < 400:
        return HttpBadAnswer(call, f"it redirects ({status}); redirects are not followed, so that a key goes to nobody else")
    if 400 <= status < 500 and status not in TEMPORARY:
        return HttpKeyRefused(call, why) if status in (401, 403) else HttpRefused(call, why)
    if status == 500 and _says_not_found(text):
        return HttpRefused(call, why)
    return HttpUnreachable(call, why, retry_after=seconds_of(headers.get("retry-after")))


def quotable(text: str, clean: Callable[[str], str] | None = None) -> str:
    """What a message may repeat of a server's words: no key of ours (`clean`), no secret of anybody else, and not much.

    In this order: a key of which the end was cut off is recognised by nobody, and is still half a key.
    """
    line = " ".join((clean(text) if clean else text).split())[:LOOKED_AT]
    return cut(keepable_text(line))


def cut(text: str) -> str:
    """At most CUT characters on one line."""
    line = " ".join(text.split())
    return line if len(line) <= CUT else line[: CUT - 1] + "…"


def seconds_of(header: str | None) -> float | None:
    """`Retry-After` in seconds; the date form is rare here and read as absent."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _said(text: str) -> str | None:
    """The `message` of either GPUStack error shape."""
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for part in (body, body.get("error") if isinstance(body, dict) else None):
        if isinstance(part, dict) and isinstance(part.get("message"), str):
            return str(part["message"])
    return None


def _says_not_found(text: str) -> bool:
    said = _said(text)
    return said is not None and "not found" in said.lower()
