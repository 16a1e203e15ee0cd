"""Attached and dark no user request reaches the canary, whatever happens to stable; on its first rung it gets the rung's share."""

from __future__ import annotations

import pytest

from rollout.domain.state import Phase
from tests.e2e.lab.figures import inside
from tests.e2e.lab.live import answered, cut, figures, lost
from tests.e2e.lab.plays import Seen

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def test_no_user_request_reaches_the_canary_also_while_stable_dies_and_comes_back(dark: Seen) -> None:
    """Both sides say so: who answered the users, and how many requests the canary's engine saw meanwhile."""
    records = dark.more["in_the_dark"]
    assert set(answered(records)) == {dark.more["stable"]}
    assert dark.more["reached"] == 0
    assert answered(records)[dark.more["stable"]] >= 300
    assert lost(records), "stable was never away"


def test_a_users_key_is_refused_on_the_canary_and_on_its_private_route(dark: Seen) -> None:
    assert len(dark.more["refused"]) == 2
    assert set(dark.more["refused"].values()) <= {403, 404}


def test_on_the_first_rung_the_canary_gets_that_share_of_the_users(dark: Seen) -> None:
    assert len(dark.records) >= 300
    assert inside(answered(dark.records)[dark.more["canary"]], len(dark.records), 0.10)


def test_the_abort_costs_no_user_anything_and_restores_the_snapshot(dark: Seen) -> None:
    assert dark.phase is Phase.ABORTED
    assert dark.after == dark.before
    assert dark.leftovers == []
    assert lost(dark.records) + cut(dark.records) == [], figures(dark.records)
