"""Lines of JSON in a file that a plan names: they stand in the place of its name once the plan is read, so that whoever carries it out
needs no file. Knows no keys: whoever names a file says what its lines must be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

from rollout.plan.beside import Unfit, read_beside
from rollout.plan.finding import Path, Problem
from rollout.plan.hidden import keys_in, quoted
from rollout.plan.source import MAX_FINDINGS, Mark, Source

Json = Any
Rows = list[dict[str, Json]]
Check = Callable[[Rows], Iterable[Problem]]
"""what is wrong with the lines; the first step of a problem's path is the number of its line among those that are not blank, from 0"""
MAX_BYTES = 4 << 20


class NamedFile:
    """Marks a place of the plan where people write the name of such a file, and where its lines stand once the plan is read."""


def inline(source: Source, folder: FilePath, path: Path, check: Check) -> None:
    """Put the lines of the file that is named at `path` in its place. What is wrong becomes findings: about the name in the plan, about
    lines with the file's own name and line.
    """
    said = _at(source.data, path)
    if not isinstance(said, str) or path in source.secret or path in source.broken:
        return
    source.broken.add(path)
    place = source.places[path].value
    try:
        file, text = _text(said, folder)
    except Unfit as error:
        source.add(place, path, error.expected, error.found, error.hint)
        return
    lines = Source(str(file))
    rows, marks = _rows(lines, text)
    if not lines.findings:
        for problem in check(rows):
            number, *below = problem.path or (0,)
            at = marks[int(number)] if marks else (1, 1)
            lines.add(at, tuple(below), problem.expected, problem.found, problem.hint)
            if len(lines.findings) >= MAX_FINDINGS:
                break
    if lines.findings:
        source.findings.extend(lines.findings)
        return
    source.broken.discard(path)
    _at(source.data, path[:-1])[path[-1]] = rows


def _text(said: str, folder: FilePath) -> tuple[FilePath, str]:
    """The file's path and text. Raises Unfit."""
    data = read_beside(folder, said, MAX_BYTES)
    try:
        return folder / said, data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Unfit("UTF-8 text", f"the byte 0x{data[error.start]:02X} in {quoted(said)}", "save the file as UTF-8") from None


def _rows(lines: Source, text: str) -> tuple[Rows, list[Mark]]:
    """The objects, one a line, and where each stands. A secret is a finding: a plan is stored and shown, and this with it."""
    rows, marks = Rows(), list[Mark]()
    for number, line in _written(text):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)
            lines.add((number, column), (), "one JSON object on a line", getattr(error, "msg", "a deeper nesting"))
            row = {}
        if not isinstance(row, dict):
            lines.add((number, 1), (), "one JSON object on a line", "another JSON value")
            row = {}
        rows.append(row)
        marks.append((number, 1))
        if len(lines.findings) >= MAX_FINDINGS:
            break
    for at, _secret in keys_in(text)[:MAX_FINDINGS]:
        mark = (text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)
        lines.add(
            mark, (), "no secret", "a secret (not shown)", "it is stored and shown with the plan: replace the secret, it is known now"
        )
    return rows, marks


def _written(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank with their number from 1. Only LF ends a line: JSON may hold the other separators."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _at(data: Json, path: Path) -> Json:
    """The value at `path`; None when there is none."""
    for step in path:
        if not isinstance(data, dict) or step not in data:
            return None
        data = data[step]
    return data
