"""An owner is gone only when that is sure."""

from __future__ import annotations

import pytest

from rollout.store import owner as module
from rollout.store.owner import Owner

ME = Owner(host="spark-01", pid=4711, token="123.abcd")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """A host `spark-01` with the process table `abcd`: start time by process id."""
    table = {4711: "123"}
    monkeypatch.setattr(module.platform, "node", lambda: "spark-01")
    monkeypatch.setattr(module, "_system", lambda: "abcd")
    monkeypatch.setattr(module, "_started", table.get)
    return table


def test_an_owner_is_read_back_from_its_text() -> None:
    assert Owner.parse(str(ME)) == ME
    assert str(ME) == "spark-01:4711:123.abcd"


@pytest.mark.parametrize("text", ["", "spark-01", "spark-01:x:1.a", "a:b"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Owner.parse(text)


@pytest.mark.usefixtures("here")
def test_a_running_process_is_alive() -> None:
    assert ME.alive()


def test_a_process_that_is_gone_is_not(here: dict[int, str]) -> None:
    here.clear()
    assert not ME.alive()


def test_a_later_process_with_the_same_id_is_not_it(here: dict[int, str]) -> None:
    here[4711] = "999"
    assert not ME.alive()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("owner", [Owner("spark-02", 1, "1.abcd"), Owner("spark-01", 1, "1.beef")])
def test_what_cannot_be_seen_from_here_counts_as_alive(owner: Owner) -> None:
    """Another host; another container or boot under the same host name."""
    assert owner.alive()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("error", "alive"), [(None, True), (ProcessLookupError, False), (PermissionError, True)])
def test_without_proc_existence_decides(monkeypatch: pytest.MonkeyPatch, error: type[OSError] | None, alive: bool) -> None:
    def kill(_pid: int, signal: int) -> None:
        assert signal == 0
        if error is not None:
            raise error

    monkeypatch.setattr(module.os, "kill", kill)
    assert Owner("spark-01", 4711, "?.abcd").alive() is alive


@pytest.mark.usefixtures("here")
def test_where_signals_are_orders_no_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "name", "nt")
    monkeypatch.setattr(module.os, "kill", lambda *_: pytest.fail("must not be called"))
    assert module._exists(4711)
