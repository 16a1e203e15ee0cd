"""What looks like a secret: by the name it stands behind, or by itself. Pure; knows no plan and no spec, and repeats nothing.

Errs towards hiding: a value that is hidden without need costs a look at the server, one that is shown without need costs a new key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

KNOWN = re.compile(
    r"gpustack_[0-9A-Za-z]{6,}(?:_[0-9A-Za-z]+)*"
    r"|\b(?:sk|pk|rk)[-_][0-9A-Za-z_-]{12,}"
    r"|\bhf_[0-9A-Za-z]{16,}"
    r"|\bgh[opsur]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abprs]-[\w-]{10,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:.*?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|.*)",
    re.DOTALL,
)
IN_URL = re.compile(r"""(?<=://)(?:[^/\s@'"]+|[^\s/@:'"]*:(?!\d+/)(?:(?!://)[^\s'"])*)(?=@)""")
"""user and password; a password may hold `/` and `@` but no `://` (a text full of those would be read over and over), a port is none"""
IN_ADDRESS = re.compile(r"""(?<![\w/:.+-])[\w.+-]+:[^\s@/:'"]+(?=@(?!sha\d+:))""")
"""the same without a scheme; `image:tag@sha256:…` is none"""

_SECRET = re.compile(
    r"key|token|secret|pass|pwd|cred|auth|bearer|cookie|signature|connection_?string|(?:^|_)(?:pat|pin|psk|salt|dsn|jwt|otp|sig)(?:_|$)"
)
_INNOCENT = re.compile(
    r"(?:de)?tokeni[sz][a-z]*|token_ids?|(?:bos|eos|pad|unk|sep|cls|mask|special|added|stop|image|video|audio|draft)_tokens?"
    r"|pass(?:through|es|ive)|(?:by|com)_?pass|keywords?|key(?:point|frame|board)s?|monkey|authors?(?!i)"
)
"""words of engines that only sound like secrets; they are taken out of a name before it is judged"""
_ON_OFF = re.compile(r"(?:true|false|yes|no|on|off|none|null|auto|0|1)?", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d{1,10}(?:[.,]\d{1,10})*(?:e[+-]?\d{1,3})?(?:[kmgt]i?b?|%|ms|s|m|h|d)?", re.IGNORECASE)
_ELSEWHERE = re.compile(r"\$\{?[A-Z][A-Z0-9_]*\}?|\{\{\s*\w+\s*\}\}")
"""a name that is filled in where the engine runs: `$API_KEY`, `{{port}}`"""
_FILE = re.compile(r"(?:/[\w.@+-]+)+\.(?:pem|key|crt|cert|json|ya?ml|txt|toml|p12|pfx)")
_PLACE = re.compile(r"(?:/[\w.@+-]+){2,}/?")
_RUN = re.compile(r"[A-Za-z0-9_+=~-]{20,}")
_PIECE = re.compile(r"[A-Za-z0-9]{20,}")
_HEX = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_REVISION = re.compile(r"(?:sha(?:1|256|512):|[/@]|(?:revision|commit|digest)[=:\s]+)$", re.IGNORECASE)

KNOBS = re.compile(
    r"(?:VLLM|SGLANG|SGL|LMCACHE|FLASHINFER|TRITON|TORCH|TORCHINDUCTOR|PYTORCH|NCCL|GLOO|UCX|NVSHMEM|RAY|CUDA|CUBLAS|CUDNN|NVIDIA|ROCM"
    r"|HIP|HSA|ROCR|ASCEND|HCCL|OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|MALLOC|TOKENIZERS|TRANSFORMERS|SAFETENSORS|HF_HUB|XDG|LC)_\w+"
    r"|HF_HOME|HF_DATASETS_CACHE|HUGGINGFACE_HUB_CACHE|SGLANG|PYTHON(?:PATH|UNBUFFERED|HASHSEED|DONTWRITEBYTECODE)|PATH|LD_LIBRARY_PATH"
    r"|LD_PRELOAD|HOME|TMPDIR|TZ|LANG|LANGUAGE|LOG_LEVEL|LOGLEVEL"
)
"""names of an environment whose values are known to steer engines, and to be no secret unless their name says so"""


def secret_name(name: str, value: object = "") -> bool:
    """Whether what stands behind `name` (a flag, a variable, a key) is a secret; a count of tokens is none."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").replace(".", "_").lower()
    plain = _INNOCENT.sub("", plain)
    if _NUMBER.fullmatch(str(value)):
        plain = plain.replace("tokens", "")
    return _SECRET.search(plain) is not None


def plain_behind(name: str, value: str) -> bool:
    """Whether `value` is no secret although `name` sounds like one: on or off, the name of a variable, the path of a file."""
    if _ON_OFF.fullmatch(value) or _ELSEWHERE.fullmatch(value) or _FILE.fullmatch(value):
        return True
    return bool(re.search(r"(?:file|path|dir)s?$", name, re.IGNORECASE) and _PLACE.fullmatch(value))


def harmless(value: str) -> bool:
    """Whether `value` can be no secret whatever it is called: a number, on or off."""
    return bool(_ON_OFF.fullmatch(value) or _NUMBER.fullmatch(value) or _ELSEWHERE.fullmatch(value))


def by_itself(text: str, before: str = "", *, random: bool = True) -> list[tuple[int, int]]:
    """Spans of `text` that look like secrets wherever they stand. `before`: what stands in front of it, such as `--revision`.

    `random`: also what is long and looks drawn at random; digests and revisions do too, and are left where one is expected.
    """
    spans = [m.span() for pattern in (KNOWN, IN_URL, IN_ADDRESS) for m in pattern.finditer(text)]
    if random:
        spans += _random(text, before)
    return _joined(sorted(spans))


def _random(text: str, before: str) -> Iterator[tuple[int, int]]:
    for run in _RUN.finditer(text):
        for piece in _PIECE.finditer(text, *run.span()):
            word = piece[0]
            ahead = f"{before} {text[: piece.start()]}" if before else text[: piece.start()]
            if _drawn(word) and not (_HEX.fullmatch(word) and _REVISION.search(ahead)):
                yield run.span() if _joint(run[0]) else piece.span()
                break


def _joint(run: str) -> bool:
    """Whether all of a run belongs to the secret in it; `--flag=` before it does not."""
    return "=" not in run.rstrip("=") and not run.startswith("-")


def _drawn(word: str) -> bool:
    """Letters and digits change as often as in drawn text; in a name they come in words. Measured on names of models and on keys."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in word]
    changes = sum(a != b for a, b in pairwise(kinds)) / (len(word) - 1)
    return changes >= (0.38 if {"u", "l"} <= set(kinds) else 0.25)


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
