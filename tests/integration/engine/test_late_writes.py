"""A server that freezes with a request in its hands carries it out when it thaws: nobody waits for the answer any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.domain.world import Scope, World
from rollout.errors import ServerError, Unreachable
from rollout.testing.memory import MemoryPlatform
from tests.integration.engine.harness import Case, reached

FROZEN, LATE = 40.0, 12.0
"""seconds the server answers nothing, and seconds after which the request it held is carried out"""


class FreezingPlatform(MemoryPlatform):
    """Freezes at the first write of one kind."""

    freezes_on = ""
    held: dict[str, Any] | None = None
    thaws = 0.0

    async def perform(self, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if verb == self.freezes_on and not self.thaws:
            self.held, self.thaws = dict(args), self.clock.now().timestamp() + FROZEN
        await self._answering()
        return await super().perform(verb, args)

    async def observe(self, scope: Scope) -> World:
        await self._answering()
        if self.held is not None and self.clock.now().timestamp() > self.thaws + LATE:
            held, self.held = self.held, None
            await super().perform(self.freezes_on, held)
        return await super().observe(scope)

    async def _answering(self) -> None:
        if self.clock.now().timestamp() < self.thaws:
            await self.clock.sleep(10)
            msg = "no answer"
            raise ServerError(msg)


@pytest.mark.parametrize("verb", ["create_deployment", "create_probe_route", "join"])
def test_a_write_that_lands_when_the_server_thaws_is_taken_back_too(tmp_path: Path, verb: str) -> None:
    """The abort was said while it was frozen; the write lands when the way back has begun."""
    case = Case(tmp_path)
    platform = FreezingPlatform(case.clock, deployments=case.platform.deployments, routes=case.platform.routes)
    platform.freezes_on = verb
    case.platform = platform
    rollout_id = case.start().state.id

    def frozen(_state: RolloutState) -> bool:
        return platform.thaws > 0

    case.run(rollout_id, until=frozen)
    case.service().say(rollout_id, "abort", "tester", "the server is frozen")
    assert case.run(rollout_id).phase is Phase.ABORTED
    assert platform.held is None
    assert case.shape() == case.before


def test_a_write_that_was_sent_twice_may_land_fifteen_seconds_after_the_second(tmp_path: Path) -> None:
    """The hand sends an unanswered write again after 10 s; `unsure` counts from the intent, so the undo no longer waits."""
    case = Case(tmp_path)
    rollout_id = case.start().state.id
    case.run(rollout_id, until=reached(StepName.SHIFT, rung=1))
    real = case.platform.perform
    sent: list[datetime] = []

    async def perform(verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if verb == "leave" and args["deployment"] == "chat-a" and not sent:
            await case.clock.sleep(10.2)
            sent.append(case.clock.now())  # attempt 2 of Hand._write
            await case.clock.sleep(10.0)
            raise Unreachable("no answer")
        return await real(verb, args)

    case.platform.perform = perform  # type: ignore[method-assign]
    case.run(rollout_id, until=lambda s: bool(sent) and s.waiting is not None and "no answer" in s.waiting.why)
    case.service().say(rollout_id, "rollback", "tester", "go back")
    case.events.clear()
    assert case.run(rollout_id).phase is Phase.ROLLED_BACK
    left = next(e.at for e, _ in case.events if e.kind == "intent" and e.data["effect"]["verb"] == "leave")
    assert (left - sent[0]).total_seconds() >= 15, (left - sent[0]).total_seconds()
