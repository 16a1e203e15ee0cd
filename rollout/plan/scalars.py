"""What a plain (unquoted) word in a plan means. Pure.

YAML 1.1 and 1.2 read some words differently: `no`, `010`, `1_000`, `12:30`, `2026-01-01`, `1e3`. Editors follow one, many
libraries the other. Such a word is refused until it is quoted, so that a plan means the same to everyone who reads it.
"""

from __future__ import annotations

import re
from typing import Any

Json = Any

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_BOOL = frozenset(form for word in ("yes", "no", "on", "off", "y", "n") for form in (word, word.capitalize(), word.upper()))
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})(?:[eE][-+][0-9]{1,2})?")
_UNCLEAR = re.compile(
    r"[-+]?0[0-9_]+"  # octal in one, decimal in the other
    r"|[-+]?[0-9][0-9_]*"  # underscores, or longer than a number we can hold
    r"|[-+]?0[xob][0-9A-Fa-f_]+"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # base 60
    r"|[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?"
)


class Unclear(ValueError):
    """A plain word that needs quotes (or another writing) to mean one thing. `args[0]` says what to write."""


def read_plain(word: str) -> Json:
    """None, bool, int, float or the word itself. Raises `Unclear` with the remedy."""
    if word in _NULL:
        return None
    if word in _BOOL:
        return _BOOL[word]
    if word in _OLD_BOOL:
        value = "true" if word.lower() in ("yes", "on", "y") else "false"
        msg = f'some YAML readers take it for a boolean: write "{word}" for the word, {value} for the boolean'
        raise Unclear(msg)
    if _WHOLE.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word):
        return float(word)
    if _UNCLEAR.fullmatch(word):
        msg = f'YAML readers disagree on what it is: write "{word}" for the text, or a plain decimal number'
        raise Unclear(msg)
    return word
