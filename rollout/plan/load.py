"""A plan file -> a frozen plan, or every reason why not. Reads one file or standard input, and what the plan names beside it.

Writes nothing, asks no server.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from rollout.errors import PlanError
from rollout.plan import history
from rollout.plan.explain import add_findings
from rollout.plan.finding import Finding, Path, key_of
from rollout.plan.hidden import below_reference, is_secret, keys_in, secret_places
from rollout.plan.inline import inlined, refuse_inlined
from rollout.plan.lines import Check, inline
from rollout.plan.model import Plan
from rollout.plan.reading import beginning
from rollout.plan.source import MAX_FINDINGS, Source, read_source
from rollout.plan.syntax import bad_characters, mark_at

MAX_BYTES = 1 << 20
STDIN = "<stdin>"
NAMED: dict[Path, Check] = {("evidence", "history"): history.problems}
"""places of a plan that name a file, and what its lines must be"""


@dataclass(frozen=True)
class LoadedPlan:
    """A valid plan and where it came from. `text` is the file without a byte order mark; `digest` is `plan_digest(plan)`."""

    plan: Plan
    text: str = field(repr=False)
    path: str
    digest: str


def load_plan(path: str | FilePath) -> LoadedPlan:
    """The plan in a file; `-` reads standard input. Raises PlanError (exit code 3) with all findings, ordered by line."""
    name = STDIN if str(path) == "-" else str(path)
    text = _text(_read(path, name), name)
    plan = parse_plan(text, name, FilePath() if name == STDIN else FilePath(path).parent)
    return LoadedPlan(plan, text, name, plan_digest(plan))


def parse_plan(text: str, file: str = "plan", folder: FilePath | None = None) -> Plan:
    """The plan in `text`; `file` is its name in messages. Raises PlanError with all findings, ordered by line.

    Files that the plan names are read as seen from `folder` and are part of the plan from then on; None: none can be named.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise _one(file, f"a plan of at most {MAX_BYTES >> 20} MiB", "a larger one", "is this the right file?")
    bad = bad_characters(text)
    if bad:
        raise _failed(file, [Finding(file, *mark, "", expected, found, hint) for mark, expected, found, hint in bad])
    source = read_source(text, file)
    plan = None
    if source.complete:
        _secrets(source)
        where = FilePath() if folder is None else folder
        for path, check in NAMED.items():
            inline(source, where, path, check)
        refuse_inlined(source)
        plan = _validate(source)
        if plan is not None and not source.findings:
            plan = inlined(plan, source, where)
        _remarks(source, text)
    if plan is None or source.findings:
        raise _failed(file, source.findings)
    return plan


def plan_again(stored: dict[str, Any], rollout_id: str) -> Plan:
    """The plan that a rollout was started with. Raises PlanError when this release reads it otherwise than the one that stored it."""
    try:
        return Plan.model_validate(stored)
    except ValidationError as error:
        keys = "; ".join(f"`{key_of(tuple(e['loc']))}`" for e in error.errors(include_input=False, include_url=False)[:5])
        raise PlanError(
            f"The plan of rollout {rollout_id} cannot be read by this release.",
            why=f"It was stored by another one, and differs in {keys}.",
            hint="Go on with that release; `rollout rollback --route NAME --server URL --store ANOTHER` goes back from the route's marker.",
        ) from None


def plan_digest(plan: Plan) -> str:
    """SHA-256 (hex) over what the plan says, as canonical JSON.

    Comments, order of keys, `60s` for `1m` and written-out defaults do not matter; a key that a newer release adds does not either.
    """
    said = plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def _validate(source: Source) -> Plan | None:
    if source.data is None:
        source.add((1, 1), (), "a plan", "an empty file", "`plans/minimal.yaml` is a beginning")
        return None
    if not isinstance(source.data, dict):
        found = "a list" if isinstance(source.data, list) else "a single value"
        source.add((1, 1), (), "a mapping with the keys of a plan (`apiVersion`, `kind`, …)", found)
        return None
    try:
        return Plan.model_validate(source.data)
    except ValidationError as error:
        add_findings(error, source)
        return None


