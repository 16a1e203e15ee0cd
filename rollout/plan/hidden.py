"""Keeps secrets out of everything that is stored, printed or refused: those written into a plan, and those of live deployments.

Pure; reads no secret itself. A plan is stored, printed and committed, so a secret in it is already lost: it is refused, and never
repeated. Values of a live deployment go through `keepable` or `keepable_pair` before they are kept or shown, and no other way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rollout.plan.finding import Path
from rollout.plan.lookalike import IN_ADDRESS, IN_URL, KNOWN
from rollout.plan.veil import Veil, secrets_in

Json = Any
_URLS = (("gpustack", "server"), ("gpustack", "inference"))
"""URLs are judged by their own rule, which says better what to write"""
_REFERENCES = ("management_key", "inference_key")
HIDDEN = "***"
CHANGED = "*** (changed)"
_SHORTEST = 4
"""characters; a shorter secret cannot be told from any other text by itself"""
_LONGEST = 60
"""characters of a value that a message repeats"""


def redact(text: str) -> str:
    """`text` without anything that looks like a secret by itself; for our own messages about a plan."""
    return IN_ADDRESS.sub(HIDDEN, IN_URL.sub(HIDDEN, KNOWN.sub(HIDDEN, text)))


def keepable(value: Json, name: str = "", said: Mapping[str, Json] | None = None) -> Json:
    """A copy of what a live deployment holds under `name` (empty: its whole spec), as it may be stored and shown.

    Secrets are `***`, whatever holds them: a flag, a command line, JSON inside a text, a header, a URL. Of an environment only what
    is known to be harmless is kept, and what the plan itself says (`said`: names and values of its `env`).
    """
    return Veil(lambda key, secret, _path, sure: secret if _told(said, key, secret, sure=sure) else HIDDEN).value(value, name)


def keepable_pair(name: str, before: Json, after: Json, said: Mapping[str, Json] | None = None) -> tuple[Json, Json]:
    """Two values of one field, as `keepable`; what is hidden in both and differs is `*** (changed)` on the right."""
    held = set[tuple[str, str]]()

    def left(key: str, secret: str, _path: Path, sure: bool) -> str:
        held.add((key, secret))
        return secret if _told(said, key, secret, sure=sure) else HIDDEN

    def right(key: str, secret: str, _path: Path, sure: bool) -> str:
        if _told(said, key, secret, sure=sure):
            return secret
        return HIDDEN if (key, secret) in held else CHANGED

    shown = Veil(left).value(before, name), Veil(right).value(after, name)
    if shown[0] == shown[1] and before != after:  # the same secrets in other places
        return shown[0], Veil(lambda *_: CHANGED).value(after, name)
    return shown


def _told(said: Mapping[str, Json] | None, name: str, value: str, *, sure: bool) -> bool:
    """The plan itself says this very value, and nothing but its being unknown speaks against it."""
    return not sure and said is not None and said.get(name) == value


def keepable_text(text: str) -> str:
    """A text that a server wrote about a deployment, such as the last words of a container, as it may be stored and shown."""
    return str(Veil(lambda *_: HIDDEN).text(text))


def without(text: str, spec: Mapping[str, Json]) -> str:
    """What a server answered to `spec`, without the secrets in it, also one that the end of the text cuts off."""
    secrets = {form for secret in secrets_in(dict(spec)) for form in (secret, json.dumps(secret)[1:-1]) if len(form) >= _SHORTEST}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for secret in secrets if text.endswith("…") else ():
        begun = next((n for n in range(len(secret), _SHORTEST - 1, -1) if text[:-1].endswith(secret[:n])), 0)
        text = text[: len(text) - 1 - begun] + HIDDEN if begun else text
    return keepable_text(text)


def secret_places(to: Json) -> set[Path]:
    """Where in `change.to` a secret stands: paths that begin with the field."""
    found: set[Path] = set()

    def note(_key: str, secret: str, path: Path, sure: bool) -> str:
        if sure:
            found.add(path)
        return secret

    Veil(note).value(to)
    return found


def quoted(text: str) -> str:
    """A value as a message repeats it: redacted, on one line, short."""
    line = " ".join(redact(text).split())
    return f"`{line}`" if len(line) <= _LONGEST else f"`{line[:_LONGEST]}…`"


def keys_in(text: str) -> list[tuple[int, str]]:
    """Where a secret begins that shows by its look, and the secret: for what is no value of a plan, such as its comments."""
    return sorted((m.start(), m[0]) for pattern in (KNOWN, IN_URL) for m in pattern.finditer(text))


def below_reference(path: Path) -> bool:
    """Whether `path` is a secret reference or inside one: nothing there is ever repeated."""
    return any(part in _REFERENCES for part in path)


def is_secret(path: Path, text: str) -> bool:
    """Whether the text at `path` is a secret by its look, wherever it stands."""
    return bool(KNOWN.search(text) or (IN_URL.search(text) and path not in _URLS))
