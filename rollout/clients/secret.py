"""A secret that cannot be printed, formatted, pickled or serialised by accident.

Where a secret is read from (environment, file) is the command line's business; this room only carries it to the request
header and takes it out of texts. It must not log or store secrets.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import NoReturn

from rollout.errors import UsageError

HIDDEN = "***"


class Secret:
    """One bearer key. `reveal()` is the only way to the text, and only an outgoing header may call it."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        """Raises UsageError when `value` is empty or cannot travel in a header; the value is never part of the message."""
        usable = bool(value) and value.isascii() and value.isprintable() and " " not in value
        self.__value = value if usable else ""
        del value  # a traceback that shows variables must not find it
        if not usable:
            raise UsageError(
                "A key cannot be used.",
                why="it is empty, or holds a space, a line break or another character that a header cannot carry",
                hint="Write the key alone on the first line of its file, or set the environment variable again.",
            )

    def reveal(self) -> str:
        """The text itself."""
        return self.__value

    def scrub(self, text: str) -> str:
        """`text` without this secret."""
        return text.replace(self.__value, HIDDEN)

    def begins_with(self, prefix: str) -> bool:
        """Whether the secret begins with `prefix`: servers show that much of a masked key."""
        return bool(prefix) and self.__value.startswith(prefix)

    def same_as(self, other: Secret) -> bool:
        """Whether both are one key: the two keys of a plan should not be."""
        return compare_digest(self.__value, other.__value)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuses pickling and copying: a copy would end up in a file or another process."""
        msg = "a secret cannot be serialised"
        raise TypeError(msg)
