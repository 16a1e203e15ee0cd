"""Bytes -> a tree of plain values, and the place of each in the file. The only room that reads YAML.

Reads a small, safe YAML: one document, text keys, no anchors, aliases, merges or tags, bounded in size, depth and count.
It goes over parser events and never builds objects, so a hostile file costs no more than a long one. Knows no plan keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from rollout.plan.finding import Finding, Path, key_of
from rollout.plan.hidden import below_reference, quoted, redact
from rollout.plan.scalars import Unclear, read_plain
from rollout.plan.syntax import explain_syntax

Json = Any
Mark = tuple[int, int]
"""line and column, counted from 1"""

MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_FINDINGS = 200
_LONGEST = 400
"""characters of one text in a finding"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, where its key stands, and the scalar as it was written (None for mappings and lists)."""

    value: Mark
    key: Mark
    text: str | None = None
    plain: bool = False


@dataclass
class Source:
    """A file that was read: values, places, and what was wrong already.

    `broken` paths have no value worth checking; values at `secret` paths are never looked at by a message.
    """

    file: str
    data: Json = None
    places: dict[Path, Place] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)
    secret: set[Path] = field(default_factory=set)
    complete: bool = True

    def add(self, mark: Mark, path: Path, expected: str, found: str, hint: str = "") -> None:
        """Record one finding; every text in it is made safe to print: redacted, on one line, bounded."""
        words = (" ".join(redact(t[: 9 * _LONGEST])[:_LONGEST].split()) for t in (key_of(path), expected, found, hint))
        self.findings.append(Finding(self.file, *mark, *words))


class _Stop(Exception):
    """Reading cannot go on; what was found so far is in the source."""


@dataclass
class _Frame:
    path: Path
    holds: dict[str, Json] | list[Json]
    key: str | None = None
    mark: Mark = (1, 1)
    seen: dict[str, int] = field(default_factory=dict)


def read_source(text: str, file: str) -> Source:
    """The tree of one YAML document. Never raises for a bad file: `findings` says what is wrong, `complete` whether all was read."""
    source = Source(file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _Composer(source).compose(yaml.parse(text, Loader=loader))
    except _Stop:
        source.complete = False
    except yaml.YAMLError as error:
        source.complete = False
        for mark, expected, found, hint in explain_syntax(error, text):
            source.add(mark, (), expected, found, hint)
    return source


class _Composer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.stack: list[_Frame] = []
        self.nodes = 0
        self.documents = 0

    def compose(self, events: Iterator[Any]) -> None:
        for event in events:
            mark = (event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    self._stop(mark, (), "one plan in a file", "a second document", "remove the line `---` and what follows")
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self.stack.pop()
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, mark)

    def _node(self, event: yaml.NodeEvent, mark: Mark) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(self.source.findings) >= MAX_FINDINGS:
            what = f"at most {MAX_NODES} values" if self.nodes > MAX_NODES else f"fewer than {MAX_FINDINGS} findings"
            self._stop(mark, (), what, "more", "the rest of the file was not read")
        frame = self.stack[-1] if self.stack else None
        if frame is not None and isinstance(frame.holds, dict) and frame.key is None:
            self._key(frame, event, mark)
            return
        path, key_mark = self._slot(frame, mark)
        value, text = self._value(event, mark, path)
        self.source.places[path] = Place(mark, key_mark, text, isinstance(event, yaml.ScalarEvent) and bool(event.implicit[0]))
        if frame is None:
            self.source.data = value
        elif isinstance(frame.holds, list):
            frame.holds.append(value)
        elif frame.key is not None:
            frame.holds[frame.key], frame.key = value, None
        if isinstance(value, dict | list):
            if len(self.stack) >= MAX_DEPTH:
                self._stop(mark, (), f"at most {MAX_DEPTH} levels", "a deeper nesting")
            self.stack.append(_Frame(path, value))

    def _slot(self, frame: _Frame | None, mark: Mark) -> tuple[Path, Mark]:
        """Path and key position of the value that comes next."""
        if frame is None:
            return (), mark
        if isinstance(frame.holds, list):
            return (*frame.path, len(frame.holds)), mark
        return (*frame.path, frame.key or ""), frame.mark

    def _value(self, event: yaml.NodeEvent, mark: Mark, path: Path) -> tuple[Json, str | None]:
        if isinstance(event, yaml.AliasEvent):
            self._refuse(mark, path, "the value itself", "an alias (`*name`)", "anchors and aliases are not read: write the value out")
            return None, None
        if event.anchor is not None:
            self._refuse(mark, path, "the value alone", "an anchor (`&name`)", "anchors and aliases are not read: write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._refuse(mark, path, "the value alone", f"a tag ({quoted(tag)})", "tags are not read: remove it")
        if isinstance(event, yaml.MappingStartEvent):
            return {}, None
        if isinstance(event, yaml.SequenceStartEvent):
            return [], None
        text = str(getattr(event, "value", ""))
        if not getattr(event, "implicit", (False,))[0] or tag is not None:
            return text, text
        try:
            return read_plain(text), text
        except Unclear as unclear:
            if below_reference(path):
                self._refuse(mark, path, "text in quotes", "a plain word that readers disagree on")
            else:
                self._refuse(mark, path, "a clear value", quoted(text), str(unclear))
            return text, text

    def _key(self, frame: _Frame, event: yaml.NodeEvent, mark: Mark) -> None:
        """Take a key; duplicates, merges and non-text keys are findings, and reading goes on."""
        if not isinstance(event, yaml.ScalarEvent):
            self._stop(
                mark, frame.path, "a key of plain text", "an alias" if isinstance(event, yaml.AliasEvent) else "a list or mapping as key"
            )
        word = event.value
        frame.key, frame.mark = word, mark
        path = (*frame.path, word)
        hidden = below_reference(frame.path)
        name = "the key" if hidden else f"the key {quoted(word)}"
        where = frame.path if hidden else path
        if event.anchor is not None or event.tag is not None:
            self._refuse(mark, path, "the key alone", "an anchor or a tag", "anchors and tags are not read: remove it", where)
        if word in frame.seen:
            self._refuse(mark, path, "each key once", f"{name} again", f"first on line {frame.seen[word]}", where)
        frame.seen.setdefault(word, mark[0])
        if not event.implicit[0]:
            return
        if word == "<<":
            self._refuse(mark, path, "a key", "a merge (`<<`)", "merges are not read: write the keys out", where)
            return
        try:
            meant = read_plain(word)
        except Unclear as unclear:
            self._refuse(mark, path, "a key in quotes", name, "" if hidden else str(unclear), where)
            return
        if not isinstance(meant, str):
            self._refuse(mark, path, "a text as key", name, "" if hidden else f'write "{word}"', where)

    def _refuse(self, mark: Mark, path: Path, expected: str, found: str, hint: str = "", shown: Path | None = None) -> None:
        self.source.broken.add(path)
        self.source.add(mark, path if shown is None else shown, expected, found, hint)

    def _stop(self, mark: Mark, path: Path, expected: str, found: str, hint: str = "") -> NoReturn:
        self.source.add(mark, path, expected, found, hint)
        raise _Stop
