"""The lab: the real GPUStack server with PostgreSQL and simulated workers, on loopback, without a GPU.

    from lab import Lab
    with Lab() as lab:
        lab.worker("spark-01").set(ttft_factor=2.0, model="m-v2")

Or from a shell: `python -m lab.up --json FILE`. It drives the product from outside and must never be imported by it.
"""

from lab.errors import LabError
from lab.remote import Remote, session
from lab.stack import Lab

__all__ = ["Lab", "LabError", "Remote", "session"]
