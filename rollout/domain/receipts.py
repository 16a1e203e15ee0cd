"""What a rollback needs, fixed before the first write. Stored in the journal and in the marker on the route. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from rollout.domain.state import Frozen, RolloutState
from rollout.domain.world import RouteView, TargetView
from rollout.plan.hidden import redacted

Json = Any
_SUFFIX = re.compile(r"-r[0-9a-f]{8}$")


class TargetReceipt(Frozen):
    """One target of the production route as it was found."""

    deployment: str
    weight: int
    extra: dict[str, Json] = Field(default_factory=dict)


class Pair(Frozen):
    """One stable target and the canary that replaces it; all names derived from the rollout id."""

    stable: str
    canary: str
    stable_probe: str
    canary_probe: str
    weight: int
    """stable's weight as found"""
    scaled: int
    """stable's weight during the ladder; differs only where a sole target's weight was too coarse"""
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
        """Summed weight of all targets beside this pair. A target replaced earlier counts with its successor's weight: the same."""
        return sum(t.weight for t in self.targets if t.deployment != pair.stable)


def spec_digest(spec: Mapping[str, Json]) -> str:
    """SHA-256 (hex) of a spec without its secrets: says later whether it is still the one that was declared."""
    text = json.dumps(redacted(dict(spec)), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def short(rollout_id: str) -> str:
    """The suffix of everything we create: `r` and eight hex digits."""
    return "r" + rollout_id.replace("-", "")[:8]


def derived(base: str, rollout_id: str) -> str:
    """Name of the successor of `base`; an earlier rollout's suffix is replaced, not piled up."""
    return f"{_SUFFIX.sub('', base)[:50]}-{short(rollout_id)}"


def named(target: TargetView) -> str:
    """How a target is called in receipts and messages: its deployment, or its id where it leads elsewhere (a provider)."""
    return target.deployment or f"target {target.id}"


def take(rollout_id: str, route: RouteView, stable: tuple[str, ...], scaled: Mapping[str, int], quiet: float, deadline: float) -> Receipts:
    """The receipts for `route` as it is now."""
    targets = tuple(TargetReceipt(deployment=named(t), weight=t.weight, extra=dict(t.extra)) for t in route.targets)
    weights = {t.deployment: t.weight for t in targets}
    tag = short(rollout_id)
    pairs = tuple(
        Pair(
            stable=name,
            canary=derived(name, rollout_id),
            stable_probe=f"probe-{tag}-{n}-stable",
            canary_probe=f"probe-{tag}-{n}-canary",
            weight=weights[name],
            scaled=scaled.get(name, weights[name]),
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
    )


def marker(receipts: Receipts, store_id: str, nonce: str, expires: datetime) -> dict[str, Json]:
    """What the route's `meta` carries while we hold it."""
    return {
        "id": receipts.rollout,
        "store": store_id,
        "nonce": nonce,
        "expires": expires.isoformat(),
        "receipts": receipts.model_dump(mode="json"),
    }


def receipts_of(state: RolloutState) -> Receipts | None:
    """The receipts in the state, once declared."""
    raw = state.fact("receipts")
    return Receipts.model_validate(raw) if raw else None
