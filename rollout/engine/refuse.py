"""Which verbs make sense now: said before they are tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rollout.domain.state import Phase, RolloutState, StepName
from rollout.domain.taken import route_command
from rollout.domain.window import ends
from rollout.engine import only
from rollout.engine.wayback import plan_back
from rollout.errors import ExitCode, RollbackImpossible, UsageError, WindowOpen

Json = Any


def refuse(state: RolloutState, verb: str, args: Mapping[str, Json] | None = None, plan: Mapping[str, Json] | None = None) -> None:
    """Raise where a verb cannot have an effect. `plan`: as it was stored, for the plan that a refused rollback offers instead."""
    if state.terminal:
        _ended(state, verb, plan)
    if verb == "abort" and state.step is StepName.CLEANUP:
        msg = f"rollout {state.id} is promoted: it can be rolled back, not aborted"
        raise UsageError(msg, hint=f"`rollout rollback {state.id} --reason ...`")
    began = state.fact("cleanup.began")
    if verb in ("rollback", "extend_window") and began is not None:
        msg = f"rollout {state.id}: the cleanup has begun, the old side is being removed"
        raise RollbackImpossible(msg, why=f"since {began['at']}", hint=_other_way(state, plan))
    if verb == "rollback" and state.undo is None:
        _restorable(state, plan)
    if state.undo is not None and verb not in ("abort", "rollback", "resume"):
        msg = f"rollout {state.id} is rolling back; {verb} has no effect"
        raise UsageError(msg, hint=f"`rollout watch {state.id}` shows it end.")
    if verb == "extend_window":
        _longer(state, args or {})
    _gates(state, verb)


def _gates(state: RolloutState, verb: str) -> None:
    """Words that must meet something which asks for them."""
    reason = state.hold.reason if state.hold is not None else None
    says = f"`rollout status {state.id}` says what it waits for."
    if verb == "approve" and reason == "inconclusive":
        msg = f"rollout {state.id} holds without a verdict: a plain approval is not enough"
        raise UsageError(msg, hint="`rollout approve --accept-inconclusive --reason ...` says that you accept that.")
    if verb == "accept_inconclusive" and reason != "inconclusive":
        msg = f"rollout {state.id} does not hold for want of a verdict"
        raise UsageError(msg, hint=says)
    if verb == "promote" and state.step is StepName.CLEANUP:
        msg = f"rollout {state.id} is promoted already"
        raise UsageError(msg, hint=says)
    if verb == "approve" and state.step is not StepName.CLEANUP and reason != "approval":
        msg = f"rollout {state.id} does not wait for an approval"
        why = state.hold.detail if state.hold else str(state.phase)
        raise UsageError(msg, why=why, hint=says)
    if verb == "approve_park" and (state.step is not StepName.CLEANUP or state.fact("cleanup.began") is not None):
        msg = f"rollout {state.id} is not in its rollback window: nothing is parked"
        raise UsageError(msg, hint=says)


def _restorable(state: RolloutState, plan: Mapping[str, Json] | None) -> None:
    """What the last look found gone that a rollback needs."""
    lost = [one["why"] for one in (state.fact("restorable") or {}).values() if one["word"] == "not"]
    if lost and state.step is StepName.CLEANUP:
        msg = f"rollout {state.id} cannot be rolled back: the old side cannot come back"
        again = f"Put it back and `rollout tick {state.id}` looks again. "
        raise RollbackImpossible(msg, why="; ".join(lost), hint=again + _other_way(state, plan))


def _longer(state: RolloutState, args: Mapping[str, Json]) -> None:
    end = ends(state)
    if args.get("until") and end is not None and datetime.fromisoformat(args["until"]) <= end:
        msg = f"the rollback window of rollout {state.id} is open until {end:%Y-%m-%d %H:%M} UTC: it is not made shorter"
        raise WindowOpen(msg, why=f"asked for until {args['until']}", hint="Name a later moment, or `--by` a length of time.")


def _ended(state: RolloutState, verb: str, plan: Mapping[str, Json] | None) -> None:
    msg = f"rollout {state.id} has ended ({state.phase})"
    if verb in ("rollback", "extend_window"):
        raise RollbackImpossible(msg, why=f"since {state.ended:%Y-%m-%d %H:%M} UTC", hint=_after_all(state, plan))
    again = "`rollout retry` begins a new attempt." if state.plan_digest else "`rollout list --active` shows what is under way."
    raise UsageError(msg, hint=again)


def _after_all(state: RolloutState, plan: Mapping[str, Json] | None) -> str:
    """What somebody can do who wants one that has ended to go back."""
    if state.exit_code == ExitCode.FENCED_OFF:
        return f"Another one holds the route, or held it since: `{route_command(state.route, state.server)}` goes back, whoever holds it."
    if state.exit_code == ExitCode.ROLLBACK_INCOMPLETE:
        return f"`rollout journal {state.id}` says what is left: that is put right in GPUStack, or by a plan of its own."
    if state.phase is not Phase.COMPLETED:
        return "There is nothing to take back: it has gone back already, or it changed nothing."
    if state.fact(only.FACT) is not None:
        return f"`rollout journal {state.id} --json` has what stood on the route under `before`: put that back in GPUStack."
    return _other_way(state, plan)


def _other_way(state: RolloutState, plan: Mapping[str, Json] | None) -> str:
    """What is left when a rollback is not: a plan that makes the old deployment again from its recorded spec."""
    back = plan_back(state, plan)
    where = f"`rollout journal {state.id} --json` has the recorded spec of the old deployment under `found`."
    if back is None:
        return f"Write a plan that goes the other way. {where}"
    return f"This plan makes the old side again, as a rollout of its own (`rollout plan -` reads it). {where}\n{back}"
