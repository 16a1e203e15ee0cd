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


def test_every_fifth_answer_wrong_is_rolled_back_and_the_lost_prompts_are_named(wrong: Case) -> None:
    planned = wrong.command("plan", str(wrong.plan))
    assert f"{SIZE} requests to stable" in " ".join(planned.stdout.split()), planned.stderr
    process = wrong.run()
    assert wrong.over(process) == 10, wrong.said(process)
    assert wrong.state()["facts"]["0.judge"]["verdict"]["details"]["evidence_against"]["culprits"] == ["quality"]
    told = json.loads(wrong.command("status", wrong.id, "--json").stdout)["verdict"]["quality"]
    assert (told["of"], told["stable"], told["stable_errors"], told["canary_errors"]) == (SIZE, told["used"], 0, 0)
    assert 0.1 <= told["lost"] / told["used"] <= 0.4
    assert set(told["worst"]) <= {f"q{n}" for n in range(1, SIZE + 1)}
    assert wrong.shape() == wrong.before
