"""The beginning of a file that a person named: a plan, or a key. It may be anything, so reading ends in bounded time and size.

A pipe is waited for, but not for ever: one that nobody writes to would hold a command until somebody kills it. Knows no plan.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path

PATIENCE = 60.0
"""seconds without a byte after which a pipe is given up"""


def beginning(path: str | Path, limit: int, *, patience: float = PATIENCE, end: bytes = b"") -> bytes:
    """Up to `limit` bytes, or until `end` came by. Raises OSError, also for a pipe that says nothing; ValueError for an impossible name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        data = bytearray()
        while len(data) < limit and not (end and end in data):
            if not select.select([descriptor], [], [], patience)[0]:
                raise TimeoutError(errno.ETIMEDOUT, f"nothing was written to it for {patience:g} s")
            piece = os.read(descriptor, min(limit - len(data), 1 << 16))
            if not piece:
                break
            data += piece
        return bytes(data)
    finally:
        os.close(descriptor)
