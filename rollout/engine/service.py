"""What the commands call: start, run, tick, say, roll back. Knows the store and ports; never a concrete server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollout.clock import Clock
from rollout.domain.ports import Backend, Measurer
from rollout.domain.state import Event, Phase, RolloutState, Said, StepName
from rollout.domain.taken import goes_on
from rollout.domain.world import Scope
from rollout.engine import only, taking
from rollout.engine.run import LEASE, crank, lease_kept
from rollout.engine.say import say
from rollout.engine.tick import Engine, OnEvent
from rollout.engine.trusted import FACT, TrustedClock, anchor
from rollout.errors import RouteTaken, StableLost, UsageError
from rollout.plan.load import LoadedPlan, plan_again
from rollout.plan.model import GPUStack, Plan
from rollout.store import Owner, Store, StoredRollout

Json = Any


@dataclass
class Connected:
    """A backend and a measurer that speak to one server, and how to let them go."""

    backend: Backend
    measurer: Measurer
    aclose: Callable[[], Awaitable[None]]


class Connect(Protocol):
    """How a server is reached (wired by the command line)."""

    async def __call__(self, at: GPUStack) -> Connected: ...


def _quiet(_event: Event, _state: RolloutState) -> None:
    """Nobody listens."""


def _no_point(_name: str) -> None:
    """No test watches the journal points."""


def _any_key(_at: GPUStack) -> None:
    """Whoever connects finds out."""


@dataclass
class Service:
    """One store, one clock, one way to connect. `readable` raises for keys that cannot be read, before a rollout is begun with them."""

    store: Store
    clock: Clock
    connect: Connect
    readable: Callable[[GPUStack], None] = field(default=_any_key, kw_only=True)
    checkpoint: Callable[[str], None] = field(default=_no_point)

    def start(self, loaded: LoadedPlan, *, actor: str) -> StoredRollout:
        """The active rollout of this very plan on its route, or a new one. RouteTaken when another plan holds the route.

        A plan that was the last one carried out there is not begun again: its completed rollout is returned.
        """
        return self._begin(loaded, actor, {}, "")

    def adopt(self, loaded: LoadedPlan, canary: str, *, delete: bool, actor: str, reason: str) -> StoredRollout:
        """As `start`, around a canary that a person made by hand; `delete`: a rollback also removes its deployment."""
        wish = taking.adopting(canary, delete=delete)
        held = self.store.active_on(loaded.plan.gpustack.server.rstrip("/"), loaded.plan.route.name)
        if held is not None and held.state.plan_digest == loaded.digest and held.state.fact("adopt") != wish:
            msg = f"rollout {held.state.id} of this plan is under way and does not adopt {canary} in this way"
            raise RouteTaken(msg, hint=f"`rollout status {held.state.id}` shows it; end it first.")
        return self._begin(loaded, actor, {"adopt": wish}, f", adopting {canary}: {reason}")

    def _begin(self, loaded: LoadedPlan, actor: str, more: dict[str, Json], words: str) -> StoredRollout:
        plan = loaded.plan
        server, route = plan.gpustack.server.rstrip("/"), plan.route.name
        held = self.store.active_on(server, route)
        if held is not None:
            if held.state.plan_digest == loaded.digest:
                return held
            msg = f"route {route} is taken by rollout {held.state.id} ({held.state.name}, {held.state.phase})"
            raise RouteTaken(msg, hint=f"`rollout status {held.state.id}` shows it; end it before another plan begins.")
        last = self.store.latest_on(server, route)
        if last is not None and last.state.phase is Phase.COMPLETED and last.state.plan_digest == loaded.digest:
            return last
        self.readable(plan.gpustack)  # a rollout that was begun with the wrong ones would stand in the way of the corrected plan
        wish = more.get("adopt")
        facts = {"names": [*(t.deployment for t in plan.stable), *([wish["canary"]] if wish else [])], **more}
        state = self._new(plan.metadata.name, server, route, loaded.digest, facts)
        created = Event(kind="created", at=state.created, actor=actor, text=f"plan {plan.metadata.name} on route {route}{words}")
        self.store.create(state, plan.model_dump(mode="json", by_alias=True), loaded.text, created)
        return self.store.load(state.id)

    def _new(self, name: str, server: str, route: str, digest: str, facts: dict[str, Json]) -> RolloutState:
        now = self.clock.now()
        return RolloutState(
            id=uuid.uuid4().hex[:12],
            name=name,
            server=server,
            route=route,
            plan_digest=digest,
            phase=Phase.PENDING,
            step=StepName.DECLARE,
            created=now,
            entered=now,
            facts={FACT: anchor(self.clock), "nonce": uuid.uuid4().hex, "store": self.store.store_id, **facts},
        )

    async def run(
        self, rollout_id: str, *, until: Callable[[RolloutState], bool], on_event: OnEvent = _quiet, force: bool = False
    ) -> RolloutState:
        """Tick here until `until(state)` or the end. RouteTaken while another live process ticks it, unless `force`: it is fenced off."""
        async with self._engine(rollout_id, on_event, force=force) as engine:
            return await crank(engine, until)

    async def tick(self, rollout_id: str, on_event: OnEvent = _quiet) -> RolloutState:
        """One tick. Raises the server's error when it could not be read."""
        async with self._engine(rollout_id, on_event) as engine:
            tick = await engine.tick()
        if tick.unreachable is not None:
            raise tick.unreachable
        return tick.state

    @asynccontextmanager
    async def _engine(
        self, rollout_id: str, on_event: OnEvent, connected: Connected | None = None, *, force: bool = False
    ) -> AsyncIterator[Engine]:
        stored = self.store.load(rollout_id)
        rollout_id = stored.state.id
        plan = plan_again(stored.plan, rollout_id) if stored.plan else None
        owner = Owner.current()
        fence = self.store.claim(rollout_id, owner, LEASE, force=force)
        try:
            async with AsyncExitStack() as stack:
                if connected is None:
                    connected = await stack.enter_async_context(aclosing(await self._connected(plan, stored.state)))
                await stack.enter_async_context(lease_kept(self.store, rollout_id, fence))
                actor = f"engine@{owner.host}"
                ports = (connected.backend, connected.measurer)
                clock = TrustedClock.of(self.clock, stored.state)
                yield Engine(self.store, clock, *ports, plan, rollout_id, fence, actor, on_event, self.checkpoint)
        finally:
            self.store.release(rollout_id, fence)

    async def _connected(self, plan: Plan | None, state: RolloutState) -> Connected:
        if plan is not None:
            return await self.connect(plan.gpustack)
        where = state.fact("gpustack")
        if where is None:
            msg = f"rollout {state.id} was taken over from a marker and holds no plan"
            raise UsageError(msg, why="only its route and server lead to it", hint=f"`{goes_on(state)[0]}` goes on with it.")
        return await self.connect(GPUStack.model_validate(where))

    def say(self, rollout_id: str, verb: str, actor: str, reason: str, args: dict[str, Json] | None = None) -> RolloutState:
        """`engine.say` with this store."""
        return say(self.store, rollout_id, verb, actor, reason, args or {})

    def retry(self, rollout_id: str, *, actor: str, reason: str) -> StoredRollout:
        """A new attempt of an ended rollout's plan; the old evidence stays with the old one."""
        old = self.store.load(rollout_id)
        if not old.plan:
            msg = f"rollout {old.state.id} holds no plan: there is nothing to try again"
            hint = "`rollout run PLAN` begins a new attempt from the plan's file."
            raise UsageError(msg, why=f"it only took route {old.state.route} back", hint=hint)
        if not old.state.terminal:
            msg = f"rollout {old.state.id} is {old.state.phase}: only an ended one can be tried again"
            raise UsageError(msg, hint="`rollout resume` goes on with one that holds.")
        held = self.store.active_on(old.state.server, old.state.route)
        if held is not None:
            msg = f"route {old.state.route} is taken by rollout {held.state.id}"
            raise RouteTaken(msg, hint=f"`rollout status {held.state.id}` shows it.")
        self.readable(plan_again(old.plan, old.state.id).gpustack)
        names = [t["deployment"] for t in old.plan["stable"]]
        state = self._new(
            old.state.name, old.state.server, old.state.route, old.state.plan_digest, {"names": names, "retry_of": old.state.id}
        )
        created = Event(kind="created", at=state.created, actor=actor, text=f"new attempt of {old.state.id}: {reason}")
        self.store.create(state, old.plan, old.plan_text, created)
        return self.store.load(state.id)

    async def rollback_route(
        self, server: str, route: str, connect: Callable[[], Awaitable[Connected]], actor: str, reason: str, on_event: OnEvent = _quiet
    ) -> RolloutState:
        """Roll back whatever holds the route, from the marker on the server: no plan and no store are needed.

        Ends when it is over or holds for a person; while stable is away (`halted`) it goes on looking.
        """
        server = server.rstrip("/")
        held = self.store.active_on(server, route)
        async with aclosing(await connect()) as connected:
            if held is not None:
                if held.state.undo is None or (held.state.hold and held.state.hold.reason == "rollback_impossible"):
                    self.say(held.state.id, "rollback", actor, reason)
                target = held.state.id
            else:
                target = await self._take_over(connected, server, route, actor, reason)
            async with self._engine(target, on_event, connected) as engine:
                return await crank(engine, lambda s: s.phase is Phase.HOLDING)

    async def _take_over(self, connected: Connected, server: str, route: str, actor: str, reason: str) -> str:
        world = await connected.backend.observe(Scope(route, ()))
        former, receipts = taking.found_receipts(world, route)
        state = self._new(f"takeover of {former}", server, route, "", {})
        state = taking.claiming(state, receipts, former, self.clock.now(), None)
        state = state.model_copy(update={"undo": Said(verb="rollback", actor=actor, reason=reason, at=self.clock.now())})
        text = f"rollback of {former} from the marker on route {route}: {reason}"
        self.store.create(state, {}, "", Event(kind="created", at=state.created, actor=actor, text=text))
        return state.id

    async def takeover(self, at: GPUStack, route: str, loaded: LoadedPlan | None, *, actor: str, reason: str) -> StoredRollout:
        """A rollout that claims the route from an owner who is gone; what it goes on with is the plan, or a person's word.

        The one of an earlier call when that was cut off. Raises NotFound when nothing holds the route, UsageError when this very
        store does, PreflightError when the plan does not fit. Nothing is written to the server here.
        """
        server = at.server.rstrip("/")
        held = self.store.active_on(server, route)
        if held is not None and not held.state.fact("takeover"):
            raise taking.holding(held, route)
        if held is not None and held.state.plan_digest == (loaded.digest if loaded else "") and held.state.undo is None:
            return taking.reached_by(self.store, held, Owner.current(), self.clock.now(), actor, at)
        if held is not None and (held.state.undo is not None or held.plan):
            raise taking.holding(held, route)
        async with aclosing(await self.connect(at)) as connected:
            world = await connected.backend.observe(Scope(route, ()))
            former, receipts = taking.found_receipts(world, route)
            if loaded is not None:
                world = await connected.backend.observe(Scope(route, receipts.names))
                taking.fits(loaded.plan, receipts, world, connected.backend)
        if held is not None:
            taking.give_way(self.store, held, Owner.current(), self.clock.now(), actor, f"gives way to a takeover with a plan: {reason}")
        name, digest, text = (loaded.plan.metadata.name, loaded.digest, loaded.text) if loaded else (f"takeover of {former}", "", "")
        state = taking.claiming(self._new(name, server, route, digest, {}), receipts, former, self.clock.now(), at)
        said = f"takeover of {former} from the marker on route {route}: {reason}"
        self.store.create(
            state,
            dict(taking.plan_row(loaded.plan if loaded else None)),
            text,
            Event(kind="created", at=state.created, actor=actor, text=said),
        )
        return self.store.load(state.id)

    async def stable_only(self, at: GPUStack, route: str, stable: Sequence[str], *, actor: str, reason: str) -> StoredRollout:
        """A rollout of the kind that leaves only these deployments on the route; the one of an earlier call when that was cut off.

        One of this store that holds the route gives way, but only where stable can serve alone: else StableLost, and it stays.
        """
        server, wish = at.server.rstrip("/"), only.wish(stable)
        held = self.store.active_on(server, route)
        if held is not None and held.state.fact(only.FACT) == wish and held.state.undo is None:
            return taking.reached_by(self.store, held, Owner.current(), self.clock.now(), actor, at)
        self.readable(at)
        if held is not None:
            async with aclosing(await self.connect(at)) as connected:
                world = await connected.backend.observe(Scope(route, tuple(stable)))
            gap = only.unfit(world, stable)
            if gap:
                raise StableLost(f"{gap}: nothing was written", why=f"rollout {held.state.id} holds route {route} and stays as it is")
            why = f"gives way to stable-only: {reason}"
            taking.give_way(self.store, held, Owner.current(), self.clock.now(), actor, why)
        facts = {only.FACT: wish, "names": list(stable), "gpustack": at.model_dump(mode="json")}
        state = self._new(f"stable-only {route}", server, route, "", facts)
        text = f"only {', '.join(stable)} shall serve route {route}: {reason}"
        self.store.create(state, {}, "", Event(kind="created", at=state.created, actor=actor, text=text))
        return self.store.load(state.id)