def _secrets(source: Source) -> None:
    """Refuse secrets wherever they stand; what is refused here is not looked at again."""
    change = source.data.get("change") if isinstance(source.data, dict) else None
    known = {("change", "to", *path) for path in secret_places(change.get("to"))} if isinstance(change, dict) else set()
    for path, place in source.places.items():
        if place.text is None or not path:
            continue
        if isinstance(path[-1], str) and is_secret((), path[-1]):
            source.broken.add(path)
            source.add(place.key, path, "a key", "a secret (not shown)", "a plan is stored and shown: replace the secret, it is known now")
        elif path in known or is_secret(path, place.text):
            source.secret.add(path)
            source.add(place.value, path, *_instead(path))


def _remarks(source: Source, text: str) -> None:
    """Refuse secrets in comments too: the file is stored as it is. What stands in a key or a value was looked at there."""
    values = [place.text for place in source.places.values() if place.text]
    looked_at = "\n".join([*values, *(str(path[-1]) for path in source.places if path)])
    for at, secret in keys_in(text)[:MAX_FINDINGS]:
        if secret not in looked_at:
            hint = "a plan is stored and shown: remove it, also from a comment"
            source.add(mark_at(text, at), (), "no secret in a plan", "a secret (not shown)", hint)


def _instead(path: Path) -> tuple[str, str, str]:
    found = "a secret (not shown)"
    if below_reference(path):
        return "a reference: `{env: NAME}` or `{file: PATH}`", found, "the secret itself never enters a plan"
    if path[:2] == ("change", "to"):
        return "no secret in a plan", found, "set it on stable's deployment in GPUStack: the canary takes it over"
    return "no secret in a plan", found, "a plan is stored and shown: remove it"


def _read(path: str | FilePath, name: str) -> bytes:
    """At most one byte more than a plan may have, so that a huge file costs nothing."""
    try:
        if name == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        return beginning(path, MAX_BYTES + 1)
    except FileNotFoundError:
        folder = FilePath(path).parent
        beside = [p.name for p in folder.glob("*.y*ml")] if folder.is_dir() else []
        near = get_close_matches(FilePath(path).name, beside, n=1, cutoff=0.5)
        hint = f"did you mean {folder / near[0]}?" if near else ""
        raise _one(name, "a file", "none of that name", hint) from None
    except IsADirectoryError:
        raise _one(name, "a file", "a folder", "name the plan inside it") from None
    except TimeoutError:
        raise _one(name, "a file that can be read", "a pipe that nobody writes to", "name a file, or write to it") from None
    except (OSError, ValueError) as error:
        raise _one(name, "a file that can be read", getattr(error, "strerror", None) or "an impossible name") from None


def _text(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise _one(name, f"a plan of at most {MAX_BYTES >> 20} MiB", "a larger file", "is this the right file?")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _one(name, "UTF-8 text", "UTF-16 text", "save the file as UTF-8")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        mark = mark_at(before, len(before))
        found = Finding(name, *mark, "", "UTF-8 text", f"the byte 0x{data[error.start]:02X}", "save the file as UTF-8")
    raise _failed(name, [found])


def _one(name: str, expected: str, found: str, hint: str = "") -> PlanError:
    return _failed(name, [Finding(name, 1, 1, "", expected, found, hint)])


def _failed(name: str, findings: list[Finding]) -> PlanError:
    ordered = sorted(dict.fromkeys(findings), key=lambda f: (f.file != name, f.line, f.column))
    shown, more = ordered[:MAX_FINDINGS], len(ordered) - MAX_FINDINGS
    count = f"{len(ordered)} finding" + ("s" if len(ordered) != 1 else "")
    why = f"the first {MAX_FINDINGS} are shown, {more} more follow" if more > 0 else "each finding names its place"
    hint = "correct them, then `rollout validate` the file again; nothing was changed"
    return PlanError(f"{name} is not a valid plan: {count}", findings=shown, why=why, hint=hint)
