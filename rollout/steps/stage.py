"""Step 2, stage: load-test the canary's spec on a staging worker, with the memory record. The production route is not touched."""

from __future__ import annotations

from typing import Any

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Advance, Decision, Record, TakeBack
from rollout.domain.receipts import receipts_of
from rollout.domain.serve import bring_up, take_down, warm_up
from rollout.domain.state import StepName

Json = Any


def cells(ctx: Ctx) -> list[tuple[int, int]]:
    """The matrix, smallest load first, so that it stops before the floor breaks hard."""
    stage = ctx.the_plan.stage
    return [(p, c) for c in sorted(set(stage.concurrency)) for p in sorted(set(stage.prompt_tokens))]


def decide(ctx: Ctx) -> Decision:
    """Skip with the recorded reason, accept a valid report, or bring up, measure cell by cell, and take down."""
    stage = ctx.the_plan.stage
    if stage.skip is not None:
        return Advance(StepName.ATTACH, 0, f"staging skipped: {stage.skip}")
    report = ctx.state.fact("stage.report")
    if report is not None:
        gone = take_down(ctx, ctx.receipts.staging, ctx.receipts.staging_probe)
        return gone or Advance(StepName.ATTACH, 0, report["sentence"])
    return _bring_up(ctx) or _warm(ctx) or _measure(ctx)


def _bring_up(ctx: Ctx) -> Decision | None:
    return bring_up(ctx, ctx.receipts.staging, ctx.receipts.staging_probe, "stage", ctx.the_plan.stage.ready_within)


def _warm(ctx: Ctx) -> Decision | None:
    if ctx.state.fact("stage.warm"):
        return None
    return warm_up(ctx, ctx.receipts.staging_probe, "warm the staging deployment", "stage.warm")


def _measure(ctx: Ctx) -> Decision:
    stage, done = ctx.the_plan.stage, []
    for prompt, concurrency in cells(ctx):
        cell = ctx.state.fact(f"stage.cell.{prompt}x{concurrency}")
        if cell is None:
            args = {
                "model": ctx.receipts.staging_probe,
                "worker": stage.worker,
                "prompt_tokens": prompt,
                "concurrency": concurrency,
                "requests": stage.requests_per_cell,
                "output_tokens": stage.output_tokens,
            }
            return act("stage_cell", f"load: {prompt} prompt tokens x {concurrency} at once", f"stage.cell.{prompt}x{concurrency}", **args)
        broken = breaks(cell, ctx.the_plan.guards.memory_floor, stage.max_ttft)
        if broken:
            return TakeBack("staging", f"{prompt} prompt tokens x {concurrency}: {broken}")
        done.append(cell)
    return Record({"stage.report": report(done)}, "capacity report written")


def breaks(cell: dict[str, Json], floor: int, max_ttft: float | None) -> str | None:
    """Why one cell of the matrix refuses the canary."""
    memory = cell.get("memory_peak")
    if memory is not None and memory < floor:
        return f"memory available fell to {memory / 2**30:.1f} GiB, floor {floor / 2**30:.1f} GiB"
    if not cell.get("ok"):
        return "no request was answered"
    if cell.get("errors"):
        return f"{cell['errors']} of {cell['n']} requests failed"
    if max_ttft is not None and cell.get("ttft_p50") is not None and cell["ttft_p50"] > max_ttft:
        return f"median time to first token {cell['ttft_p50']:.3f} s, at most {max_ttft:g} s"
    return None


def report(done: list[dict[str, Json]]) -> dict[str, Json]:
    """The capacity report: every cell, and the headroom in one sentence. `memory_*`: bytes available; lowest = at the peak."""
    known = [c["memory_peak"] for c in done if c.get("memory_peak") is not None]
    lowest = f"at least {min(known) / 2**30:.1f} GiB stayed available" if known else "memory unknown"
    bound = sum(1 for c in done if c.get("client_bound"))
    note = f"; {bound} cells client-bound" if bound else ""
    top = max(done, key=lambda c: c["concurrency"])
    speed = top.get("tokens_per_second")
    rate = f"{speed:.0f} tokens/s at {top['concurrency']} at once" if speed is not None else "no token rate"
    return {"cells": done, "sentence": f"staged: {len(done)} cells, {rate}, {lowest}{note}"}


def undo(ctx: Ctx) -> Decision | None:
    """Take the staging deployment down; only our own requests ever reached it."""
    receipts = receipts_of(ctx.state)
    return take_down(ctx, receipts.staging, receipts.staging_probe) if receipts else None
