"""Finds secrets that were written into a plan, and keeps them out of every message. Pure; reads no secret itself.

A plan is stored, printed and committed, so a secret in it is already lost: it is refused, and never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rollout.plan.finding import Path

_KNOWN = re.compile(
    r"gpustack_[0-9A-Za-z]{6,}(?:_[0-9A-Za-z]+)*"
    r"|\b(?:sk|pk|rk)-[0-9A-Za-z_-]{12,}"
    r"|\bhf_[0-9A-Za-z]{16,}"
    r"|\bgh[opsur]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abprs]-[\w-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_NAME = re.compile(r"(?:^|[_-])(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|secret[_-]?key|credentials?)$", re.IGNORECASE)
_FLAG = re.compile(r"--[\w-]*?(?:api-key|hf-token|auth-token|access-token|secret|password)(?:[= ]+|$)", re.IGNORECASE)
_URLS = (("gpustack", "server"), ("gpustack", "inference"))
"""URLs are judged by their own rule, which says better what to write"""
_REFERENCES = ("management_key", "inference_key")
HIDDEN = "***"
_LONGEST = 60
"""characters of a value that a message repeats"""


def redact(text: str) -> str:
    """`text` without anything that looks like a secret; always safe to print."""
    return _IN_URL.sub(HIDDEN, _KNOWN.sub(HIDDEN, text))


def redacted(value: object, name: str = "") -> object:
    """A JSON value without anything that looks like a secret: by its text, or by the name of its key. A copy."""
    if isinstance(value, dict):
        return {key: redacted(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, name) for item in value]
    if isinstance(value, str):
        flag = _FLAG.match(value)
        if flag and flag.end() < len(value):
            return value[: flag.end()] + HIDDEN
        return HIDDEN if value and _NAME.search(name) else redact(value)
    return value


def keepable(value: object, name: str = "", known: Mapping[str, object] | None = None) -> object:
    """`redacted`, and of an environment the names alone: any value in it may be a secret. Those in the plan (`known`) are none."""
    if name == "env" and isinstance(value, dict):
        told = known or {}
        return {key: redacted(item, str(key)) if key in told and told[key] == item else HIDDEN for key, item in value.items()}
    if isinstance(value, dict):
        return {key: keepable(item, str(key)) for key, item in value.items()}
    return redacted(value, name)


def quoted(text: str) -> str:
    """A value as a message repeats it: redacted, on one line, short."""
    line = " ".join(redact(text).split())
    return f"`{line}`" if len(line) <= _LONGEST else f"`{line[:_LONGEST]}…`"


def below_reference(path: Path) -> bool:
    """Whether `path` is a secret reference or inside one: nothing there is ever repeated."""
    return any(part in _REFERENCES for part in path)


def is_secret(path: Path, text: str) -> bool:
    """Whether the text at `path` is a secret, or so likely one that it must not stay in a plan."""
    if _KNOWN.search(text) or (_IN_URL.search(text) and path not in _URLS):
        return True
    if path[:2] != ("change", "to") or not text.strip():
        return False
    return bool(isinstance(path[-1], str) and len(path) > 3 and _NAME.search(path[-1])) or bool(_FLAG.match(text))
