"""The lab: the real GPUStack server with PostgreSQL and simulated workers, on loopback, without a GPU.

    from lab import Lab
    with Lab() as lab:
        lab.worker("spark-01").set(ttft_factor=2.0, model="m-v2")

Or from a shell: `python -m lab.up --json FILE`. It drives the product from outside and must never be imported by it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.errors import LabError
    from lab.remote import Remote, session
    from lab.stack import Lab

__all__ = ["Lab", "LabError", "Remote", "session"]

_HOME = {"Lab": "lab.stack", "LabError": "lab.errors", "Remote": "lab.remote", "session": "lab.remote"}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: a worker process needs none of it and should start fast."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lab' has no attribute {name!r}")
