"""What a step decides from: the plan, the state, this tick's world, and two pure tools of the backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from rollout.domain.decision import Act, Decision, HoldOn, Record, Wait
from rollout.domain.effective import Carrier
from rollout.domain.effects import Effect
from rollout.domain.receipts import Pair, Receipts, receipts_of
from rollout.domain.state import RolloutState
from rollout.domain.weights import Rung, rungs
from rollout.domain.world import World
from rollout.plan.model import Plan

Json = Any
Derive = Callable[[Mapping[str, Json], Mapping[str, Json], Mapping[str, Json], str], dict[str, Json]]
Diff = Callable[[Mapping[str, Json], Mapping[str, Json]], list[tuple[str, Json, Json]]]
POLL = 1.0
"""seconds between looks at something that is about to happen"""
LANDS_WITHIN = 15.0
"""seconds, once the server answers again, in which a write that was sent and not answered may still be carried out"""


@dataclass(frozen=True)
class Ctx:
    """Handed to each step's `decide` and `undo`. `plan` is None in a rollback that knows only the marker."""

    plan: Plan | None
    state: RolloutState
    world: World
    derive: Derive
    diff: Diff

    @property
    def now(self) -> datetime:
        return self.world.now

    @property
    def the_plan(self) -> Plan:
        if self.plan is None:
            msg = "a step was asked to go forward without a plan"
            raise RuntimeError(msg)
        return self.plan

    @cached_property
    def receipts(self) -> Receipts:
        found = receipts_of(self.state)
        if found is None:
            msg = "a step after declare found no receipts in the state"
            raise RuntimeError(msg)
        return found

    @property
    def pair(self) -> Pair:
        """The pair that is being worked on."""
        return self.receipts.pairs[self.state.target]

    def key(self, *parts: object) -> str:
        """A fact key of the current target: `key("warm")` -> `0.warm`."""
        return ".".join(str(p) for p in (self.state.target, *parts))

    def at(self, fact: str) -> datetime | None:
        """When the receipt under `fact` was written."""
        raw = self.state.fact(fact)
        return datetime.fromisoformat(raw["at"]) if raw and "at" in raw else None

    def since(self, moment: datetime | None) -> float:
        """Seconds since `moment`; 0 when unknown."""
        return (self.now - moment).total_seconds() if moment else 0.0

    def interrupted(self) -> dict[str, Json]:
        """Facts to write when a side is back: the running window is dropped, and from now on the sides are uneven for a while."""
        return {self.key("base"): None, self.key("uneven"): {"at": self.now.isoformat()}}

    def promoted(self) -> bool:
        """A person said `promote` while this very target was worked on."""
        said = self.state.fact("said.promote")
        return said is not None and said.get("target", self.state.target) == self.state.target

    def unsure(self) -> Effect | None:
        """The last write that was sent and not answered, while it may still land."""
        raw = self.state.fact("unsure")
        return Effect.model_validate(raw["effect"]) if raw and self.since(self.at("unsure")) < LANDS_WITHIN else None

    def ladder(self, pair: Pair) -> tuple[Rung, ...]:
        """The rungs of one pair, as fixed at declare."""
        shares = [float(s) for s in self.state.fact("ladder")]
        return rungs(shares, pair.scaled, self.receipts.siblings_weight(pair))

    @property
    def carrier(self) -> Carrier:
        """Who splits the route's traffic, as it was seen at declare."""
        return Carrier(self.state.fact("carrier") or Carrier.PROXY)

    def wait(self, why: str, seconds: float = POLL, *, deadline: datetime | None = None) -> Wait:
        """Look again in `seconds`."""
        return Wait(self.now + timedelta(seconds=seconds), why, deadline)


def awaited(ctx: Ctx, done: bool, key: str, seconds: float, why: str, reason: str, pause: float = POLL) -> Decision | None:
    """None once it is `done`. Until then a wait, and after `seconds` a hold that lifts by itself. `key`: the fact of this wait."""
    began = ctx.at(key)
    if done:
        return Record({key: None}, f"over: {why}") if began else None
    if began is None:
        return Record({key: {"at": ctx.now.isoformat()}}, f"waits: {why}")
    if ctx.since(began) > seconds:
        return HoldOn(reason, f"{why}; so it has been for more than {seconds:.0f} s")
    return ctx.wait(why, pause, deadline=began + timedelta(seconds=seconds))


def act(verb: str, why: str, fact: str | None = None, **args: Json) -> Act:
    """One effect as a decision."""
    return Act(Effect(verb=verb, args=args, why=why, fact=fact))
