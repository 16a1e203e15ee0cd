"""Every plan that we ship is valid, points at the schema, and every example says how it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollout.errors import EXIT_MEANING, ExitCode
from rollout.plan.fields import Unit
from rollout.plan.load import load_plan

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted((ROOT / "plans").glob("*.yaml"))
EXAMPLES = sorted(p for p in (ROOT / "examples").iterdir() if (p / "plan.yaml").is_file())
STORIES = {"healthy-backend-image", "bad-canary", "two-targets", "parameters", "sparse-traffic"}
KNOWN = {"exit", "phase", "steps", "verdict", "image", "lost_requests", "cut_streams"}


def test_what_the_documents_promise_is_there() -> None:
    assert {p.stem for p in TEMPLATES} >= {"minimal", "backend-image", "model-revision", "parameters", "two-stable-targets"}
    assert {p.name for p in EXAMPLES} >= STORIES


@pytest.mark.parametrize("file", [*TEMPLATES, *(e / "plan.yaml" for e in EXAMPLES)], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_shipped_plan_is_valid_and_completes_in_an_editor(file: Path) -> None:
    loaded = load_plan(file)
    first = loaded.text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (file.parent / first.partition("=")[2]).resolve() == ROOT / "plans" / "plan.schema.json"
    assert loaded.plan.gpustack.management_key.env == "ROLLOUT_MANAGEMENT_KEY"


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_an_example_tells_its_story_and_its_end(folder: Path) -> None:
    plan = load_plan(folder / "plan.yaml").plan
    assert plan.metadata.name == folder.name
    assert str(plan.gpustack.server) == "http://127.0.0.1:30080"
    lines = [line for line in (folder / "expected.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    told = dict(line.split(": ", 1) for line in lines)
    assert {"exit", "phase", "verdict"} <= set(told) <= KNOWN
    assert EXIT_MEANING[ExitCode(int(told["exit"]))]
    assert told["phase"] in {"completed", "rolled_back"}
    assert told["image"] == (plan.change.to.get("image_name", "sim/vllm:1") if told["phase"] == "completed" else "sim/vllm:1")
    assert re.search(r"`*rollout run plan\.yaml", (folder / "README.md").read_text("utf-8"))
    assert f"({folder.name}/README.md)" in (ROOT / "examples" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["backend-image", "model-revision", "parameters"])
def test_a_template_is_named_after_its_unit(name: str) -> None:
    assert load_plan(ROOT / "plans" / f"{name}.yaml").plan.change.unit is Unit(name.replace("-", "_"))


def test_the_commented_defaults_of_the_full_template_are_the_defaults() -> None:
    full, least = (load_plan(ROOT / "plans" / f"{n}.yaml").plan for n in ("backend-image", "minimal"))
    for part in ("evidence", "drain", "window", "cleanup"):
        said = getattr(full, part).model_dump(exclude={"probes": {"prompts"}})
        assert said == getattr(least, part).model_dump(exclude={"probes": {"prompts"}}), part
