"""One tick: observe -> decide -> journal the intent -> act -> read back -> journal the outcome.

Level-triggered and restart-safe: nothing is remembered here between ticks but a count of failures for the back-off.
A crash between intent and outcome is the normal case: the next tick looks at the world first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rollout.clock import Clock
from rollout.domain.context import Ctx
from rollout.domain.decision import Act, Advance, Decision, Finish, Halt, HoldOn, Record, TakeBack, Wait
from rollout.domain.draining import undo_key
from rollout.domain.effects import LINGERING, Effect, satisfied
from rollout.domain.health import expected_after
from rollout.domain.ports import Backend, Measurer
from rollout.domain.receipts import receipts_of
from rollout.domain.state import Event, Phase, RolloutState, Said, StepName, evolve
from rollout.domain.world import Scope, World
from rollout.engine import only
from rollout.engine.decide import decide, fenced
from rollout.engine.trusted import FACT, TrustedClock
from rollout.errors import ExitCode, FencedOff, KeyRefused, Refused, ServerError
from rollout.plan.model import Plan
from rollout.store import Store

Json = Any
OnEvent = Callable[[Event, RolloutState], None]
RECORDS = 32
"""facts written from one observation before the world is looked at again"""
COMMAND_POLL = 0.2
GRACE = 1.0
"""seconds a write has to end by itself once an abort was said: most do, and then there is no doubt what it did"""
BACKOFF = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


@dataclass(frozen=True)
class Tick:
    """What one tick led to. `wake`: when the next is due; `unreachable`: why the server could not be used."""

    state: RolloutState
    wake: datetime
    unreachable: ServerError | None = None


@dataclass
class Engine:
    """Ticks one rollout under one fence."""

    store: Store
    clock: Clock
    backend: Backend
    measurer: Measurer
    plan: Plan | None
    rollout_id: str
    fence: int
    actor: str
    on_event: OnEvent = lambda _event, _state: None
    checkpoint: Callable[[str], None] = lambda _name: None
    """called at every journal point; a test may raise from it"""
    failures: int = 0

    async def tick(self) -> Tick:
        """Do the next thing. Raises FencedOff when another engine took over, StoreError when the store fails."""
        state = self._take_commands(self.store.load(self.rollout_id).state)
        if state.terminal:
            return Tick(state, self.clock.now())
        try:
            world = await self.backend.observe(scope_of(state))
        except ServerError as error:
            return self._unreachable(state, error)
        if isinstance(self.clock, TrustedClock) and state.fact(FACT) != self.clock.at:
            self.clock = self.clock.checked(world.server_time, state.entered)
        world = self._dated(world)
        self.checkpoint("observed")
        state = self._recover(self._anchored(state), world)
        ctx = self._ctx(state, world)
        taken = fenced(ctx)
        if taken:
            return self._fenced(state, taken)
        return await self._proceed(ctx)

    def _dated(self, world: World) -> World:
        """The world on the rollout's own time, so that a jump of the wall clock is no drain, no window and no deadline."""
        now = self.clock.now()
        return replace(world, now=now, samples={name: replace(sample, at=now) for name, sample in world.samples.items()})

    def _anchored(self, state: RolloutState) -> RolloutState:
        """Journal a new anchor of time: after a reboot, on another host, or in a rollout of an older release."""
        at = self.clock.at if isinstance(self.clock, TrustedClock) else None
        if at is None or state.fact(FACT) == at:
            return state
        return self._write(state, [self._event("fact", "time is anchored to this machine's steady clock", facts={FACT: at})])

    def _ctx(self, state: RolloutState, world: World) -> Ctx:
        return Ctx(self.plan, state, world, self.backend.derive, self.backend.diff)

    async def _proceed(self, ctx: Ctx) -> Tick:
        """Decide; facts are written from the same observation, anything else ends the tick."""
        for _ in range(RECORDS):
            decision = decide(ctx)
            state = self._enter(ctx.state, decision)
            match decision:
                case Record(facts, why, note):
                    state = self._write(state, [self._event("fact", why, facts=facts, **({"note": note} if note else {}))])
                case Advance(step, target, why):
                    # the tick ends here: who asked for this step gets to see it before it does anything
                    events = [self._event("step", why, step=step.value, target=target)]
                    phase = base_phase(evolve(state, events[0]))
                    if phase is not state.phase:
                        events.append(self._event("phase", phase.value, phase=phase.value))
                    return Tick(self._write(state, events), self.clock.now())
                case TakeBack(cause, detail):
                    said = Said(verb="rollback", actor="judge", reason=f"{cause}: {detail}", at=self.clock.now())
                    state = self._write(state, [self._event("command", f"{cause}: {detail}", said=said.model_dump(mode="json"))])
                case Act(effect):
                    return await self._act(state, effect)
                case Wait(until, why, deadline):
                    return Tick(self._wait(state, why, until, deadline), until)
                case HoldOn() | Halt():
                    return Tick(state, self.clock.now() + timedelta(seconds=1))
                case Finish():
                    return Tick(state, self.clock.now())
            ctx = self._ctx(state, ctx.world)
        return Tick(ctx.state, self.clock.now())

    async def _act(self, state: RolloutState, effect: Effect) -> Tick:
        state = self._write(state, [self._event("intent", effect.why, effect=effect.model_dump(mode="json"))])
        self.checkpoint("intent")
        carrier = self.backend if self.backend.knows(effect.verb) else self.measurer
        try:
            receipt = await self._unless_told(
                carrier.perform(effect.verb, {**effect.args, **effect.unkept}), GRACE if effect.writes else 0.0
            )
        except Refused as error:
            return self._refused(state, effect, error)
        except ServerError as error:
            return self._unreachable(state, error)
        self.checkpoint("acted")
        self.failures = 0
        if receipt is None:
            return Tick(state, self.clock.now())
        state = self._write(state, [self._outcome(state, effect, "done", receipt)])
        self.checkpoint("outcome")
        return Tick(state, self.clock.now())

    async def _unless_told(self, work: Any, grace: float) -> dict[str, Json] | None:
        """The receipt; None when an abort or rollback came in meanwhile and the work did not end within `grace` seconds.

        The work is let go then; the next tick looks what it did.
        """
        task = asyncio.ensure_future(work)
        told: float | None = None
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=COMMAND_POLL)
                if done:
                    receipt: dict[str, Json] = task.result()
                    return receipt
                if told is None and any(c.verb in ("abort", "rollback") for c in self.store.pending(self.rollout_id)):
                    told = self.clock.monotonic()
                if told is not None and self.clock.monotonic() - told >= grace:
                    return None
        finally:  # also when Ctrl-C or a lost store ends this tick: nothing of it goes on behind our back
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _recover(self, state: RolloutState, world: World) -> RolloutState:
        """Close an intent that has no outcome, from what the world shows. Nothing is sent for it here."""
        opened = state.intent
        if opened is None:
            return state
        if satisfied(opened.effect, world):
            return self._write(state, [self._outcome(state, opened.effect, "observed", {"already": True})])
        text = "no result" if not opened.effect.writes else "not applied"
        lingers = opened.effect.verb in LINGERING
        # counted from now, when it answers again: a server that froze carries out what it holds when it thaws
        unsure = {"unsure": {"effect": opened.effect.model_dump(mode="json"), "at": world.now.isoformat()}}
        facts: dict[str, Json] = unsure if lingers else {}
        if opened.effect.verb == "twin":
            facts["twin_cut"] = opened.effect.args["deployment"]
        outcome = self._event("outcome", f"{text}: {opened.effect.why}", verb=opened.effect.verb, result=text, facts=facts)
        return self._write(state, [outcome])

    def _outcome(self, state: RolloutState, effect: Effect, result: str, receipt: dict[str, Json]) -> Event:
        facts: dict[str, Json] = {}
        if effect.fact:
            facts[effect.fact] = {"at": self.clock.now().isoformat(), **receipt}
        if effect.verb in ("join", "set_weight", "leave", "twin", "reweigh") and state.fact("expected") is not None:
            facts["expected"] = expected_after(effect, state.facts["expected"])
        if effect.verb == "twin":
            facts["twin_cut"] = None
        if effect.writes and state.fact("refused.first") is not None:
            facts["refused.first"] = None
        return self._event("outcome", f"{result}: {effect.why}", verb=effect.verb, result=result, facts=facts, receipt=receipt)

    def _refused(self, state: RolloutState, effect: Effect, error: Refused) -> Tick:
        told = f"{error.message} {error.why}".strip()
        if isinstance(error, KeyRefused):  # a key that may look and not write, or ended in between: only a person can mend that
            told = f"{told}; {error.hint}"
        reason = "credentials" if isinstance(error, KeyRefused) else "refused"
        fact = {"verb": effect.verb, "error": told, "reason": reason, "at": self.clock.now().isoformat()}
        event = self._event("outcome", f"refused: {effect.why}", verb=effect.verb, result="refused", facts={"refused": fact})
        return Tick(self._write(state, [event]), self.clock.now())

    def _unreachable(self, state: RolloutState, error: ServerError) -> Tick:
        """Nothing is decided from a world that could not be read. An open intent stays open. A refused key waits for a person."""
        if state.undo is not None and state.fact("marker") is None and state.fact("takeover") is None:
            return self._untouched(state, state.undo)
        if isinstance(error, KeyRefused) and state.fact("marker") is not None:
            hold = HoldOn("credentials", f"{error.message} {error.why}; {error.hint}", verbs=("run", "rollback"))
            state = self._enter(state, hold)
        wake = self.clock.now() + timedelta(seconds=BACKOFF[min(self.failures, len(BACKOFF) - 1)])
        self.failures += 1
        return Tick(self._wait(state, f"server: {error.message} {error.why}".strip(), wake, None), wake, error)

    def _untouched(self, state: RolloutState, said: Said) -> Tick:
        """Going back before anything was written needs no server: an address that never answers must not hold the route for ever."""
        phase = Phase.ABORTED if said.verb == "abort" else Phase.ROLLED_BACK
        text = f"nothing was written to the server yet ({said.reason})"
        finish = self._event("phase", text, phase=phase.value, exit_code=int(ExitCode.ROLLED_BACK))
        return Tick(self._write(state, [finish]), self.clock.now())

    def _fenced(self, state: RolloutState, taken: str) -> Tick:
        finish = self._event(
            "phase", f"fenced off: route taken over by {taken}", phase=Phase.ABORTED.value, exit_code=int(ExitCode.FENCED_OFF)
        )
        return Tick(self._write(state, [finish]), self.clock.now())

    def _take_commands(self, state: RolloutState) -> RolloutState:
        """Take up what people said since the last tick, in order, in one transaction."""
        commands = self.store.pending(self.rollout_id)
        events = []
        for c in commands:
            said = Said(verb=c.verb, actor=c.actor, reason=c.reason, at=c.at)
            text = f"{c.verb} by {c.actor}: {c.reason}"
            events.append(
                Event(
                    kind="command",
                    at=self.clock.now(),
                    actor=c.actor,
                    text=text,
                    data={"said": said.model_dump(mode="json"), "args": c.args},
                )
            )
        return self._write(state, events, consumed=[c.id for c in commands]) if commands else state

    def _enter(self, state: RolloutState, decision: Decision) -> RolloutState:
        """Enter the phase that the decision implies, and keep the reason of a hold or halt."""
        now, events = self.clock.now(), []
        halted = state.fact("halted")
        if isinstance(decision, Halt) and (halted is None or halted["reason"] != decision.reason):
            fact = {"halted": {"reason": decision.reason, "detail": decision.detail, "at": now.isoformat()}, "halt.probe": None}
            events.append(self._event("fact", f"halted: {decision.detail}", facts=fact))
        elif halted is not None and state.undo is not None and not isinstance(decision, Halt):
            events.append(self._event("fact", "no longer halted", facts={"halted": None}))
            halted = None
        phase, hold = phase_for(state, decision, halted=halted is not None), _hold(decision)
        if phase is not state.phase:
            events.append(self._event("phase", _words(decision, phase), phase=phase.value, exit_code=_exit(decision)))
        if isinstance(decision, Finish) and decision.facts:
            events.insert(0, self._event("fact", decision.why, facts=decision.facts))
        before = (state.hold.reason, state.hold.detail) if state.hold else None
        if hold is not None and before != (hold["reason"], hold["detail"]):
            known = state.hold if state.hold is not None and phase is state.phase else None
            since = known.since if known is not None and known.reason == hold["reason"] else now  # other words, the same hold
            events.append(self._event("hold", hold["detail"], hold={**hold, "since": since.isoformat()}))
        elif hold is None and state.hold is not None and phase is state.phase and not isinstance(decision, Record):
            events.append(self._event("hold", "hold over", hold=None))
        return self._write(state, events) if events else state

    def _wait(self, state: RolloutState, why: str, until: datetime, deadline: datetime | None) -> RolloutState:
        """Keep what is waited for in the state; a wait is shown, not journaled."""
        if state.waiting is not None and state.waiting.why == why:
            return state
        since = self.clock.now()
        waiting = {"why": why, "since": since.isoformat(), "until": (deadline or until).isoformat()}
        event = self._event("wait", why, waiting=waiting)
        state = evolve(state, event)
        self.store.append(self.rollout_id, self.fence, [], state, next_wake=until)
        self.on_event(event, state)
        return state

    def _event(self, kind: str, text: str, **data: Json) -> Event:
        return Event(kind=kind, at=self.clock.now(), actor=self.actor, text=text, data=data)

    def _write(self, state: RolloutState, events: Sequence[Event], consumed: Sequence[int] = ()) -> RolloutState:
        """One transaction: journal rows, state, consumed commands; refused when the fence moved."""
        shown = []
        for event in events:
            state = evolve(state, event)
            shown.append((event, state))
        self.store.append(self.rollout_id, self.fence, [_journaled(e) for e in events], state, consumed=consumed)
        for event, after in shown:
            self.on_event(event, after)
        self.checkpoint("written")
        return state


