"""From a rollout's journal to a recording of what its judge saw. Pure.

The journal keeps each window's numbers and where judging began; the state keeps only the newest evidence. Judging may begin more than once
for a target (a person ended a doubt about the share, the next target follows): each time is an attempt of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rollout.analysis.config import JudgeConfig
from rollout.analysis.recorded import window_from_json
from rollout.analysis.recording import Attempt, Look
from rollout.domain.receipts import receipts_of
from rollout.domain.state import Event, RolloutState

Json = Any
JUDGE = "judge"


def recorded(state: RolloutState, events: Iterable[Event]) -> tuple[Attempt, ...]:
    """The attempts of a rollout, oldest first; none while nothing was judged. `events`: its whole journal, in order.

    ValueError when an entry cannot be read: another release wrote it.
    """
    made: list[Attempt] = []
    looks: list[Look] = []
    begun: tuple[int, JudgeConfig, str] | None = None
    tries: dict[int, int] = {}
    for event in events:
        if event.kind != "fact":
            continue
        window = event.data.get("window")
        if window is not None and begun is not None:
            looks.append(_look(event, window))
        for target, fact in _begins(event):
            if begun is not None:
                made.append(_attempt(state, begun, tries, looks))
            begun, looks = (target, JudgeConfig.from_json(fact["config"]), str(fact.get("began") or event.at.isoformat())), []
            tries[target] = tries.get(target, 0) + 1
    return (*made, _attempt(state, begun, tries, looks)) if begun is not None else ()


def _begins(event: Event) -> Iterator[tuple[int, dict[str, Json]]]:
    """(target, fact) of each judge that this entry makes. A window's own entry names its facts and does not hold them."""
    facts = event.data.get("facts")
    for key, fact in facts.items() if isinstance(facts, dict) else ():
        target, _, name = key.partition(".")
        if name == JUDGE and isinstance(fact, dict) and "config" in fact:
            yield int(target), fact


def _look(event: Event, window: dict[str, Json]) -> Look:
    said = event.data.get("verdict")
    return Look(window_from_json(window), event.at.isoformat(), (said["kind"], said["sentence"]) if said else None)


def _attempt(state: RolloutState, begun: tuple[int, JudgeConfig, str], tries: dict[int, int], looks: list[Look]) -> Attempt:
    target, config, began = begun
    receipts = receipts_of(state)
    pair = receipts.pairs[target] if receipts is not None and target < len(receipts.pairs) else None
    about = {
        "rollout": state.id,
        "name": state.name,
        "route": state.route,
        "target": target + 1,
        "stable": pair.stable if pair else None,
        "canary": pair.canary if pair else None,
        "attempt": tries[target],
        "began": began,
    }
    return Attempt(config, tuple(looks), about)
