"""What all tests share: which GPUStack servers there are, and the closing line that says how many tests ran on the real one.

The environment variable `ROLLOUT_LAB` names the JSON file in which the lab describes itself. Without it only the sandbox exists:
no test is skipped, the ones for the lab are simply not there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def lab_description() -> dict[str, Any] | None:
    """The running lab as it describes itself, or None."""
    named = os.environ.get("ROLLOUT_LAB")
    if not named:
        return None
    described: dict[str, Any] = json.loads(Path(named).read_text("utf-8"))
    return described


class LabCount:
    """Counts outcomes of tests that carry the `lab` marker."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "lab" not in report.keywords:
            return
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """The last line of all, after pytest's own."""
        described = lab_description()
        if described is not None:
            passed, skipped = self.outcomes["passed"], self.outcomes["skipped"]
            config.get_terminal_writer().line(f"lab: gpustack={described['version']} passed={passed} skipped={skipped}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After the shuffle: whatever kills a part of the lab that others share waits until nobody uses it."""
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LabCount(), "lab-count")
