"""The way back on GPUStack as calls for a person with `curl`, with the ids of this moment. Reads only; nothing is sent from here.

The order is the one that loses no request: stable joins, is active, answers; the cache is dropped; only then the canary leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollout.backends.gpustack_marker import held
from rollout.backends.gpustack_observe import Lists, read_lists
from rollout.backends.gpustack_views import OWNED, body_of, extra_of, names_of, target_view
from rollout.clients.gpustack import MODELS, ROUTES, TARGETS, GPUStack
from rollout.clients.gpustack_rows import Model, Route, Target
from rollout.domain.byhand import INFERENCE, ByHand, WayBack
from rollout.domain.carrying import EXACT_SINCE, version_of
from rollout.domain.effects import MARKER_KEY
from rollout.domain.receipts import Pair, Receipts, legible
from rollout.domain.world import named
from rollout.errors import NotFound, RollbackImpossible

Json = Any
ACTIVE = '"state": ?"active"'


async def way_back(client: GPUStack, route: str, receipts: Receipts | None) -> WayBack:
    """The calls that undo what `receipts` (else the marker on the route) say. NotFound without either, RollbackImpossible when what
    it needs is gone."""
    lists = await read_lists(client)
    if receipts is None:
        marker = held(lists.routes, route).marker
        if not isinstance(marker, Mapping):
            hint = "Nothing to roll back. `rollout list` shows the rollouts of this store."
            raise NotFound(f"route {route} carries no marker: no rollout holds it", hint=hint)
        receipts = legible(route, marker)
    row = lists.route(receipts.route)
    gone = [p.stable for p in receipts.pairs if lists.model(p.stable) is None]
    if row is None or gone:
        what = f"route {receipts.route}" if row is None else f"deployment {', '.join(gone)}"
        raise RollbackImpossible(
            f"{what} is gone: there is nothing to go back to", hint="Recreate it, or write a plan that goes the other way."
        )
    return WayBack(receipts.rollout, receipts.route, tuple(_Walk(lists, row, receipts).calls()))


def put_back(route: str, route_id: int, before: Sequence[Mapping[str, Json]], kept: Sequence[str]) -> ByHand:
    """The one list write that puts removed targets back beside those that stayed (`kept`). `before`: {id, model_id, deployment,
    weight, extra} of each target as it was."""
    rows = [
        {**({"id": t["id"]} if t["deployment"] in kept else {}), "model_id": t["model_id"], "weight": t["weight"], **t["extra"]}
        for t in before
    ]
    return ByHand(f"put the targets of {route} back as they were", "PUT", f"{ROUTES}/{route_id}", {"name": route, "targets": rows})


class _Walk:
    """One reading of the server, and what it takes to go back from there."""

    def __init__(self, lists: Lists, route: Route, receipts: Receipts) -> None:
        self.lists, self.route, self.receipts = lists, route, receipts
        self.targets = sorted((t for t in lists.targets if t.route_id == route.id), key=lambda t: t.id)
        self.ids = {m.name: m.id for m in lists.models}
        self.path = f"{ROUTES}/{route.id}"
        self.gone: tuple[int, ...] = ()
        self.older = (0, 0, 0) < version_of(lists.version) < EXACT_SINCE
        """2.2 answers 404 when one target is deleted, so there a target leaves by a list without it"""

    def calls(self) -> Iterator[ByHand]:
        """In order."""
        missing = [p for p in self.receipts.pairs if not self._of(p.stable)]
        leaving = [p for p in self.receipts.pairs if self._of(p.canary)]
        yield from self._unpark()
        yield from self._join(missing)
        for pair in self.receipts.pairs if missing or leaving else ():
            yield self._answers(pair)
        if missing or leaving:
            yield self._drop("drop the cached targets, so that stable is asked from now on")
        if missing and (self.older or self.receipts.converted):
            yield self._again()
            return
        for pair in reversed(leaving):
            yield from self._leave(pair)
        yield from self._verify(leaving)
        if others := list(self._set_by_others()):
            yield self._theirs(others)
            return
        yield from self._weights()
        if self.older and self._coarse():
            return
        yield from self._tidy()
        yield from self._unmark()

    def _of(self, deployment: str) -> list[Target]:
        return [t for t in self.targets if t.model_id is not None and t.model_id == self.ids.get(deployment)]

    def _model(self, deployment: str) -> Model | None:
        return self.lists.model(deployment)

    def _kept(self, *gone: int) -> list[dict[str, Json]]:
        """The list of targets as it is, without those that are `gone` by then."""
        return [{"id": t.id, **body_of(t.model_id, t.weight, extra_of(t))} for t in self.targets if t.id not in gone]

    def _unpark(self) -> Iterator[ByHand]:
        """The write itself carries the whole spec, which may hold secrets: it is not printed, only waited for."""
        for pair in self.receipts.pairs:
            model, replicas = self._model(pair.stable), pair.replicas or 1
            if model is not None and model.replicas == 0:
                why = f"{pair.stable} is parked: set its replicas to {replicas} in GPUStack now; this waits until it is loaded"
                yield ByHand(why, "GET", f"{MODELS}/{model.id}", until=f'"ready_replicas": ?{replicas}[,}}]', within=900)

    def _join(self, missing: Sequence[Pair]) -> Iterator[ByHand]:
        """All in one list write: nobody's target changes, so nobody's is away for a moment."""
        for pair in missing:
            private = self.lists.route(pair.stable_probe)
            if private is not None:
                yield _ask(f"{pair.stable} must answer before it gets a request", private, pair.stable)
        back = []
        for pair in missing:
            found = self.receipts.found(pair.stable)
            extra = {k: v for k, v in (found.extra if found else {}).items() if k not in OWNED and v is not None}
            back.append({"model_id": self.ids[pair.stable], "weight": pair.weight, **extra})
        if back:
            names = ", ".join(f"{p.stable} with weight {p.weight}" for p in missing)
            yield ByHand(
                f"{names} joins beside what is there", "PUT", self.path, {"name": self.route.name, "targets": [*self._kept(), *back]}
            )

    def _answers(self, pair: Pair) -> ByHand:
        return ByHand(
            f"the target of {pair.stable} must be active; nothing is taken from the canary before",
            "GET",
            f"{TARGETS}?route_id={self.route.id}&model_id={self.ids[pair.stable]}",
            until=ACTIVE,
        )

    def _drop(self, why: str) -> ByHand:
        return ByHand(why, "PUT", self.path, {"name": self.route.name})

    def _leave(self, pair: Pair) -> Iterator[ByHand]:
        yield _ask(f"{pair.stable} must answer", self.lists.route(pair.stable_probe) or self.route, pair.stable)
        for target in self._of(pair.canary):
            yield self._out(target, f"{pair.canary} leaves the route (target {target.id})")

    def _out(self, target: Target, why: str) -> ByHand:
        if not self.older:
            return ByHand(why, "DELETE", f"{TARGETS}/{target.id}")
        self.gone += (target.id,)
        return ByHand(why, "PUT", self.path, {"name": self.route.name, "targets": self._kept(*self.gone)})

    def _set_by_others(self) -> Iterator[str]:
        """Targets that taking our weights back would overwrite: on a converted route what is neither as found nor as given, and
        beside a weight that was made finer whatever came meanwhile."""
        ours = {self.ids.get(p.canary) for p in self.receipts.pairs} - {None}
        given = self.receipts.converted
        known = {t.deployment: (t.weight, given.get(t.deployment, t.weight)) for t in self.receipts.targets}
        for target in (t for t in self.targets if t.model_id not in ours):
            name = named(target_view(target, names_of(self.lists.models)))
            if target.weight not in known.get(name, (0,)) if given else (name not in known and self._coarse()):
                yield f"{name} {target.weight}"

    def _theirs(self, others: Sequence[str]) -> ByHand:
        why = f"somebody else set {', '.join(others)} on this route, so its weights stay as they are now"
        return ByHand(f"{why}. Settle that, then say the same command with --print again", "GET", f"{TARGETS}?route_id={self.route.id}")

    def _again(self) -> ByHand:
        why = "the rest needs the ids of the targets that just came: say the same command with --print again, and run what it prints"
        return ByHand(why, "GET", f"{TARGETS}?route_id={self.route.id}")

    def _coarse(self) -> list[Pair]:
        """Pairs whose stable has no target with its own weight: the ladder needed a finer one."""
        if self.receipts.converted or len(self.receipts.targets) > 1:
            return []
        return [p for p in self.receipts.pairs if (mine := self._of(p.stable)) and all(t.weight != p.weight for t in mine)]

    def _verify(self, leaving: Sequence[Pair]) -> Iterator[ByHand]:
        for pair in leaving:
            look = f"{TARGETS}?route_id={self.route.id}&model_id={self.ids[pair.canary]}"
            yield ByHand(f"{pair.canary} has no target left", "GET", look, until='"id":', never=True)
        if leaving:
            yield _ask("the route answers from what was there before", self.route, *(t.deployment for t in self.receipts.targets))

    def _weights(self) -> Iterator[ByHand]:
        """Stable's own weight, where the ladder needed a finer one: a twin joins, is active, and the old target leaves."""
        if self.receipts.converted:
            yield from self._unconvert()
            return
        alone = len(self.receipts.targets) == 1
        for pair, old in ((p, t) for p in self.receipts.pairs for t in self._of(p.stable) if alone and len(self._of(p.stable)) > 1):
            if old.weight != pair.weight and pair not in self._coarse():
                yield self._out(old, f"the target of {pair.stable} with weight {old.weight} leaves: its own weight is there beside it")
        for pair in self._coarse():
            mine = self._of(pair.stable)
            twin = {"model_id": self.ids[pair.stable], "weight": pair.weight, **extra_of(mine[0])}
            stays = [t for t in self._kept() if t["id"] == mine[0].id]
            yield ByHand(
                f"{pair.stable} gets its weight {pair.weight} back: a second target",
                "PUT",
                self.path,
                {"name": self.route.name, "targets": [*stays, twin]},
            )
            yield ByHand("both must be active", "GET", self.path, until='"ready_targets": ?2')
            yield self._drop("drop the cached targets")
            yield self._again() if self.older else self._out(mine[0], f"the old one leaves (target {mine[0].id})")

    def _unconvert(self) -> Iterator[ByHand]:
        """The route had no weights: all targets get theirs back in one write, since the server takes all or none."""
        canaries = tuple(t.id for p in self.receipts.pairs for t in self._of(p.canary))
        found = {self.ids.get(t.deployment): t.weight for t in self.receipts.targets}
        rows = [{**row, "weight": found.get(row.get("model_id"), 0)} for row in self._kept(*canaries)]
        if any(t.weight for t in self.targets):
            yield ByHand("the route balances again as it was found", "PUT", self.path, {"name": self.route.name, "targets": rows})

    def _tidy(self) -> Iterator[ByHand]:
        """Private routes, then deployments that nobody else's route sends to, after the streams that may still run on them."""
        for name in self.receipts.probe_names:
            private = self.lists.route(name)
            if private is not None:
                yield ByHand(f"remove the private route {name}", "DELETE", f"{ROUTES}/{private.id}")
        made = [*(p.canary for p in self.receipts.pairs if not p.keep), self.receipts.staging]
        models = [m for m in map(self._model, made) if m is not None]
        for number, model in enumerate(models):
            free = f"no route sends to {model.name} any more; one that does is somebody else's: take it out of there first"
            yield ByHand(free, "GET", f"{TARGETS}?model_id={model.id}", until='"id":', never=True, pause=number == 0)
            yield ByHand(f"delete the deployment {model.name}", "DELETE", f"{MODELS}/{model.id}")

    def _unmark(self) -> Iterator[ByHand]:
        """Last, since it is what a rollback reads."""
        found = held(self.lists.routes, self.route.name)
        if found.claim is not None:
            yield ByHand("remove the marker: the claim route", "DELETE", f"{ROUTES}/{found.claim.id}")
        meta = self.route.meta or {}
        if MARKER_KEY in meta:
            kept = {k: v for k, v in meta.items() if k != MARKER_KEY}
            yield ByHand("remove the marker; everything else stays", "PUT", self.path, {"name": self.route.name, "meta": kept})


def _ask(why: str, route: Route, *deployments: str) -> ByHand:
    """One request until one of these answers; the answer's `model` says who did."""
    body = {"model": route.name, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 1}
    names = "|".join(n.replace(".", "[.]") for n in deployments)
    return ByHand(why, "POST", "/v1/chat/completions", body, key=INFERENCE, until=f'"model": ?"({names})(:[^"]*)?"')
