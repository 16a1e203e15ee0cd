"""Prompts of about a wanted number of tokens, the same on every run. Pure.

Words of three letters with a space: one token each in the usual vocabularies, four characters by the usual rule of thumb. Each
prompt differs from its first word on, so that an engine's prefix cache does not answer for it.
"""

from __future__ import annotations

import random

_TEXT = (
    "the and for are but not you all any can had her was one our out day get has him his how man new now old see two way who boy did its "
    "let put say she too use sun sea sky air box car cat dog ear eye far few fly fun hat ice ink job key leg lie map net oil own pen pot "
    "red run sad sit six ten tea top try van war wet win yes"
)
_WORDS = _TEXT.split()


def prompt_of(tokens: int, seed: str) -> str:
    """`tokens` words chosen by `seed`."""
    return " ".join(random.Random(seed).choices(_WORDS, k=tokens))
