"""The table of verbs: which file holds one, and its summary. Imports nothing, so that `rollout --help` costs nothing."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """`module` is imported only when the verb is used; its function carries the verb's name (`list` is `list_`)."""

    module: str
    summary: str


VERBS: dict[str, Verb] = {
    "init": Verb("init", "Write a plan from a live route, with what a person must fill in."),
    "validate": Verb("validate", "Check a plan file: every finding at once, with line and remedy."),
    "plan": Verb("plan", "Dry run: the diff, the ladder, what can be detected and when, every call in order."),
    "run": Verb("run", "Start a rollout, or go on with one, and tick it until it is promoted."),
    "tick": Verb("tick", "Do one idempotent tick, for cron and CI schedules."),
    "status": Verb("status", "Say where a rollout is, what it waits for, and which verbs end that."),
    "watch": Verb("watch", "Show the status and keep it fresh until the rollout ends."),
    "wait": Verb("wait", "Block until a rollout is where you want it."),
    "list": Verb("listing", "List the rollouts of this store."),
    "journal": Verb("journal", "Print what was done, by whom and why; --verify checks the chain."),
    "windows": Verb("judge", "Write down what a rollout's judge saw: one line of JSON a window."),
    "judge": Verb("judge", "Judge recorded windows again: the same verdicts, or those of other margins."),
    "approve": Verb("control", "Let a rollout pass the gate that it waits at."),
    "pause": Verb("control", "Hold a rollout where it is; weights stay."),
    "resume": Verb("control", "End a pause or a hold, and look at the cause afresh."),
    "promote": Verb("control", "Accept the canary now, without waiting for the rest of the ladder."),
    "extend-window": Verb("control", "Keep the way back open for longer."),
    "abort": Verb("undo", "Stop before promotion and undo what was done."),
    "rollback": Verb("undo", "Go back to stable, at any time until the window has passed."),
    "adopt": Verb("adopt", "Go on with a canary that was begun by hand."),
    "takeover": Verb("takeover", "Claim a route whose owner is gone; then go on with it, or back."),
    "stable-only": Verb("stable_only", "Emergency without a plan: only these deployments serve the route."),
    "retry": Verb("retry", "Start a new attempt of a rollout that ended."),
    "demo": Verb("demo", "Watch a healthy and a bad rollout on a built-in sandbox."),
    "schema": Verb("schema", "Print the JSON Schema of plans."),
}
