"""Reads a secret where the plan says it is, when it is needed; and keeps it, and what steers a terminal, out of all that is printed.

Never stores, prints or returns a secret to anything but the client that sends it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rollout.clients.secret import Secret
from rollout.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from rollout.plan.model import SecretRef

LONGEST = 1 << 14
"""bytes of a key with its line's end"""
PATIENCE = 10.0
"""seconds that a pipe with a key is waited for"""
_known: list[Secret] = []
_UNSEEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""controls of a terminal, of the direction of writing and of lines; half surrogate pairs"""


def resolve(ref: SecretRef, key: str, *, env: Mapping[str, str] | None = None) -> Secret:
    """The secret behind `ref`; `key` is its place in the plan, for the error. Raises PreflightError with the remedy."""
    try:
        secret = Secret(
            _from_env(ref.env, key, os.environ if env is None else env) if ref.env is not None else _from_file(ref.file or "", key)
        )
    except UsageError as error:
        raise PreflightError(f"`{key}` cannot be used", why=error.why, hint=error.hint) from None
    _known.append(secret)
    return secret


def redact(text: str) -> str:
    """`text` as it may be shown: without any secret that was resolved in this process, and without what steers a terminal.

    Names and messages come from servers: an escape sequence in one must not be carried out, and half a surrogate pair not be printed.
    """
    for secret in _known:
        text = secret.scrub(text)
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _from_env(name: str, key: str, env: Mapping[str, str]) -> str:
    value = env.get(name, "").strip()
    if not value:
        state = "is empty" if name in env else "is not set"
        raise PreflightError(
            f"`{key}` cannot be read",
            why=f"the environment variable {name} {state}",
            hint=f"`export {name}=…`, then run the same command again.",
        )
    return value


def _from_file(path: str, key: str) -> str:
    from rollout.plan.reading import beginning

    what, place = f"`{key}` cannot be read", path
    try:
        place = str(Path(path).expanduser())
        line, ended, _ = beginning(place, LONGEST, patience=PATIENCE, end=b"\n").partition(b"\n")
        text = line.decode("utf-8").strip()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the home of a user that nobody knows
        cause = getattr(error, "strerror", None) or ("it is not text" if isinstance(error, UnicodeDecodeError) else "an impossible name")
        raise PreflightError(what, why=f"the file {place}: {cause}", hint=f"put the key on the first line of {place}.") from None
    if not text or (len(line) >= LONGEST and not ended):
        state = "empty" if not text else f"longer than {LONGEST} bytes"
        raise PreflightError(what, why=f"the first line of {place} is {state}", hint=f"put the key on the first line of {place}.")
    return text
