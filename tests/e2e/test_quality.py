"""Answers are compared on the sandbox: a canary that answers every fifth prompt wrongly shows, by the ids of the prompts it lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.testing.answers import prompt_set
from tests.contract.site import Site
from tests.e2e.support import Case, case, opened

SIZE, TOKENS = 100, 8
CHANGE = 'change: {unit: backend_image, to: {image_name: "sim/vllm:2"}}'
WRONG = 'change: {unit: parameters, to: {env: {SIM_WRONG_RATE: "0.2"}}}'
QUALITY = f"min_time: 1s, quality: {{file: set.jsonl, batch: 25, max_tokens: {TOKENS}}},"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with opened("sandbox", tmp_path_factory.mktemp("server"), ttft_base=0.002, tpot=0.0) as made:
        yield made


@pytest.fixture
def wrong(site: Site, tmp_path: Path) -> Iterator[Case]:
    (tmp_path / "set.jsonl").write_text(prompt_set(SIZE, TOKENS), "utf-8")
    with case(site, tmp_path, {CHANGE: WRONG, "min_time: 1s,": QUALITY}) as made:
        yield made


def test_every_fifth_answer_wrong_shows_by_id(wrong: Case) -> None:
    planned = wrong.command("plan", str(wrong.plan))
    assert f"{SIZE} requests to stable" in " ".join(planned.stdout.split()), planned.stderr
    process = wrong.run()
    replay = wrong.until(
        lambda s: (s["facts"].get("0.seen") or {}).get("replay", {}).get("used", 0) >= SIZE // 2, "half the set", alive=process
    )
    known = replay["facts"]["0.seen"]["replay"]
    assert known["stable"] == known["used"]
    assert 0.05 <= known["lost"] / known["used"] <= 0.45
    shown = json.loads(wrong.command("status", wrong.id, "--json").stdout)["verdict"]["quality"]
    assert (shown["of"], shown["stable_errors"]) == (SIZE, 0)
