"""The one way of a value from a live deployment into a receipt, the journal, a message or the screen. Pure; what it gets stays as it is.

A `Veil` walks a JSON value with everything that may be nested in it and asks `put` what to show in place of each secret. Variables of
an environment are hidden unless they are known to be none; everything else is hidden when its name or its look says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rollout.plan.finding import Path
from rollout.plan.lookalike import KNOBS, by_itself, harmless, plain_behind, secret_name
from rollout.plan.words import HEADER, WORD, Awaited, argument_part, secret_part, unquoted, wrapped

Json = Any
Put = Callable[[str, str, Path, bool], str]
"""name, secret, where, whether it is surely one -> what is shown"""
Edit = tuple[int, int, str]

PLAIN = frozenset(
    {
        *("name", "source", "image_name", "backend", "backend_version", "local_path", "huggingface_repo_id", "huggingface_filename"),
        *("model_scope_model_id", "model_scope_file_path", "worker", "worker-name", "version", "kernel"),
    }
)
"""fields that name an image, a model or a place: hidden only where they hold a known kind of key, or a password in a URL"""
ENVIRONMENTS = frozenset({"env", "envs", "environment", "environ", "env_vars", "environment_variables"})
DEEPEST = 64
"""levels of values in values and text in text; what is nested deeper is hidden whole"""
LONGEST = 1 << 15
"""characters of one text; a longer one is hidden whole: nobody reads it, and looking at it costs time"""


class Veil:
    """`put` decides what stands in a secret's place."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._hidden: list[str] = []
        self._depth = 0

    def value(self, value: Json, name: str = "", path: Path = ()) -> Json:
        """A copy of `value` with every secret replaced; `name` is the key it stands behind."""
        if self._depth >= DEEPEST:
            return self._hide(name, value if isinstance(value, str) else "nested too deep", path)
        self._depth += 1
        shown = self._value(value, name, path)
        self._depth -= 1
        return shown

    def _value(self, value: Json, name: str, path: Path) -> Json:
        if value is None or isinstance(value, bool):
            return value
        if name.lower() in ENVIRONMENTS:
            return self._environment(value, path)
        if isinstance(value, Mapping):
            return self._mapping(value, name, path)
        if isinstance(value, list | tuple):
            return self._list(value, name, path)
        if secret_name(name, value) and not plain_behind(name, str(value)):
            return self._hide(name, str(value), path)
        if not isinstance(value, str):
            return value
        return self._looks(value, path, random=False) if name in PLAIN else self.text(value, path)

    def text(self, text: str, path: Path = (), awaited: Awaited | None = None) -> str:
        """`text` with every secret in it replaced; `awaited` is carried from one item of a list to the next."""
        if self._depth >= DEEPEST or len(text) > LONGEST:
            return self._hide("", text, path, sure=False)
        before = len(self._hidden)
        self._depth += 1
        shown = self._text(text, path, awaited or Awaited())
        self._depth -= 1
        if "\\" in text and self._more_when_unescaped(text, self._hidden[before:]):
            return self._hide("", text, path)
        return shown

    def _text(self, text: str, path: Path, awaited: Awaited) -> str:
        read = _json(text)
        if read is not None:
            count = len(self._hidden)
            walked = self.value(read, "", path)
            return text if len(self._hidden) == count else json.dumps(walked, ensure_ascii=False)
        header = HEADER.fullmatch(text)
        if header and secret_name(header[1], header[2]) and not plain_behind(header[1], header[2]):
            return text[: header.start(2)] + self._hide(header[1], header[2], path)
        before = awaited.last
        edits = self._words(text, path, awaited)
        for begin, end in by_itself(text, before):
            if not any(b <= begin and end <= e for b, e, _ in edits):
                over = [e for e in edits if e[0] < end and begin < e[1]]
                begin, end = min([begin, *(e[0] for e in over)]), max([end, *(e[1] for e in over)])
                edits = [*(e for e in edits if e not in over), (begin, end, self._hide("", text[begin:end], path))]
        return _edited(text, edits)

    def _words(self, text: str, path: Path, awaited: Awaited) -> list[Edit]:
        edits: list[Edit] = []
        for word in WORD.finditer(text):
            raw, bare, quote = word[0], unquoted(word[0]), wrapped(word[0])
            name, taken = awaited.name, awaited.takes(bare)
            if taken and bare[:1] in ("{", "["):
                edits.append((word.start(), len(text), self._hide(name, text[word.start() :], path)))
                break
            if taken:
                edits.append((*word.span(), quote + self._hide(name, bare, path) + quote))
            if taken is not False:
                awaited.last = bare
                continue
            shown = self._word(raw, bare, path, awaited, whole=raw == text)
            if shown is not None:
                edits.append((*word.span(), quote + shown + quote))
        return edits

    def _word(self, raw: str, bare: str, path: Path, awaited: Awaited, *, whole: bool) -> str | None:
        """What is shown in place of one word, without its quotes; None = the word itself."""
        nested = any(c.isspace() for c in bare) or "\\" in raw or _json(bare) is not None
        expected = Awaited(awaited.name, awaited.kind, awaited.count, awaited.last) if nested else awaited
        part = secret_part(bare, expected)
        if part is not None and (not nested or bare[: part.begin].count(" ") == 0):
            awaited.last = bare
            secret = bare[part.begin :]
            shown = self._hide(part.name, secret, path) if part.sure else self._variable(part.name, secret, path)
            return self._looks(bare[: part.begin], path, random=True) + str(shown) if shown != secret else None
        if nested and not (whole and raw == bare):
            awaited.last = bare
            inner = self.text(bare, path)
            return inner if inner != bare else None
        if nested:
            awaited.name, awaited.kind, awaited.count, awaited.last = expected.name, expected.kind, expected.count, expected.last
        return None

    def _mapping(self, value: Mapping[str, Json], name: str, path: Path) -> Json:
        inherited = name if secret_name(name) else ""
        named = value.get("name") if set(value) >= {"name", "value"} else None
        return {
            self._looks(str(key), path, random=False): self.value(
                item, inherited or (str(named) if named and key == "value" else str(key)), (*path, key)
            )
            for key, item in value.items()
        }

    def _list(self, value: list[Json] | tuple[Json, ...], name: str, path: Path) -> list[Json]:
        if secret_name(name):
            return [self.value(item, name, (*path, i)) for i, item in enumerate(value)]
        shown: list[Json] = []
        awaited = Awaited()
        for index, item in enumerate(value):
            at = (*path, index)
            if not isinstance(item, str):
                shown.append(self.value(item, awaited.name, at))
                awaited = Awaited()
                continue
            behind, taken = awaited.name, awaited.takes(item)
            begin = 0 if taken else argument_part(item)
            if taken is None:
                shown.append(item)
            elif begin is not None:
                shown.append(item[:begin] + self._hide(behind if taken else item[:begin], item[begin:], at))
            else:
                shown.append(self.text(item, at, awaited))
            awaited.last = item if taken is not False else awaited.last
        return shown

    def _environment(self, value: Json, path: Path) -> Json:
        if isinstance(value, Mapping):
            return {self._looks(str(k), path, random=False): self._variable(str(k), v, (*path, k)) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._item(item, (*path, i)) for i, item in enumerate(value)]
        return self._item(value, path)

    def _item(self, value: Json, path: Path) -> Json:
        """One of an environment that is written as a list: `NAME=value`, or a mapping with `name` and `value`."""
        if isinstance(value, Mapping) and set(value) >= {"name", "value"}:
            rest = {str(k): self.value(v, str(k), (*path, k)) for k, v in value.items()}
            return {**rest, "value": self._variable(str(value["name"]), value["value"], (*path, "value"))}
        if isinstance(value, str) and "=" in value:
            name, _, text = value.partition("=")
            return f"{name}={self._variable(name, text, path)}"
        return self._environment(value, path) if isinstance(value, Mapping | list | tuple) else self.value(value, "", path)

    def _variable(self, name: str, value: Json, path: Path) -> Json:
        """An unknown variable may hold anything, so only numbers, on/off and the knobs of engines are shown."""
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        if secret_name(name, text):
            return value if plain_behind(name, text) else self._hide(name, text, path)
        if harmless(text):
            return value
        if KNOBS.fullmatch(name):
            return self.text(text, path)
        return self._hide(name, text, path, sure=bool(secrets_in(text)))

    def _looks(self, text: str, path: Path, *, random: bool) -> str:
        return _edited(text, [(b, e, self._hide("", text[b:e], path)) for b, e in by_itself(text, random=random)])

    def _hide(self, name: str, secret: str, path: Path, *, sure: bool = True) -> str:
        self._hidden.append(secret)
        return self._put(name, secret, path, sure)

    def _more_when_unescaped(self, text: str, hidden: list[str]) -> bool:
        r"""Whether text with `\"` in it, read as if that were `"`, holds a secret that was not seen. Then nobody knows how it is read."""
        plain = text.replace('\\"', '"').replace("\\'", "'")
        return plain != text and any(not any(s in one for one in hidden) for s in secrets_in(plain))


def secrets_in(value: Json, name: str = "") -> list[str]:
    """Every secret in `value`."""
    found: list[str] = []

    def note(_name: str, secret: str, _path: Path, _sure: bool) -> str:
        found.append(secret)
        return "***"

    Veil(note).value(value, name)
    return found


def _json(text: str) -> Json:
    """The mapping or list that `text` is the JSON of; None for anything else."""
    if text.strip()[:1] not in ("{", "["):
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict | list) else None


def _edited(text: str, edits: list[Edit]) -> str:
    for begin, end, shown in sorted(edits, reverse=True):
        text = text[:begin] + shown + text[end:]
    return text
