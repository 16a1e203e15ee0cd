"""A command line or any other text, read word by word as a shell would: which parts stand behind a name that sounds like a secret.

Pure. Knows quotes, `--flag value`, `--flag=value`, `NAME=value`, `"name": "value"`, headers, and text quoted inside text. Says what
to replace and never replaces itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rollout.plan.lookalike import plain_behind, secret_name

WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*"|['"].*|\\)+""", re.DOTALL)
"""a quote that never ends takes the rest of the text with it"""
HEADER = re.compile(r"\s*([A-Za-z][\w-]*):\s+(\S.*)", re.DOTALL)
_QUOTED = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|['"]""", re.DOTALL)
_FLAG = re.compile(r"--[A-Za-z].*|-[A-Za-z]{1,2}", re.DOTALL)
_NAMED = re.compile(r"-{1,2}([A-Za-z][\w.-]*)")
_ASSIGNED = re.compile(r"""(?<![\w./-])-{0,2}([A-Za-z_][\w.-]*)(\\*["']?)\s*(=>|[=:]+)\s*(.*)""", re.DOTALL)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")
_PORT = re.compile(r"\d{1,5}(?:/.*)?|//.*", re.DOTALL)
_LOGIN = re.compile(r"[^:\s/]+:(?!\d+$)(\S+)")
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<"})
_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "negotiate", "|", ">", "|-", ">-", "=", ":"})
"""words between a name and its secret"""
_ENCODED = re.compile(r"(?=.*[0-9A-Z=])[\w+/=.-]{8,}")


@dataclass
class Awaited:
    """What the words before lead to expect: a secret's name, how it asks for its values, how many came; and the word before."""

    name: str = ""
    kind: Literal["flag", "one"] = "flag"
    count: int = 0
    last: str = ""

    def expect(self, name: str, kind: Literal["flag", "one"]) -> None:
        self.name, self.kind, self.count = name, kind, 0

    def takes(self, bare: str) -> bool | None:
        """Whether the word is the awaited secret; None when it is neither that nor anything else to look at."""
        if not self.name:
            return False
        if self.kind == "one" and bare.lower() in _SCHEMES:
            return None
        name, more = self.name, self.kind == "flag" and self.count > 0
        ended = self.kind == "flag" and (_FLAG.fullmatch(bare) or bare in _OPERATORS or (more and bare.startswith("/")))
        if ended or self.kind == "one":
            self.name = ""
        self.count += 1
        if ended:
            return False
        if not secret_name(name, bare.rstrip(",;})]")) or plain_behind(name, bare.rstrip(",;})]")):
            self.name = ""
            return False
        return True


@dataclass(frozen=True)
class Part:
    """A part of one word that stands behind a name: `begin` in the word without quotes; `sure`: the name says that it is a secret."""

    name: str
    begin: int
    sure: bool = True


def unquoted(raw: str) -> str:
    """A word without its quotes and one level of escapes."""
    return _QUOTED.sub(lambda m: m[1] or re.sub(r'\\(["\\$`])', r"\1", m[2] or "") or m[3] or "", raw)


def wrapped(raw: str) -> str:
    """The quote around the whole word, or nothing."""
    match = _QUOTED.match(raw)
    return raw[0] if match and match.end() == len(raw) and len(raw) > 1 and raw[0] in "'\"" else ""


def secret_part(bare: str, awaited: Awaited) -> Part | None:
    """The part of the word that is a secret by its name; what it leads to expect is noted in `awaited`."""
    last, awaited.last = awaited.last, bare
    if last in ("-u", "--user", "--proxy-user") and (login := _LOGIN.fullmatch(bare)):
        return Part(last, login.start(1))
    if (last.lower() == "bearer" and not _FLAG.fullmatch(bare)) or (last.lower() in ("basic", "token") and _ENCODED.fullmatch(bare)):
        return Part(last, 0)
    named = _NAMED.fullmatch(bare)
    if named and secret_name(named[1]):
        awaited.expect(named[1], "flag")
        return None
    if bare in ("=", ":") and last and secret_name(last):
        awaited.expect(last, "one")
        return None
    return _assigned(bare, awaited)


def argument_part(item: str) -> int | None:
    """Where the secret begins in one argument `--flag=value`, whose value goes on to its end, blanks included; None without one."""
    match = _ASSIGNED.match(item)
    if match is None or match[3] != "=" or not secret_name(match[1], match[4]) or not match[4] or plain_behind(match[1], match[4]):
        return None
    return match.start(4)


def _assigned(bare: str, awaited: Awaited) -> Part | None:
    for match in _assignments(bare):
        name, quote, sep, rest = match.groups()
        port = sep.startswith(":") and not quote and _PORT.fullmatch(rest)
        if not port and secret_name(name, rest):
            if not rest:
                awaited.expect(name, "one")
                return None
            if not plain_behind(name, rest.rstrip("\"',;})]")):
                return Part(name, match.start(4))
        if match.start() == 0 and rest and _VARIABLE.match(bare):
            return Part(name, match.start(4), sure=False)
    return None


def _assignments(bare: str) -> Iterator[re.Match[str]]:
    at = 0
    while match := _ASSIGNED.search(bare, at):
        yield match
        at = max(match.start(4), match.start() + 1)
