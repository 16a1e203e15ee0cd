"""Model files on the workers: who uses which, and deleting one from disk. Never one that anything else uses, looked at just before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollout.backends.gpustack_fields import SOURCE_FIELDS
from rollout.backends.gpustack_hand import Brought, End, Hand
from rollout.backends.together import Together
from rollout.clients.gpustack import GPUStack
from rollout.clients.gpustack_rows import Model, ModelFile, Worker
from rollout.domain.world import FileView
from rollout.errors import Refused

Json = Any


def file_views(files: Iterable[ModelFile], models: Iterable[Model], workers: Iterable[Worker]) -> tuple[FileView, ...]:
    """Every row with the deployments of the same source: those with 0 replicas too, for they will want it again."""
    names = {worker.id: worker.name for worker in workers}
    users: dict[str, list[str]] = {}
    for model in models:
        users.setdefault(source_of(model.raw), []).append(model.name)
    return tuple(
        FileView(
            id=row.id,
            worker=names.get(row.worker_id) if row.worker_id is not None else None,
            source=source_of(row.raw),
            paths=tuple(row.resolved_paths or ()),
            size=row.size,
            state=row.state or "unknown",
            users=tuple(sorted(users.get(source_of(row.raw), ()))),
        )
        for row in sorted(files, key=lambda r: r.id)
    )


def source_of(raw: Mapping[str, Json]) -> str:
    """Where the files of a deployment, or of a row, come from: `local_path /models/x`."""
    return " ".join(str(raw[field]) for field in SOURCE_FIELDS if raw.get(field))


@dataclass(frozen=True)
class Seen:
    """The row, and why it must stay; neither when it is gone."""

    row: ModelFile | None
    users: tuple[str, ...] = ()


class Files:
    """The effect on files."""

    def __init__(self, client: GPUStack, hand: Hand) -> None:
        self._client = client
        self._hand = hand

    async def delete(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """{id, worker, source, paths}: no row of that id; its worker deletes the paths.

        Refused when the row is another one now, or when a deployment uses its source, on whatever worker.
        """
        what = f"file {', '.join(args['paths'])} on {args['worker']}"

        async def look() -> Seen:
            return await self._look(args)

        async def write(seen: Seen) -> None:
            if seen.users:
                raise Refused(f"{what} is not deleted: {', '.join(seen.users)} uses it.", hint="Nothing was changed; it can stay.")
            await self._client.delete_file(int(args["id"]))

        done: Brought[Seen] = await self._hand.bring(End(f"{what} goes", look, lambda s: s.row is None, write))
        return done.receipt()

    async def _look(self, args: Mapping[str, Json]) -> Seen:
        async with Together() as together:
            files, models = together.start(self._client.files()), together.start(self._client.models())
        row = next((r for r in files.result() if r.id == args["id"]), None)
        if row is None:
            return Seen(None)
        if source_of(row.raw) != args["source"] or list(row.resolved_paths or ()) != list(args["paths"]):
            raise Refused(f"Model file {row.id} is another one now.", why=f"it is {source_of(row.raw)}", hint="Nothing was deleted.")
        return Seen(row, tuple(sorted(m.name for m in models.result() if source_of(m.raw) == args["source"])))
