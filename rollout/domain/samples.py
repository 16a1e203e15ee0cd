"""Engine samples to and from JSON, so that the base of a window survives a crash. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rollout.domain.world import EngineSample, InstanceSample
from rollout.plan.history import LATENCIES

Json = Any


def to_json(sample: EngineSample) -> dict[str, Json]:
    """JSON types only; +Inf bounds become the string "inf"."""
    rows = {}
    for key, row in sample.instances.items():
        raw = asdict(row)
        for name in LATENCIES:
            if raw[name] is not None:
                raw[name] = [["inf" if math.isinf(le) else le, count] for le, count in sorted(raw[name].items())]
        rows[key] = raw
    return {"at": sample.at.isoformat(), "status": sample.status, "why": sample.why, "instances": rows}


def from_json(raw: Mapping[str, Json]) -> EngineSample:
    """The sample that `to_json` wrote."""
    rows = {}
    for key, row in raw["instances"].items():
        data = dict(row)
        for name in LATENCIES:
            if data.get(name) is not None:
                data[name] = {float(le): count for le, count in data[name]}
        rows[key] = InstanceSample(**data)
    return EngineSample(datetime.fromisoformat(raw["at"]), raw["status"], rows, raw.get("why", ""))


def requests_per_hour(sample: EngineSample | None, now: datetime) -> float | None:
    """Finished requests an hour since the engines started, at least over 60 s; None when unknown."""
    if sample is None or sample.status != "OK":
        return None
    total = 0.0
    for row in sample.instances.values():
        if row.requests is None or row.started is None:
            return None
        total += row.requests / max(60.0, now.timestamp() - row.started) * 3600
    return total if sample.instances else None
