"""What goes when the window is over, and the model files on disk: listed, deleted only by the plan's word, and checked. Pure.

A file is deleted when it was stable's own when the window began and nothing else uses it now. The row's absence does not prove that
its bytes are gone, so the worker's disk is looked at too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from rollout.domain.context import Ctx, act
from rollout.domain.decision import Decision, Record
from rollout.domain.receipts import Pair
from rollout.domain.restore import kept_of
from rollout.domain.world import FileView

Json = Any
SHOWS_WITHIN = 120.0
"""seconds in which a worker's disk should show what was freed; its report is up to 35 s old"""
MOST = 0.9
"""share of the bytes that must be seen freed: others write to the same disk"""


def removal_list(ctx: Ctx) -> list[str]:
    """Everything that the cleanup removes, in order, a sentence each; also what stays although somebody may expect otherwise."""
    return [line for pair in ctx.receipts.pairs for line in _pair_lines(ctx, pair)]


def _pair_lines(ctx: Ctx, pair: Pair) -> Iterator[str]:
    view = ctx.world.deployments.get(pair.stable)
    used = sorted(set(view.routes) - set(ctx.receipts.probe_names)) if view else []
    if view is not None and used:
        yield f"deployment {pair.stable} stays: {', '.join(used)} sends to it"
    elif view is not None:
        yield f"deployment {pair.stable} ({view.replicas} replicas); its target left route {ctx.receipts.route} at 100 %"
    routes = [name for name in (pair.stable_probe, pair.canary_probe) if name in ctx.world.probe_routes]
    if routes:
        yield f"private routes {', '.join(routes)}"
    for file in kept_of(ctx, pair).get("files") or ():
        why = "the plan keeps files" if ctx.the_plan.cleanup.files == "keep" else _reason_to_keep(ctx, pair, file)
        yield f"{_named(file)} stays: {why}" if why else f"{_named(file)} is deleted from disk"


def _named(file: Mapping[str, Json]) -> str:
    size = "size unknown" if file.get("size") is None else f"{file['size']} bytes, {file['size'] / 2**30:.1f} GiB"
    return f"file {', '.join(file['paths'])} on {file['worker']} ({size})"


def delete_files(ctx: Ctx) -> Decision | None:
    """Delete one file after another, each seen gone, or its keeping noted; None when nothing is left to do."""
    if ctx.the_plan.cleanup.files == "keep":
        return None
    for pair in ctx.receipts.pairs:
        for file in kept_of(ctx, pair).get("files") or ():
            step = _delete(ctx, pair, file)
            if step is not None:
                return step
    return None


def _delete(ctx: Ctx, pair: Pair, file: Mapping[str, Json]) -> Decision | None:
    key, freed, stays = (f"cleanup.{word}.{file['id']}" for word in ("file", "freed", "kept"))
    if ctx.state.fact(freed) or ctx.state.fact(stays):
        return None
    if ctx.state.fact(key):
        return _freed(ctx, file, ctx.state.fact(key), freed)
    keep = _reason_to_keep(ctx, pair, file)
    if keep:
        kept = f"{_named(file)} stays: {keep}"
        return Record({stays: kept}, kept)
    before = _disk(ctx, file)
    if ctx.state.fact(f"{key}.before") is None:
        disk = f"{before} bytes used on its disk" if before is not None else "the use of its disk is unknown"
        return Record({f"{key}.before": {"at": ctx.now.isoformat(), "used": before}}, f"before deleting {_named(file)}: {disk}")
    args = {name: file[name] for name in ("id", "worker", "source", "paths")}
    return act("delete_file", f"delete {_named(file)}", key, **args)


def _freed(ctx: Ctx, file: Mapping[str, Json], done: Mapping[str, Json], fact: str) -> Decision:
    """The worker's disk before and after."""
    before, after = (ctx.state.fact(f"cleanup.file.{file['id']}.before") or {}).get("used"), _disk(ctx, file)
    size = int(file.get("size") or 0)
    gone = before - after if before is not None and after is not None else None
    if gone is not None and size and gone >= MOST * size:
        why = f"{_named(file)} is deleted; its disk shows {gone} bytes freed"
        return Record({fact: {"at": ctx.now.isoformat(), "bytes": gone, "why": why}}, why)
    if ctx.since(ctx.at(f"cleanup.file.{file['id']}")) < SHOWS_WITHIN:
        return ctx.wait(f"the disk of {file['worker']} shows what was freed", 5.0)
    seen = "is not known" if gone is None else f"shows {gone} bytes freed"
    why = f"{_named(file)} has no row any more, but its disk {seen}: look on {file['worker']} whether it is still there"
    return Record({fact: {"at": ctx.now.isoformat(), "bytes": gone, "why": why}}, why)


def _reason_to_keep(ctx: Ctx, pair: Pair, file: Mapping[str, Json]) -> str | None:
    """Who else uses the file, or why it cannot be said; None when it may go."""
    if ctx.world.files is None:
        return "it could not be looked at"
    row = next((r for r in ctx.world.files if r.id == file["id"]), None)
    if row is None:
        return "it is gone already"
    if row.source != file["source"] or row.worker != file["worker"]:
        return "its row is another one now"
    view = ctx.world.deployments.get(pair.stable)
    if view is not None and set(view.routes) - set(ctx.receipts.probe_names):
        return f"{pair.stable} stays"
    users = sorted(set(row.users) - {pair.stable})
    if users:
        return f"{', '.join(users)} uses it"
    own = {f["id"] for f in kept_of(ctx, pair).get("files") or ()}
    near = sorted({p for r in ctx.world.files if r.id not in own for p in _overlap(row, r)})
    return f"other files share its place: {', '.join(near)}" if near else None


def _overlap(one: FileView, other: FileView) -> Iterator[str]:
    """Paths of `other` that are, hold or lie in a path of `one`; on any worker, since a path may be shared by all."""
    for path in map(PurePosixPath, one.paths):
        for its in map(PurePosixPath, other.paths):
            if path == its or path in its.parents or its in path.parents:
                yield f"{its} on {other.worker}"


def _disk(ctx: Ctx, file: Mapping[str, Json]) -> int | None:
    """Bytes used on the disk that holds the file; None = unknown."""
    worker = ctx.world.workers.get(file["worker"])
    path = PurePosixPath(file["paths"][0]) if file["paths"] else None
    if worker is None or path is None:
        return None
    mounts = [m for m in worker.disks if PurePosixPath(m) in (path, *path.parents)]
    return worker.disks[max(mounts, key=len)] if mounts else None
