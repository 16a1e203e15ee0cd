"""A prompt set beside a plan: read and kept with it, never from anywhere else; what is wrong names file, line and key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rollout.errors import PlanError
from rollout.plan.load import load_plan, plan_again, plan_digest
from rollout.plan.prompts import MAX_BYTES
from tests.unit.plan.kit import plus

SET = '{"id": "q1", "prompt": "How many?", "expected": "Three"}\n{"prompt": "Who?", "expected": "Ana"}\n'


def written(folder: Path, file: str = "sets/q.jsonl", content: str | None = SET) -> Path:
    """A plan in `folder/plans` that names `file`; its set, unless there shall be none."""
    home = folder / "plans"
    (home / "sets").mkdir(parents=True, exist_ok=True)
    if content is not None:
        (home / "sets" / "q.jsonl").write_text(content)
    plan = home / "plan.yaml"
    plan.write_text(plus(f"evidence: {{quality: {{file: {json.dumps(file)}}}}}"))
    return plan


def refused(plan: Path) -> list[str]:
    with pytest.raises(PlanError) as caught:
        load_plan(plan)
    assert caught.value.exit_code == 3
    return [str(f) for f in caught.value.findings]


def test_the_set_is_in_the_plan_and_the_file_is_not_needed_again(tmp_path: Path) -> None:
    file = written(tmp_path)
    loaded = load_plan(file)
    quality = loaded.plan.evidence.quality
    assert quality is not None
    assert [(p.id, p.prompt, p.expected) for p in quality.prompts] == [("q1", "How many?", "Three"), ("2", "Who?", "Ana")]
    (file.parent / "sets" / "q.jsonl").unlink()
    stored = json.loads(json.dumps(loaded.plan.model_dump(mode="json", by_alias=True)))
    assert plan_again(stored, "r1") == loaded.plan
    assert plan_digest(plan_again(stored, "r1")) == loaded.digest
    assert "How many?" not in repr(loaded)


def test_another_set_is_another_plan(tmp_path: Path) -> None:
    before = load_plan(written(tmp_path)).digest
    assert load_plan(written(tmp_path, content=SET.replace("Three", "Four"))).digest != before


def test_mistakes_in_the_set_name_its_file_line_and_key(tmp_path: Path) -> None:
    found = refused(written(tmp_path, content=SET + '{"prompt": "Why?"}\n{"prompt": 3, "expected": "x"}\n'))
    assert [f.rpartition("/")[2].split(": ")[:2] for f in found] == [["q.jsonl:3:1", "expected"], ["q.jsonl:4:1", "prompt"]]


def test_a_missing_file_is_told_at_its_key_with_the_nearest_name(tmp_path: Path) -> None:
    (said,) = refused(written(tmp_path, "sets/p.jsonl"))
    assert ":15:28: evidence.quality.file: expected a file in the plan's folder or below, found none of that name" in said
    assert "did you mean q.jsonl?" in said


@pytest.mark.parametrize("name", ["../outside.jsonl", "/etc/hostname", "sets/../../outside.jsonl", "link.jsonl", "away/outside.jsonl"])
def test_nothing_outside_the_plan_s_folder_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.jsonl").write_text(SET)
    file = written(tmp_path, name)
    (file.parent / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (file.parent / "away").symlink_to(tmp_path)
    (said,) = refused(file)
    assert "expected a file in the plan's folder or below" in said


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    file = written(tmp_path, "now.jsonl")
    (file.parent / "now.jsonl").symlink_to("sets/q.jsonl")
    assert load_plan(file).plan.evidence.quality is not None


def test_what_is_no_file_and_what_is_too_large_is_refused(tmp_path: Path) -> None:
    assert "found a folder" in refused(written(tmp_path, "sets"))[0]
    file = written(tmp_path, "pipe")
    os.mkfifo(file.parent / "pipe")
    assert "found a device or a pipe" in refused(file)[0]
    (file.parent / "self").symlink_to("self")
    assert "expected a file that can be read" in refused(written(tmp_path, "self"))[0]
    assert "an impossible name" in refused(written(tmp_path, "a\0b"))[0]
    large = written(tmp_path, content=SET + " " * MAX_BYTES)
    assert f"expected a file of at most {MAX_BYTES >> 10} KiB" in refused(large)[0]


def test_prompts_in_the_plan_itself_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(plus("evidence: {quality: {file: sets/q.jsonl, prompts: [{id: a, prompt: x, expected: z}]}}"))
    (said,) = refused(file)
    assert "evidence.quality.prompts: expected `file`, the set's name, found the prompts themselves" in said
