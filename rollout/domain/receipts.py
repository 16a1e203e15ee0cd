"""What a rollback needs, fixed before the first write. Stored in the journal and in the marker on the route. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field, ValidationError

from rollout.domain.state import Frozen, RolloutState
from rollout.domain.world import RouteView, TargetView, named
from rollout.errors import RollbackImpossible
from rollout.plan.hidden import keepable

Json = Any
_SUFFIX = re.compile(r"-r[0-9a-f]{8}$")
LONGEST = 60
"""characters of a name we give; the server makes longer ones out of it, for instances"""
MARK = 6
WORDS = 64
"""characters of somebody else's marker that a message repeats"""


class TargetReceipt(Frozen):
    """One target of the production route as it was found."""

    deployment: str
    weight: int
    extra: dict[str, Json] = Field(default_factory=dict)
    splits: bool = True
    """whether its weight takes part in the split"""


class Pair(Frozen):
    """One stable target and the canary that replaces it; all names derived from the rollout id."""

    stable: str
    canary: str
    stable_probe: str
    canary_probe: str
    adapter: str | None = None
    """the adapter that stable's target asks for, without the deployment's name; None for the base model"""
    weight: int
    """stable's weight as found, or as the conversion of the route set it"""
    scaled: int
    """stable's weight during the ladder; differs only where a sole target's weight was too coarse"""
    replicas: int | None = None
    """stable's replicas as found; None in a receipt of an older release"""
    adopted: TargetReceipt | None = None
    """the canary's target as it was found, where a person made the canary by hand; it is not among the route's `targets`"""
    keep: bool = False
    """a rollback leaves the canary's deployment: it was there before us"""


class Receipts(Frozen):
    """The snapshot a rollback restores."""

    rollout: str
    route: str
    targets: tuple[TargetReceipt, ...]
    meta: dict[str, Json]
    pairs: tuple[Pair, ...]
    staging: str
    staging_probe: str
    quiet: float
    drain_deadline: float
    converted: dict[str, int] = Field(default_factory=dict)
    """weights that a route without weights has during the rollout; empty when it had its own"""

    @property
    def names(self) -> tuple[str, ...]:
        """Every deployment a tick must look at."""
        ours = [n for p in self.pairs for n in (p.stable, p.canary)]
        others = [t.deployment for t in self.targets if t.deployment not in ours]
        return (*ours, self.staging, *others)

    @property
    def probe_names(self) -> tuple[str, ...]:
        return (*(n for p in self.pairs for n in (p.stable_probe, p.canary_probe)), self.staging_probe)

    def found(self, deployment: str) -> TargetReceipt | None:
        """The target of `deployment` as it was found."""
        return next((t for t in self.targets if t.deployment == deployment), None)

    def siblings_weight(self, pair: Pair) -> int:
        """Summed weight of all targets beside this pair that take a share. A target replaced earlier counts with its successor's
        weight: the same."""
        beside = [t for t in self.targets if t.deployment != pair.stable and t.splits]
        return sum(self.converted.get(t.deployment, t.weight) for t in beside)

    @property
    def uncounted(self) -> bool:
        """A target takes a share that no engine of ours counts: a provider behind the gateway."""
        return any(t.splits and "provider_id" in t.extra for t in self.targets)

    def asked_of(self, pair: Pair, deployment: str) -> dict[str, Json]:
        """Fields of a target for `deployment` that make it answer what stable's target answers: the same adapter."""
        return {"overridden_model_name": f"{deployment}:{pair.adapter}"} if pair.adapter else {}


def spec_digest(spec: Mapping[str, Json]) -> str:
    """SHA-256 (hex) of a spec: says later whether it is still the one that was declared.

    Of what is hidden in it 16 bits enter: enough to see a change, too little to guess a password by.
    """
    whole, kept = _canonical(dict(spec)), _canonical(keepable(dict(spec)))
    check = hashlib.sha256(whole.encode()).hexdigest()[:4] if kept != whole else ""
    return hashlib.sha256((kept + check).encode()).hexdigest()


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def short(rollout_id: str) -> str:
    """The suffix of everything we create: `r` and eight hex digits."""
    return "r" + rollout_id.replace("-", "")[:8]


