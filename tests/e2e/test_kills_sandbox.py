"""SIGKILL at seeded moments of all six steps, on the sandbox: the same end as undisturbed, nothing twice, nothing lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.e2e.kills import STEPS, massacre
from tests.e2e.support import opened

SEED = int(os.environ.get("ROLLOUT_KILL_SEED") or time.time_ns() % 100_000)
ROLLOUTS, KILLS = 3, 5


@pytest.mark.timeout(400)
def test_sigkill_at_any_moment_and_the_same_command_again(tmp_path: Path) -> None:
    """Three rollouts at once in one store die five times each; `rollout run PLAN` goes on each time. A fourth is left alone."""
    with opened("sandbox", tmp_path) as site:
        kills, steps = massacre(site, tmp_path, SEED, ROLLOUTS, KILLS)
    print(f"kills: sandbox={kills} in {dict(steps)}")
    assert kills == ROLLOUTS * KILLS
    assert set(steps) == set(STEPS)
