"""What a plan names and holds from then on: files are read with the plan, so that whoever ticks it later needs none of them."""

from __future__ import annotations

from pathlib import Path

from rollout.plan.beside import WHERE, Unfit, read_beside
from rollout.plan.model import Plan, Prompt
from rollout.plan.prompts import MAX_BYTES, read_prompts
from rollout.plan.source import Source

_FILE = ("evidence", "quality", "file")
_SET = ("evidence", "quality", "prompts")


def refuse_inlined(source: Source) -> None:
    """The set itself does not stand in a plan's file: one place for it, and errors that name its line."""
    place = source.places.get(_SET)
    if place is not None:
        source.broken.add(_SET)
        source.add(place.key, _SET, "`file`, the set's name", "the prompts themselves", "write them as lines of JSON beside the plan")


def inlined(plan: Plan, source: Source, folder: Path | None) -> Plan:
    """The plan with the files it names, as seen from `folder`. What is wrong with them is added to the findings of `source`."""
    quality = plan.evidence.quality
    if quality is None:
        return plan
    if folder is None:
        source.add(source.places[_FILE].value, _FILE, WHERE, "a name, and no folder is known", "give the plan as a file")
        return plan
    try:
        data = read_beside(folder, quality.file, MAX_BYTES)
    except Unfit as error:
        source.add(source.places[_FILE].value, _FILE, error.expected, error.found, error.hint)
        return plan
    lines = Source(str(folder / quality.file))
    rows = read_prompts(data, lines)
    source.findings += lines.findings
    if lines.findings:
        return plan
    prompts = tuple(Prompt.model_validate(row) for row in rows)
    evidence = plan.evidence.model_copy(update={"quality": quality.model_copy(update={"prompts": prompts})})
    return plan.model_copy(update={"evidence": evidence})
