"""The lab's one error. It belongs to the lab: the product never raises it and never imports it."""

from __future__ import annotations


class LabError(RuntimeError):
    """The lab could not do what was asked. Three parts: what failed, why, and what to do next."""

    def __init__(self, what: str, why: str, next_step: str) -> None:
        super().__init__(f"{what}: {why}\n  next: {next_step}")
        self.what, self.why, self.next_step = what, why, next_step
