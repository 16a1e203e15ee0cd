"""What `run` shows while it works: a line per transition, and one line that is overwritten for what it waits for. On stderr only."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime, timedelta
from typing import TextIO

from rollout.cli.secrets import redact
from rollout.domain.state import Event, RolloutState
from rollout.report.text import transition
from rollout.report.view import event_view
from rollout.report.words import clock

QUIET_FOR = timedelta(seconds=30)
"""in a pipe or a CI log, what is waited for is repeated at most this often"""


class Progress:
    """Called with each journal entry and the state after it."""

    def __init__(self, out: TextIO | None = None, *, live: bool | None = None) -> None:
        """`live`: overwrite the waiting line; default: only on a terminal."""
        self._out = out or sys.stderr
        self._live = self._out.isatty() if live is None else live
        self._shown = ""
        self._last_wait: datetime | None = None

    def __call__(self, event: Event, state: RolloutState) -> None:
        if event.kind == "wait":
            self._wait(event, state)
            return
        if event.kind in ("outcome", "fact") and not event.text:
            return
        self._line(transition(event_view(event), state.step.value))

    def end(self) -> None:
        """Clear the waiting line, so that what follows stands alone."""
        if self._shown:
            self._out.write("\r" + " " * len(self._shown) + "\r")
            self._out.flush()
            self._shown = ""

    def _wait(self, event: Event, state: RolloutState) -> None:
        text = state.waiting.why if state.waiting else ""
        if not text:
            return
        if self._live:
            self.end()
            width = shutil.get_terminal_size().columns - 1
            self._shown = redact(f"{clock(event.at)}  {state.step.value:<7}  {'waits':<12}  {text}")[:width]
            self._out.write(self._shown)
            self._out.flush()
        elif self._last_wait is None or event.at - self._last_wait >= QUIET_FOR:
            self._last_wait = event.at
            self._line(transition(event_view(event.model_copy(update={"text": text})), state.step.value))

    def _line(self, text: str) -> None:
        self.end()
        self._out.write(redact(text) + "\n")
        self._out.flush()
