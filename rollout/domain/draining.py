"""Wait until a side is empty, with the deadline that ends in a hold and never in a kill. Pure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from rollout.domain.context import Ctx
from rollout.domain.decision import Decision, HoldOn, Record
from rollout.domain.drain import Mark, look

Json = Any
PROXY_LIMIT = 1800.0
"""seconds after which GPUStack's proxy ends any request (GPUSTACK_PROXY_TIMEOUT_SECONDS)"""


def undo_key(name: str) -> str:
    """The fact of a side's drain on the way back; whoever decides what a tick must see looks for it."""
    return f"undo.{name}.drain"


def wait_empty(ctx: Ctx, name: str, key: str, quiet: float, deadline: float, on_timeout: str) -> Decision | None:
    """The next thing until `name` has no request in flight; None when it is empty (the fact `key` says how long it took)."""
    fact: dict[str, Json] = dict(ctx.state.fact(key) or {})
    if fact.get("done"):
        return None
    if "began" not in fact:
        return Record({key: {"began": ctx.now.isoformat(), "mark": None}}, f"drain of {name} begins")
    before = _mark(fact.get("mark"))
    answer = look(ctx.world.deployments.get(name), ctx.world.samples.get(name), before, quiet)
    took = (ctx.now - datetime.fromisoformat(fact["began"])).total_seconds()
    if answer.empty:
        return _done(key, fact, ctx, took, answer.why)
    if not answer.known and took > PROXY_LIMIT:
        return _done(key, fact, ctx, took, f"no engine evidence; the proxy's own limit of {PROXY_LIMIT:.0f} s has passed")
    if took > deadline:
        if on_timeout == "proceed":
            return _done(key, {**fact, "forced": True}, ctx, took, f"deadline passed and the plan says proceed: {answer.why}")
        return HoldOn("drain_timeout", f"{name} after more than {deadline:.0f} s: {answer.why}", clears=(key,))
    if answer.mark != before:
        mark = asdict(answer.mark) | {"at": answer.mark.at.isoformat()} if answer.mark else None
        return Record({key: {**fact, "mark": mark}}, answer.why)
    return ctx.wait(f"drain of {name}: {answer.why}", min(1.0, quiet / 4))


def _done(key: str, fact: dict[str, Json], ctx: Ctx, took: float, why: str) -> Record:
    now = ctx.now.isoformat()
    return Record({key: {**fact, "done": now, "at": now, "seconds": took, "why": why}}, f"drained in {took:.0f} s: {why}")


def _mark(raw: dict[str, Json] | None) -> Mark | None:
    return Mark(datetime.fromisoformat(raw["at"]), raw["requests"], raw["tokens"], raw.get("busy", False)) if raw else None
