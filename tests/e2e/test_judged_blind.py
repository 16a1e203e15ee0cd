"""Without numbers nothing is promoted and nothing is rolled back: the rollout holds at its deadline with the share as it was.

And a person can go back all the same, within seconds, while the metrics are still away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from tests.contract.site import Site
from tests.e2e.judged import IDENTICAL, KNOWN, USERS, prepared
from tests.e2e.lab.live import Live
from tests.e2e.support import KINDS, Case, opened, wait

TIMES = {"MIN": "6s", "DEADLINE": "8s"}
BACK = 20.0
"""seconds in which a rollback gives all traffic back to stable, on a machine that does much else; three to six otherwise"""
Strike = Callable[[Site, Case], object]


def metrics(node: str, how: str) -> Strike:
    return lambda site, _made: site.node(node, dead_metrics=how)


def bare(_site: Site, made: Case) -> None:
    """The canary's engine exposes nothing that is known; so it was from its start."""
    made.site.node("spark-02", knobs={"bare_metrics": True}, image=made.changes["IMAGE"])


def both_slow(site: Site, made: Case) -> None:
    """Something behind both sides: ten times as slow at the same moment."""
    for node, image in (("spark-01", made.deployed["image_name"]), ("spark-02", made.changes["IMAGE"])):
        site.node(node, knobs={"ttft_factor": 10.0}, image=image)


@dataclass(frozen=True)
class Trouble:
    """What is wrong, and what the hold must say of it."""

    strike: Strike
    said: tuple[str, ...]
    early: bool = False
    """it is so before the rollout begins, not once judging began"""
    users: bool = True


TROUBLES = {
    "no traffic": Trouble(lambda _site, _made: None, ("0 live requests", "NO_TRAFFIC"), users=False),
    "missing metric": Trouble(bare, ("NO_METRIC on canary", "does not expose"), early=True),
    "hanging metrics endpoint": Trouble(metrics("spark-02", "hang"), ("METRIC_ERROR on canary", "could not be read")),
    "stable's metrics missing": Trouble(metrics("spark-01", "error"), ("METRIC_ERROR on stable", "could not be read")),
    "both sides slow together": Trouble(both_slow, ("CONTINUE",)),
}
IN_EVERY_RUN = ("no traffic", "hanging metrics endpoint")


def _case(kind: Any, name: str) -> Any:
    slow = [] if name in IN_EVERY_RUN and kind.id == "sandbox" else [pytest.mark.slow]
    return pytest.param(*kind.values, name, id=f"{kind.id}-{name}", marks=[*kind.marks, *slow])


CASES = [_case(kind, name) for kind in KINDS for name in TROUBLES]


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_it_holds_and_a_person_goes_back_all_the_same(kind: str, name: str, tmp_path: Path) -> None:
    trouble = TROUBLES[name]
    with ExitStack() as stack:
        site = stack.enter_context(opened(kind, tmp_path))
        for node in ("spark-01", "spark-02"):
            stack.callback(site.node, node, dead_metrics="off")
        made = stack.enter_context(prepared(site, tmp_path, IDENTICAL, 1, changes=TIMES))
        described = site.described
        live = Live(described["inference_url"], described["inference_key"], made.route, USERS, tail=10.0)
        with live:
            live.more(KNOWN)
            if trouble.users:
                _judged(site, made, trouble)
        if not trouble.users:
            _judged(site, made, trouble)


def _judged(site: Site, made: Case, trouble: Trouble) -> None:
    if trouble.early:
        trouble.strike(site, made)
    process = made.start("run", str(made.plan), "--until", "completed", "--patience", "0s")
    if not trouble.early:
        made.fact("0.seen", alive=process)
        trouble.strike(site, made)
    assert made.over(process, 240.0) == ExitCode.INCONCLUSIVE, made.said(process)
    state = made.state()
    assert state["undo"] is None
    assert state["hold"]["reason"] == "inconclusive"
    assert any(words in state["hold"]["detail"] for words in trouble.said), state["hold"]["detail"]
    assert len(made.targets()) == 2, "the share is kept"
    began = time.monotonic()
    back = made.start("rollback", made.id, "--reason", "the metrics are away and we are worried")
    wait(lambda: made.targets() == made.before["targets"], "all traffic is stable's again", BACK, alive=back)
    print(f"back within {time.monotonic() - began:.1f} s")
    for node in ("spark-01", "spark-02"):
        site.node(node, dead_metrics="off")
    if trouble.early:
        # nobody can say that this engine is empty: the drain holds, with the canary out of the route and nothing lost
        assert made.over(back, 120.0) == ExitCode.HOLDING, made.said(back)
        assert made.state()["hold"]["reason"] == "drain_timeout"
        return
    assert made.over(back, 120.0) == ExitCode.DONE, made.said(back)
    assert made.shape() == made.before
