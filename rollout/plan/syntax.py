"""Why a text is not YAML, in words and with a place; and which characters a plan may hold. Pure.

Never repeats a line of the file: it may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

Mark = tuple[int, int]
Told = tuple[Mark, str, str, str]
"""place, expected, found, hint"""

# Everything invisible that changes how a line is read or where it ends: controls, other line breaks, direction marks, a stray BOM.
_BAD = re.compile("[^\t\n\r\x20-\x7e\xa0-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAB = re.compile(r"^ *\t[ \t]*(?=\S)", re.MULTILINE)
_BREAK = re.compile(r"\r\n|\r|\n")
MOST = 20
"""findings of one kind"""


def mark_at(text: str, index: int) -> Mark:
    """Line and column of a character, counted from 1."""
    start, line = 0, 1
    for found in _BREAK.finditer(text, 0, index):
        start, line = found.end(), line + 1
    return line, index - start + 1


def bad_characters(text: str) -> list[Told]:
    """Control and invisible characters, at most `MOST`."""
    told: list[Told] = []
    for found in _BAD.finditer(text):
        name = f"the character U+{ord(found[0]):04X}"
        hint = "a binary file?" if found[0] == "\0" else 'where it is meant, write it as "\\u…" in double quotes'
        told.append((mark_at(text, found.start()), "visible text", name, hint))
        if len(told) == MOST or found[0] == "\0":
            break
    return told


def explain_syntax(error: yaml.YAMLError, text: str) -> Iterator[Told]:
    """What the parser could not read. Tabs are the usual cause: then every line that is indented with one is named."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "")
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    tabs = [m for m in _TAB.finditer(text) if mark is None or m.start() <= mark.index]
    if "cannot start any token" in problem and mark is not None and text[mark.index : mark.index + 1] == "\t" and tabs:
        for found in list(_TAB.finditer(text))[:MOST]:
            yield mark_at(text, found.start()), "spaces as indentation", "a tab", ""
        return
    opened = getattr(error, "context_mark", None)
    expected, found_, hint = _words(problem, text[mark.index : mark.index + 1] if mark is not None else "", opened)
    past = line > len(_BREAK.findall(text)) + 1
    yield mark_at(text, len(text)) if past else (line, column), expected, found_, hint


def _words(problem: str, character: str, opened: yaml.Mark | None) -> tuple[str, str, str]:
    where = f"line {opened.line + 1}" if opened is not None else "above"
    if "mapping values are not allowed" in problem:
        return "one `key: value` on a line", "a second `:`", "put a value that holds `: ` in quotes, and look at the indentation"
    if "cannot start any token" in problem:
        return "a value", f"`{character}` at its beginning", "put the value in quotes"
    if "end of stream" in problem:
        return "a closing quote", "the end of the file", f"the quote on {where} is not closed"
    if "',' or" in problem:
        bracket = "]" if "]" in problem else "}"
        return f"`,` or `{bracket}`", "something else", f"the bracket on {where} is not closed"
    if "could not find expected ':'" in problem:
        return "`:` after a key", "none", f"look at the key on {where} and at the indentation"
    if "block end" in problem or "expected key" in problem or "'-' indicator" in problem:
        return "a key or `- ` in line with those before", "something else", f"look at the indentation since {where}"
    if "nesting depth" in problem:
        return "at most 32 levels", "a deeper nesting", ""
    if "unexpected ':'" in problem:
        return "a value after `: `", "`:` at its beginning", "put the value in quotes, or write one"
    said = problem.removeprefix("found ").removeprefix("unexpected ")
    return "YAML", said or "something else", "put a value that holds `: ` or begins with a sign in quotes"