def _journaled(event: Event) -> Event:
    """The event as the journal keeps it: a note instead of facts that the state holds whole."""
    note = event.data.get("note")
    return event.model_copy(update={"data": {**note, "facts": sorted(event.data["facts"])}}) if note else event


def scope_of(state: RolloutState) -> Scope:
    """What this tick must see. Before the receipts exist: the plan's names, kept in the state since its creation.

    On the way back the engines are asked only for a drain that began: until then their pages would hold up the first write.
    """
    receipts = receipts_of(state)
    if receipts is None:
        names = tuple(state.fact("names") or ())
        fresh = state.fact(only.FACT) is None
        private = tuple(state.fact("probe_names") or ())
        return Scope(state.route, names, private, names, survey=fresh, front=fresh)
    files, front = state.step is StepName.CLEANUP, state.step is StepName.DECLARE
    sampled = receipts.names if state.undo is None else tuple(n for n in receipts.names if state.fact(undo_key(n)))
    return Scope(receipts.route, receipts.names, receipts.probe_names, sampled, files=files, front=front)


def base_phase(state: RolloutState) -> Phase:
    """The phase when nothing holds it up."""
    if state.undo is not None:
        return Phase.ROLLING_BACK
    return Phase.PROMOTED if state.step is StepName.CLEANUP else Phase.RUNNING


def phase_for(state: RolloutState, decision: Decision, *, halted: bool) -> Phase:
    """The phase that goes with a decision."""
    match decision:
        case Finish(phase=phase):
            return phase
        case Halt():
            return Phase.HALTED
        case HoldOn():
            return Phase.HOLDING
        case Record(facts):
            leaves = state.phase is Phase.PENDING or (halted and "halted" in facts)
            return base_phase(state) if leaves else state.phase
        case _:
            return Phase.HALTED if halted else base_phase(state)


def _hold(decision: Decision) -> dict[str, Json] | None:
    if not isinstance(decision, HoldOn):
        return None
    return {"reason": decision.reason, "detail": decision.detail, "clears": decision.clears, "verbs": decision.verbs}


def _words(decision: Decision, phase: Phase) -> str:
    match decision:
        case Finish(why=why):
            return why
        case HoldOn(detail=detail) | Halt(detail=detail):
            return detail
        case _:
            return phase.value


def _exit(decision: Decision) -> int | None:
    return int(decision.exit_code) if isinstance(decision, Finish) and decision.exit_code is not None else None


__all__ = ["Engine", "FencedOff", "Tick", "base_phase", "phase_for", "scope_of"]
