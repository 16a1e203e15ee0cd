"""What `run` shows while it works: a line per transition, and one line that is overwritten for the rest. On stderr only."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime, timedelta
from typing import TextIO

from rollout.cli.secrets import redact
from rollout.domain.state import Event, RolloutState
from rollout.report.events import event_view, obvious, repeats, routine
from rollout.report.text import transition

QUIET_FOR = timedelta(seconds=30)
"""in a pipe or a CI log, waits and measuring windows are told at most this often"""


class Progress:
    """Called with each journal entry and the state after it."""

    def __init__(self, out: TextIO | None = None, *, live: bool | None = None) -> None:
        """`live`: overwrite the last line with what goes on; default: only on a terminal."""
        self._out = out or sys.stderr
        self._live = self._out.isatty() if live is None else live
        self._shown = ""
        self._quiet_since: datetime | None = None
        self._before: Event | None = None

    def __call__(self, event: Event, state: RolloutState) -> None:
        before, self._before = self._before, event
        line = transition(event_view(event), "undo" if state.undo is not None else state.step.value)
        if event.kind == "wait" or routine(event):
            self._passing(line, event.at)
        elif not repeats(event, before) and not obvious(event, before):
            self._line(line)

    def end(self) -> None:
        """Clear the overwritten line, so that what follows stands alone."""
        if self._shown:
            self._out.write("\r" + " " * len(self._shown) + "\r")
            self._out.flush()
            self._shown = ""

    def _passing(self, line: str, at: datetime) -> None:
        if self._live:
            self.end()
            self._shown = redact(line)[: shutil.get_terminal_size().columns - 1]
            self._out.write(self._shown)
            self._out.flush()
        elif self._quiet_since is None or at - self._quiet_since >= QUIET_FOR:
            self._quiet_since = at
            self._line(line)

    def _line(self, text: str) -> None:
        self.end()
        self._out.write(redact(text) + "\n")
        self._out.flush()