def derived(base: str, rollout_id: str, taken: Collection[str] = ()) -> str:
    """Name of the successor of `base`; an earlier rollout's suffix is replaced, not piled up.

    Where that would be too long, or is among the `taken` names, six digits of a hash of `base` tell it from others.
    """
    stem, tag, attempt = _SUFFIX.sub("", base), short(rollout_id), 0
    name = f"{stem}-{tag}"
    while name in taken or len(name) > LONGEST:
        mark = hashlib.sha256(f"{base}/{attempt}".encode()).hexdigest()[:MARK]
        name, attempt = f"{stem[: LONGEST - len(tag) - MARK - 2]}-{mark}-{tag}", attempt + 1
    return name


def successors(stable: Sequence[str], rollout_id: str, others: Iterable[str]) -> dict[str, str]:
    """Stable deployment -> name of its successor, each its own, and none that is on the route already."""
    names: dict[str, str] = {}
    for base in stable:
        names[base] = derived(base, rollout_id, {*others, *stable, *names.values()})
    return names


def adapter_of(target: TargetView | None, deployment: str) -> str | None:
    """The adapter's own name in `deployment:adapter`; None for the base model."""
    return target.adapter.removeprefix(f"{deployment}:") if target is not None and target.adapter else None


def take(
    rollout_id: str,
    route: RouteView,
    stable: tuple[str, ...],
    scaled: Mapping[str, int],
    quiet: float,
    deadline: float,
    *,
    replicas: Mapping[str, int] | None = None,
    gateway: bool = False,
    converted: Mapping[str, int] | None = None,
) -> Receipts:
    """The receipts for `route` as it is now. `replicas`: of each stable deployment. `converted`: the weights a route without any gets for
    the rollout."""
    targets = tuple(
        TargetReceipt(deployment=named(t), weight=t.weight, extra=dict(t.extra), splits=t.splits(gateway=gateway)) for t in route.targets
    )
    weights = {t.deployment: t.weight for t in targets} | dict(converted or {})
    tag = short(rollout_id)
    canaries = successors(stable, rollout_id, weights)
    pairs = tuple(
        Pair(
            stable=name,
            canary=canaries[name],
            stable_probe=f"probe-{tag}-{n}-stable",
            canary_probe=f"probe-{tag}-{n}-canary",
            adapter=adapter_of(route.target_of(name), name),
            weight=weights[name],
            scaled=scaled.get(name, weights[name]),
            replicas=(replicas or {}).get(name),
        )
        for n, name in enumerate(stable)
    )
    return Receipts(
        rollout=rollout_id,
        route=route.name,
        targets=tuple(sorted(targets, key=lambda t: t.deployment)),
        meta=dict(route.meta),
        pairs=pairs,
        staging=f"staging-{tag}",
        staging_probe=f"probe-{tag}-staging",
        quiet=quiet,
        drain_deadline=deadline,
        converted=dict(converted or {}),
    )


def marker(receipts: Receipts, store_id: str, nonce: str, expires: datetime, by: str | None = None) -> dict[str, Json]:
    """What the route's `meta` carries while we hold it. `by`: the rollout that took over what `id` had begun."""
    return {
        **({"by": by} if by else {}),
        "id": receipts.rollout,
        "store": store_id,
        "nonce": nonce,
        "expires": expires.isoformat(),
        "receipts": receipts.model_dump(mode="json"),
    }


def recorded(marker: Mapping[str, Json]) -> Receipts | None:
    """The receipts in a marker; None when it holds none that this release can read: it may be anybody's, cut, or of another release."""
    try:
        return Receipts.model_validate(marker.get("receipts"))
    except ValidationError:
        return None


def legible(route: str, marker: Mapping[str, Json]) -> Receipts:
    """The receipts in a marker. RollbackImpossible without readable ones: nothing says what was there before."""
    receipts = recorded(marker)
    if receipts is not None:
        return receipts
    raise RollbackImpossible(
        f"The marker on route {route} (rollout {str(marker.get('id', '?'))[:WORDS]}) holds no receipts that this release can read.",
        why="It was cut or changed, or another release wrote it: nothing says what a rollback has to restore.",
        hint="Go back with the release that wrote it. Or let the deployments that you name serve alone, which needs no receipts: "
        f"`rollout stable-only {route} --stable NAME --server URL --reason …`.",
    )


def receipts_of(state: RolloutState) -> Receipts | None:
    """The receipts in the state, once declared."""
    raw = state.fact("receipts")
    return Receipts.model_validate(raw) if raw else None
