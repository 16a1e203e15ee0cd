"""A file that a plan names is read with it: lines that are wrong are findings of that file, and nothing outside the folder is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import PlanError
from rollout.plan.finding import Finding
from rollout.plan.lines import MAX_BYTES
from rollout.plan.load import load_plan
from tests.unit.plan.test_margins_and_history import GOOD, HEADER, MANY, window


def plan(folder: Path, named: str) -> Path:
    file = folder / "plan.yaml"
    file.write_text(f"{GOOD}evidence: {{history: {named}}}\n")
    return file


def found(folder: Path, named: str, *lines: Any) -> list[Finding]:
    if lines:
        (folder / named).write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    with pytest.raises(PlanError) as caught:
        load_plan(plan(folder, named))
    return [f for f in caught.value.findings if isinstance(f, Finding)]


def test_the_lines_become_a_part_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "aa.jsonl").write_text("\n".join(map(json.dumps, [HEADER, *MANY, window(id=77)])) + "\n\n")
    loaded = load_plan(plan(tmp_path, "below/aa.jsonl"))
    assert [row.get("id") for row in loaded.plan.evidence.history or ()] == [None, *range(1, len(MANY) + 1), 77]
    (tmp_path / "below" / "aa.jsonl").write_text("\n".join(map(json.dumps, [HEADER, *MANY, window(id=78)])))
    assert load_plan(tmp_path / "plan.yaml").digest != loaded.digest, "what the file says is a part of what the plan says"


def test_each_wrong_line_is_named_in_the_file_itself(tmp_path: Path) -> None:
    bad = found(tmp_path, "aa.jsonl", HEADER, "", window(id=-1), window(canary={"requests": 1, "errors": 2}))
    assert [(f.file, f.line, f.key) for f in bad] == [
        (str(tmp_path / "aa.jsonl"), 3, "id"),
        (str(tmp_path / "aa.jsonl"), 4, "canary.errors"),
    ]
    assert str(bad[1]).endswith("aa.jsonl:4:1: canary.errors: expected at most `requests` (1), found `2`")


def test_a_line_that_is_no_object_is_told_with_its_column(tmp_path: Path) -> None:
    assert [(f.line, f.column) for f in found(tmp_path, "aa.jsonl", HEADER, '{"id": }', "[1]")] == [(2, 8), (3, 1)]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("aaa.jsonl", "found none of that name (did you mean aa.jsonl?)"),
        ("../aa.jsonl", "found `../aa.jsonl` (write its path as seen from the plan"),
        ("/etc/hostname", "found `/etc/hostname`"),
        ("link.jsonl", "found a link that leads out of it (copy the file there"),
        ("inner", "found a folder (name the file itself)"),
        ("large.jsonl", "found a larger one"),
        ("bytes.jsonl", "the byte 0xFF in `bytes.jsonl`"),
        ("empty.jsonl", "a header as the first line"),
    ],
)
def test_a_name_that_is_no_good_is_one_finding(tmp_path: Path, named: str, words: str) -> None:
    folder = tmp_path / "plans"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "aa.jsonl").write_text("{}")
    (folder / "aa.jsonl").write_text("{}")
    (folder / "link.jsonl").symlink_to(tmp_path / "aa.jsonl")
    (folder / "large.jsonl").write_bytes(b" " * (MAX_BYTES + 1))
    (folder / "bytes.jsonl").write_bytes(b"\xff")
    (folder / "empty.jsonl").write_bytes(b"")
    (one,) = found(folder, named)
    assert words in str(one)


def test_a_secret_in_such_a_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    secret = "gpustack_0123456789abcdef_0123456789abcdef0123456789abcdef"
    (one,) = found(tmp_path, "aa.jsonl", {**HEADER, "note": secret}, window())
    assert (one.line, one.found) == (1, "a secret (not shown)")
    assert secret not in str(one)
