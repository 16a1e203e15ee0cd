"""Journal entries in words: what is worth a line, and what only repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout.domain.state import Event

Json = Any
WORDS = {"intent": "does", "outcome": "done", "fact": "notes", "step": "enters", "hold": "holds", "wait": "waits", "created": "created"}
AT_ONCE = timedelta(seconds=5)


class EventView(BaseModel):
    """One journal entry: when, one word, who, and the sentence."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    word: str
    actor: str
    text: str


def event_view(event: Event) -> EventView:
    """The entry in words: a phase, a command and a result are words of their own."""
    word, text, data = WORDS.get(event.kind, event.kind), event.text, event.data
    if event.kind == "phase":
        word = str(data.get("phase", word)).replace("_", " ")
        text = "" if text == data.get("phase") else text
    elif event.kind == "command":
        word = str((data.get("said") or {}).get("verb", word))
        text = text.removeprefix(f"{word} ")
    elif event.kind == "outcome":
        word, text = str(data.get("result", word)), text.removeprefix(f"{data.get('result')}: ")
    elif event.kind == "hold" and not data.get("hold"):
        word = "goes on"
    return EventView(at=event.at, word=word, actor=event.actor, text=" ".join(text.splitlines()))


def routine(event: Event) -> bool:
    """A measuring window, a batch of paired probes, a look at a drain: one of many, told by what it led to."""
    if event.kind in ("intent", "outcome"):
        verb = event.data.get("verb") or (event.data.get("effect") or {}).get("verb")
        return verb in ("probe_pairs", "replay_pairs") and event.data.get("result", "done") == "done"
    facts: Mapping[str, Json] = event.data.get("facts") or {}
    names = {key.rpartition(".")[2] for key in facts}
    batch = bool({"pairs", "replay"} & names) or {"judge", "seen"} <= names
    return event.kind == "fact" and (batch or any(_look(value) for value in facts.values()))


def _look(value: Json) -> bool:
    """A look at a drain that has not ended yet, or one of the breaker at a canary that carries its share alone."""
    return isinstance(value, dict) and (("mark" in value and "done" not in value) or "sample" in value)


def repeats(event: Event, before: Event | None) -> bool:
    """A hold whose sentence was just said by the phase that it led to."""
    return event.kind == "hold" and before is not None and before.kind == "phase" and before.text == event.text


def obvious(event: Event, before: Event | None) -> bool:
    """An effect that was done as announced, at once: needs no second line."""
    if event.kind != "outcome" or event.data.get("result") != "done" or before is None or before.kind != "intent":
        return False
    return event.at - before.at < AT_ONCE


def told(events: Iterable[Event]) -> list[EventView]:
    """The entries worth a line, in order."""
    lines, before = [], None
    for event in events:
        if not routine(event) and not repeats(event, before) and not obvious(event, before):
            lines.append(event_view(event))
        before = event
    return lines
