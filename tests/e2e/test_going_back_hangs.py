"""Abort while a request to the server hangs, on the sandbox: the word is taken first, it ends in time, and nothing lands afterwards."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.site import Site
from tests.e2e.support import Case, case, opened

HANGS = 2.0
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
    with opened("sandbox", tmp_path_factory.mktemp("sandbox")) as found:
        yield found


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("applied", [False, True], ids=["lands late", "landed"])
def test_abort_while_a_write_hangs(site: Site, tmp_path: Path, verb: str, applied: bool) -> None:
    """The word is in the journal while the write still hangs; when the write lands late, it changes nothing in the end."""
    method, path, after = WRITES[verb]
    with case(site, tmp_path) as made:
        path = path.format(route=made.row["id"])
        if after is None:
            made.fault(kind="hang", method=method, path=path, applied=applied)
        owner = made.run()
        if after is not None:
            made.fact(after, alive=owner)
            made.fault(kind="hang", method=method, path=path, applied=applied)
        _hurry(made, verb)
        made.until(lambda s: (s.get("intent") or {}).get("effect", {}).get("verb") == verb, f"{verb} is sent", alive=owner)
        _hanging(site)
        said = made.start("abort", made.id, "--reason", "the server hangs")
        made.until(lambda s: s["undo"] is not None, "the word is taken", alive=owner, seconds=5)
        assert _hanging(site)
        _ends(made, owner, said)


def _hurry(made: Case, verb: str) -> None:
    """A person promotes where the write lies behind the judge."""
    if verb in ("set_weight", "leave"):
        made.fact("0.seen")
        assert made.command("promote", made.id, "--reason", "the judge has tests of its own").returncode == 0


def _hanging(site: Site) -> bool:
    faults = site.anonymous.get("/_fault").json()
    return any(fault["hits"] for fault in faults)


def _ends(made: Case, owner: subprocess.Popen[str], said: subprocess.Popen[str]) -> None:
    """The request is let go while users ask on: nobody is refused, both commands end in time, and all is as it was."""
    with made.site.load(made.route, 1) as users:
        time.sleep(HANGS)
        made.release()
        assert made.over(said, ENDS) == 0, made.said(said)
        assert made.over(owner, ENDS) == 10, made.said(owner)
        time.sleep(0.3)
    assert [who for who in users if who.isdigit()] == []
    assert made.shape() == made.before
