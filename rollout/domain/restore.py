"""Can a stable side that left come back, and how long would it take? From this tick's world alone, before anybody needs it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.domain.context import Ctx
from rollout.domain.receipts import Pair
from rollout.domain.world import DeploymentView, FileView, WorkerView, World
from rollout.plan.hidden import keepable

Json = Any
MAY_DIFFER = frozenset({"replicas", "categories", "description"})
"""fields of a spec that another value of does not make it another deployment"""
AT_ONCE, BY_LOADING, NOT = "at_once", "by_loading", "not"


@dataclass(frozen=True)
class Restorable:
    """`word`: at_once | by_loading | not. `cause` is one word for what stands in the way, `why` the sentence; `seconds` to load."""

    word: str
    cause: str = ""
    why: str = ""
    seconds: float | None = None

    @property
    def told(self) -> str:
        """For a person: `restorable by loading, about 95 s`."""
        if self.word == AT_ONCE:
            return "restorable at once"
        if self.word == NOT:
            return f"NOT restorable: {self.why}"
        return f"restorable by loading, {about(self.seconds)}"


def about(seconds: float | None) -> str:
    """A load time in words."""
    return "load time unknown" if seconds is None else f"about {max(1, round(seconds))} s"


def kept(ctx: Ctx, index: int, pair: Pair) -> dict[str, Json]:
    """What stable number `index` is made of while it runs: its workers with the bytes reserved there, its files, its load time."""
    view = ctx.world.deployments.get(pair.stable)
    workers: dict[str, int | None] = {}
    for row in view.instances if view else ():
        if row.worker:
            workers[row.worker] = None if row.claim is None else (workers.get(row.worker) or 0) + row.claim
    files = [_file(f) for f in ctx.world.files or () if pair.stable in f.users and f.worker in workers and f.state == "ready"]
    return {"workers": workers, "files": files, "load": _load_time(ctx, index, view)}


def _file(row: FileView) -> dict[str, Json]:
    return {"id": row.id, "worker": row.worker, "source": row.source, "paths": list(row.paths), "size": row.size}


def _load_time(ctx: Ctx, index: int, view: DeploymentView | None) -> float | None:
    """Seconds: as the server recorded stable's own start; else as long as its successor took here."""
    own = [row.loaded for row in view.instances if row.loaded is not None] if view else []
    if own and max(own) <= ctx.the_plan.ready_within:  # a longer time is no start: the row was touched later
        return max(own)
    began, ready = ctx.at(f"{index}.attach.created"), ctx.at(f"{index}.attach.routed")
    return (ready - began).total_seconds() if began and ready else None


def restorable(ctx: Ctx, pair: Pair) -> Restorable:
    """Whether `pair.stable` could serve again now. What was never recorded (a takeover from the marker) is not held against it."""
    view = ctx.world.deployments.get(pair.stable)
    if view is None:
        return Restorable(NOT, "deleted", f"deployment {pair.stable} was deleted")
    if view.ready:
        return Restorable(AT_ONCE)
    if view.replicas == 0 and pair.replicas is None:
        return Restorable(NOT, "replicas", f"{pair.stable} has 0 replicas, and how many it had was not recorded")
    obstacle = unloadable(ctx, pair, view) or (_memory(ctx, kept_of(ctx, pair)) if view.replicas == 0 else None)
    return obstacle or Restorable(BY_LOADING, why="" if view.replicas == 0 else "it does not run now", seconds=load_time(ctx, pair))


def kept_of(ctx: Ctx, pair: Pair) -> Mapping[str, Json]:
    """What was recorded of a stable side when the window began; empty before, and after a takeover."""
    found: Mapping[str, Json] = ((ctx.state.fact("window") or {}).get("kept") or {}).get(pair.stable) or {}
    return found


def load_time(ctx: Ctx, pair: Pair) -> float | None:
    """Seconds a start of stable takes: as it last took here, else as recorded when the window began."""
    seconds = (ctx.state.fact(f"undo.{pair.stable}.loaded") or {}).get("seconds", kept_of(ctx, pair).get("load"))
    return None if seconds is None else float(seconds)


def unloadable(ctx: Ctx, pair: Pair, view: DeploymentView) -> Restorable | None:
    """Why a start of stable would bring something else, or nothing: another spec, a worker or files that are gone."""
    record = kept_of(ctx, pair)
    changed = _changed((ctx.state.fact("found") or {}).get(pair.stable), view)
    if changed:
        return Restorable(NOT, "spec", f"{pair.stable} was changed since ({', '.join(changed)}): it would start as something else")
    for name in record.get("workers") or {}:
        worker = ctx.world.workers.get(name)
        if worker is None or worker.state != "ready":
            return Restorable(NOT, "worker", f"{name}, where {pair.stable} ran, is {worker.state if worker else 'gone'}")
    gone = [f for f in record.get("files") or () if not _there(ctx.world, f)]
    if gone:
        where = "; ".join(f"{', '.join(f['paths'])} on {f['worker']}" for f in gone)
        return Restorable(NOT, "files", f"the files of {pair.stable} are gone: {where}")
    return None


def _changed(found: Mapping[str, Json] | None, view: DeploymentView) -> list[str]:
    """Fields in which the spec is no longer the one that was declared; secrets are compared as they are stored, hidden."""
    if found is None:
        return []
    then, now = keepable(dict(found)), keepable(dict(view.spec))  # both anew: an older release may have hidden less
    return [k for k in sorted({*now, *then} - MAY_DIFFER) if now.get(k) != then.get(k)]


def _there(world: World, file: Mapping[str, Json]) -> bool:
    """The file's row, or another one of the same source on that worker; a world that did not look says nothing against it."""
    if world.files is None:
        return True
    rows = (r for r in world.files if r.worker == file["worker"] and r.source == file["source"] and r.state == "ready")
    return any(set(file["paths"]) <= set(row.paths) for row in rows)


def _memory(ctx: Ctx, record: Mapping[str, Json]) -> Restorable | None:
    """Less memory on its worker than it reserved there plus the floor."""
    floor = ctx.plan.guards.memory_floor if ctx.plan is not None else 0
    for name, claim in (record.get("workers") or {}).items():
        free = ctx.world.workers[name].memory_available
        if claim is not None and free is not None and free < claim + floor:
            why = f"{name} has {free / 2**30:.1f} GiB available, it needs {claim / 2**30:.1f} and the floor of {floor / 2**30:.1f}"
            return Restorable(NOT, "memory", why)
    return None


def crowded(ctx: Ctx, pair: Pair) -> str | None:
    """A worker of stable on which memory is needed: less than twice the floor is available. Unknown memory needs nothing."""
    floor = ctx.the_plan.guards.memory_floor
    for worker in _workers(ctx.world, ctx.world.deployments.get(pair.stable)):
        free = worker.memory_available
        if free is not None and free < 2 * floor:
            return f"{worker.name} has {free / 2**30:.1f} GiB available, less than twice the floor"
    return None


def _workers(world: World, view: DeploymentView | None) -> Iterator[WorkerView]:
    for name in sorted({row.worker for row in view.instances if row.worker}) if view else ():
        if name in world.workers:
            yield world.workers[name]
