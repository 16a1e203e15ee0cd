"""Which verbs make sense now: said before they are tried. Pure."""

from __future__ import annotations

from rollout.domain.state import RolloutState, StepName
from rollout.errors import RollbackImpossible, UsageError


def refuse(state: RolloutState, verb: str) -> None:
    """Raise where a verb cannot have an effect."""
    if state.terminal:
        _ended(state, verb)
    if verb == "abort" and state.step is StepName.CLEANUP:
        msg = f"rollout {state.id} is promoted: it can be rolled back, not aborted"
        raise UsageError(msg, hint=f"`rollout rollback {state.id} --reason ...`")
    began = state.fact("cleanup.began")
    if verb == "rollback" and began is not None:
        msg = f"rollout {state.id}: the cleanup has begun, the old side is being removed"
        hint = "Write a plan that goes the other way; the old spec is in the journal."
        raise RollbackImpossible(msg, why=f"since {began['at']}", hint=hint)
    if state.undo is not None and verb not in ("abort", "rollback", "resume"):
        msg = f"rollout {state.id} is rolling back; {verb} has no effect"
        raise UsageError(msg, hint=f"`rollout watch {state.id}` shows it end.")
    reason = state.hold.reason if state.hold is not None else None
    if verb == "approve" and reason == "inconclusive":
        msg = f"rollout {state.id} holds without a verdict: a plain approval is not enough"
        raise UsageError(msg, hint="`rollout approve --accept-inconclusive --reason ...` says that you accept that.")
    if verb == "accept_inconclusive" and reason != "inconclusive":
        msg = f"rollout {state.id} does not hold for want of a verdict"
        raise UsageError(msg, hint=f"`rollout status {state.id}` says what it waits for.")
    if verb == "promote" and state.step is StepName.CLEANUP:
        msg = f"rollout {state.id} is promoted already"
        raise UsageError(msg, hint=f"`rollout status {state.id}` says what it waits for.")
    if verb == "approve" and state.step is not StepName.CLEANUP and reason != "approval":
        msg = f"rollout {state.id} does not wait for an approval"
        why = state.hold.detail if state.hold else str(state.phase)
        raise UsageError(msg, why=why, hint=f"`rollout status {state.id}` says what it waits for.")


def _ended(state: RolloutState, verb: str) -> None:
    msg = f"rollout {state.id} has ended ({state.phase})"
    if verb == "rollback":
        since = f"since {state.ended:%Y-%m-%d %H:%M} UTC"
        raise RollbackImpossible(msg, why=since, hint="Write a plan that goes the other way.")
    again = "`rollout retry` begins a new attempt." if state.plan_digest else "`rollout list --active` shows what is under way."
    raise UsageError(msg, hint=again)
