"""Every example is run by the real command on a sandbox of its own, under traffic, and ends as its `expected.txt` says.

All of them run at the same time, with a clock that is `PACE` times as fast: durations are compressed further than in the plans, so
that all of it takes a minute. `OVERLAY` gives back what must not be compressed with them: real seconds of traffic in a window, and
a deadline that a busy machine can keep. Nothing else differs from what a person would run but the address of the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from rollout.plan.load import load_plan
from rollout.testing.traffic import Load, Traffic
from tests.contract.site import Site
from tests.e2e.fast import SPEED
from tests.e2e.support import ROOT, Row, sandbox

pytestmark = pytest.mark.timeout(300)  # they take a minute together on two cores, and nobody promises idle ones
PACE = 5.0
OVERLAY = {"evidence": {"window": "5s", "deadline": "1h"}}
EXAMPLES = sorted(p.parent for p in (ROOT / "examples").glob("*/plan.yaml"))
FOUND = "sim/vllm:1"
"""the image that serves before"""
ENGINE = {"ttft_base": 0.2, "tpot": 0.001, "jitter": 0.05, "slots": 64}
BUSY = Load(clients=16, stream_share=0.1, stream_seconds=(0.5, 1.5), token_delay=0.25, think=0.1)
QUIET = Load(clients=4, stream_share=0.1, stream_seconds=(0.5, 1.5), token_delay=0.25, think=0.5)


@dataclass(frozen=True)
class Setting:
    """What a story needs besides its plan. `slow`: knobs of the new image."""

    load: Load = BUSY
    slow: Row = field(default_factory=dict)


SETTINGS = {
    "bad-canary": Setting(slow={"ttft_factor": 2.0}),
    "sparse-traffic": Setting(load=QUIET),
    "two-targets": Setting(load=replace(BUSY, clients=44)),  # two rollouts' worth of evidence, each on half of the route
}


@dataclass
class Story:
    """One example on its own sandbox."""

    folder: Path
    home: Path

    def __post_init__(self) -> None:
        self.plan = load_plan(self.folder / "plan.yaml").plan
        self.setting = SETTINGS.get(self.folder.name, Setting())
        self.said = ""

    async def told(self) -> dict[str, str]:
        """How it ended, in the words of `expected.txt`."""
        with ExitStack() as stack:
            described = await asyncio.to_thread(stack.enter_context, sandbox(self.home, **ENGINE))
            site = stack.enter_context(closing(Site(described, "sandbox")))
            await asyncio.to_thread(self._prepare, site)
            return await self._run(site)

    def _prepare(self, site: Site) -> None:
        """The deployments and the route that the plan names, one deployment a node."""
        names = [item.deployment for item in self.plan.stable]
        rows = [site.deploy(name, worker=name.removeprefix("chat-"), image_name=FOUND) for name in names]
        self.route = site.new_route({row["id"]: 100 for row in rows}, name=self.plan.route.name)
        if self.setting.slow:
            for worker in site.described["workers"]:
                site.node(worker["name"], knobs=self.setting.slow, image=self.plan.change.to["image_name"])
        plan = yaml.safe_load((self.folder / "plan.yaml").read_text("utf-8"))
        plan["gpustack"]["server"] = site.described["server_url"]
        for part, durations in OVERLAY.items():
            plan[part] |= durations
        (self.home / "plan.yaml").write_text(yaml.safe_dump(plan), "utf-8")

    async def _run(self, site: Site) -> dict[str, str]:
        described = site.described
        async with Traffic(described["inference_url"], described["user_key"], self.plan.route.name, self.setting.load) as users:
            await asyncio.sleep(1)  # so that stable has a history to be compared with
            code, status = await self._command(described, "run", "plan.yaml", "--until", "completed", "--json")
        return {
            "exit": str(code),
            "phase": status["phase"],
            "steps": self._steps(),
            "verdict": status["verdict"]["word"],
            "image": " ".join(sorted(await asyncio.to_thread(self._images, site))),
            "lost_requests": str(users.failed_requests),
            "cut_streams": str(users.cut_streams),
        }

    def _steps(self) -> str:
        """The steps in the order they were entered, `/` between targets."""
        with closing(sqlite3.connect(self.home / "r.db")) as raw:
            entered = [json.loads(data) for (data,) in raw.execute("select data from journal where kind = 'step' order by seq")]
        words, target = ["declare"], 0
        for data in entered:
            words += ["/"] * (data["target"] > target) + [data["step"]]
            target = data["target"]
        return " ".join(words)

    def _images(self, site: Site) -> set[str]:
        return {site.model(row["model_id"])["image_name"] for row in site.target_list(self.route["id"])}

    async def _command(self, described: Row, *args: str) -> tuple[int, Row]:
        """Exit code and result of the real command."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLOUT_") and k != "CI"}
        keys = {f"ROLLOUT_{kind}_KEY": described[f"{kind.lower()}_key"] for kind in ("MANAGEMENT", "INFERENCE")}
        env = {**kept, **keys, SPEED: str(PACE), "ROLLOUT_STORE": str(self.home / "r.db"), "PYTHONPATH": str(ROOT)}
        line = [sys.executable, "-m", "tests.e2e.fast", *args]
        process = await asyncio.create_subprocess_exec(*line, cwd=self.home, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, told = await process.communicate()
        self.said = told.decode()
        assert out, self.said
        return process.returncode or 0, json.loads(out)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, str], str]]:
    """Every example, run: how it ended, and what the command said."""
    made = [Story(folder, tmp_path_factory.mktemp(folder.name)) for folder in EXAMPLES]

    async def all_of_them() -> list[dict[str, str]]:
        return list(await asyncio.gather(*(story.told() for story in made)))

    ends = asyncio.run(all_of_them())
    return {story.folder.name: (end, story.said) for story, end in zip(made, ends, strict=True)}


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda p: p.name)
def test_an_example_ends_as_it_says(folder: Path, stories: dict[str, tuple[dict[str, str], str]]) -> None:
    lines = [line for line in (folder / "expected.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    expected = dict(line.split(": ", 1) for line in lines)
    end, said = stories[folder.name]
    assert {key: end[key] for key in expected} == expected, said
