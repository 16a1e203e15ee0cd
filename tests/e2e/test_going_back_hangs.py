"""Abort while a request to the server hangs, on the sandbox: the word is taken first, it ends in time, and nothing lands afterwards.

Users ask all the while and are never refused: a write that was accepted is carried out even when nobody waits for it any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState
from tests.contract.site import Site
from tests.e2e.inside import SPEED, Inside, keys
from tests.e2e.support import Case, case, opened, wait

HANGS = 4.0
"""seconds the request still hangs after the word was said"""
ENDS = 25.0
"""seconds within which the way back must be over once nothing hangs any more"""
WRITES = {
    "mark_route": ("PUT", "/v2/model-routes/{route}$", None),
    "create_deployment": ("POST", "/v2/models$", None),
    "create_probe_route": ("POST", "/v2/model-routes$", None),
    "join": ("PUT", "/v2/model-routes/{route}$", "0.dark"),
    "refresh": ("PUT", "/v2/model-routes/{route}$", "0.rung.0.written"),
    "set_weight": ("PUT", "/v2/model-route-targets/", None),
    "leave": ("DELETE", "/v2/model-route-targets/", None),
}
"""verb -> method, path, and the fact after which the write is the next of its kind"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A sandbox for all tests of this file."""
    with opened("sandbox", tmp_path_factory.mktemp("sandbox"), ttft_base=0.005) as found, keys(found):
        yield found


@pytest.mark.parametrize("applied", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["lands late", "landed"])
@pytest.mark.parametrize("verb", WRITES)
def test_abort_while_a_write_hangs(site: Site, tmp_path: Path, verb: str, applied: bool) -> None:
    """The word is journaled while the write still hangs; whether that write landed, lands later or never: all is as it was."""
    method, path, after = WRITES[verb]
    with case(site, tmp_path) as made, ThreadPoolExecutor(1) as pool, _cleared(site):
        inside, fault = Inside(made), {"kind": "hang", "method": method, "path": path.format(route=made.row["id"]), "applied": applied}
        rollout_id = inside.start()

        def owner() -> RolloutState:
            if after is None:
                made.fault(**fault)
            else:
                inside.run(rollout_id, until=lambda s: s.fact(after) is not None)
                made.fault(**fault)
            if verb in ("set_weight", "leave"):
                inside.run(rollout_id, until=lambda s: s.fact("0.seen") is not None)
                inside.say(rollout_id, "promote")
            return inside.run(rollout_id)

        running = pool.submit(owner)
        _sent(made, verb, running)
        with made.site.load(made.route, 1) as users:
            inside.say(rollout_id, "abort")
            made.until(lambda s: s["undo"] is not None, "the word is taken", seconds=5)
            assert _hanging(site), "the word was taken only when the write had ended"
            time.sleep(HANGS / SPEED)
            made.release()
            assert running.result(ENDS).phase is Phase.ABORTED
        assert [who for who in users if who.isdigit()] == []
        assert made.shape() == made.before


def _sent(made: Case, verb: str, running: Future[RolloutState]) -> None:
    def hangs() -> bool:
        assert not running.done(), running.result()
        opened_intent: dict[str, Any] = made.state().get("intent") or {}
        return opened_intent.get("effect", {}).get("verb") == verb and _hanging(made.site)

    wait(hangs, f"{verb} hangs")


def _hanging(site: Site) -> bool:
    return any(fault["hits"] for fault in site.anonymous.get("/_fault").json())


@contextmanager
def _cleared(site: Site) -> Iterator[None]:
    """No fault outlives its test."""
    try:
        yield
    finally:
        site.anonymous.delete("/_fault")


@pytest.mark.parametrize("released", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["let go", "never answered"])
def test_abort_while_the_server_answers_no_read(site: Site, tmp_path: Path, released: bool) -> None:
    """With the real command: nothing can be decided while nothing can be read; afterwards the way back is over in time.

    One list hangs; it is let go after some seconds, or the client gives up on it and asks again.
    """
    with case(site, tmp_path) as made, _cleared(site):
        owner = made.run()
        made.fact("0.seen", alive=owner)
        made.fault(kind="hang", method="GET", path="/v2/model-routes$", times=1)
        wait(lambda: _hanging(site), "a read hangs", alive=owner)
        began = time.monotonic()
        said = made.start("abort", made.id, "--reason", "the server hangs")
        if released:
            time.sleep(HANGS)
            made.release()
        assert made.over(said, ENDS) == 0, made.said(said)
        assert made.over(owner, ENDS) == 10, made.said(owner)
        print(f"abort with a hanging read: {time.monotonic() - began:.1f} s")
        assert made.shape() == made.before
