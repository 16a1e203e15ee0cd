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

# Before numpy is imported: tests run beside each other, and threads that wait for a small product burn a core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


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
            which = described["version"] + ("" if described["mode"] == "disabled" else "+gateway")
            config.get_terminal_writer().line(f"lab: gpustack={which} passed={passed} skipped={skipped}")


SANDBOXES = {"sandbox": "2.3.0", "sandbox-2.2.3": "2.2.3"}
"""names of contract servers that are no lab, with their versions"""


def release(version: str) -> tuple[int, ...]:
    """`2.3.0` as numbers."""
    return tuple(int(part) for part in version.split("."))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take away what is not about the server that it would run on.

    After the shuffle, so that whatever kills a part of the lab that others share waits until nobody uses it, and the tests of plays
    that run in the background meanwhile come late.
    """
    out = [item for item in items if not _fits(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    items.sort(key=lambda item: (item.get_closest_marker("alone") is not None, "stage" in getattr(item, "fixturenames", ())))


def _fits(item: pytest.Item) -> bool:
    marks = list(item.iter_markers("only"))
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("gpustack_kind", "lab") if callspec else "lab"
    described = {"version": SANDBOXES[kind], "mode": "disabled"} if kind in SANDBOXES else lab_description()
    return not marks or (described is not None and all(about(described, **mark.kwargs) for mark in marks))


def about(described: dict[str, Any], *, since: str = "0", before: str = "99", gateway: bool | None = None) -> bool:
    """Whether a server is one of those that a test is about."""
    on = described["mode"] != "disabled"
    return release(since) <= release(described["version"]) < release(before) and gateway in (None, on)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LabCount(), "lab-count")
