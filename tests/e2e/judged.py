"""One rollout that the judge alone decides, under live traffic: a canary with one defect, and a seed for the engines and the users.

The real command, a real server (the sandbox as a process, or the lab). What a simulated engine does is turned on by its image's name,
so that every rollout has engines of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout.errors import ExitCode
from rollout.testing.traffic import Load
from tests.contract.site import Site, unique
from tests.e2e.lab.live import Live
from tests.e2e.support import HEAD, Case, Row, case

GIB = 1 << 30
ENGINE = {"ttft_base": 0.03, "tpot": 0.001, "jitter": 0.4, "slots": 64}
"""a median of 30 ms to the first token: vLLM's buckets are fine there, and a request costs the machine little"""
USERS = Load(clients=8, stream_share=0.0, think=0.05, max_tokens=4)
KNOWN = 400
"""requests that stable has served before the rollout: the yardstick"""
PLAN = (
    HEAD
    + """\
change: {{unit: backend_image, to: {{image_name: "IMAGE"}}}}
stable: [{{deployment: {stable}}}]
canary: {{sizing: {{worker: spark-02}}}}
stage: {{skip: the judge is tested here}}
ladder: [50, 100]
evidence:
  mode: rich
  window: 1s
  min_requests: 20
  min_time: 2s
  min_time_before_full: MIN
  deadline: DEADLINE
  margins: {{ttft: {{unacceptable: 0.4}}, errors: {{unacceptable: 0.03}}}}
  MORE
drain: {{quiet: 1s, deadline: 15s}}
window: {{duration: 1s}}
cleanup: {{approval: none}}
"""
)
PROBES = "probes: {pairs: 1000, batch: 100, warm_up: 1, max_tokens: 4}"


@dataclass(frozen=True)
class Defect:
    """What the canary's engine does, and the metric that a rollback must name (None: it must be promoted)."""

    name: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    culprit: str | None = None
    probed: bool = False
    """the plan asks for paired probes: no engine counts an answer that breaks off"""


IDENTICAL = Defect("identical")
DEFECTS = {
    defect.name: defect
    for defect in (
        IDENTICAL,
        Defect("ttft_half", {"ttft_factor": 1.5}, "ttft"),
        Defect("ttft_double", {"ttft_factor": 2.0}, "ttft"),
        Defect("errors", {"fail_rate": 0.05}, "errors"),
        Defect("truncated", {"truncate_rate": 0.03}, "errors", probed=True),
        Defect("leak", {"leak_bytes_per_request": 48 << 20}, "memory"),
        Defect("tail", {"tail_share": 0.06, "tail_factor": 6.0}, "ttft"),
    )
}


@dataclass
class Outcome:
    """How one rollout ended: exit code, who is to blame, the judge's own words, and its windows as they were recorded."""

    code: int
    culprits: tuple[str, ...]
    reason: str
    sentence: str
    windows: list[Row]
    seconds: float
    state: Row

    def right(self, defect: Defect) -> bool:
        """Promoted when nothing is wrong; else rolled back by the judge, and the first culprit is the right one."""
        if defect.culprit is None:
            return self.code == ExitCode.DONE
        return self.code == ExitCode.ROLLED_BACK and self.culprits[:1] == (defect.culprit,)

    @property
    def text(self) -> str:
        return f"exit {self.code} after {self.seconds:.0f} s, {len(self.windows)} windows; {self.reason or self.sentence}"


def rolled_out(
    site: Site,
    home: Path,
    defect: Defect,
    seed: int,
    *,
    history: Sequence[Row] = (),
    changes: Mapping[str, str] | None = None,
    load: Load = USERS,
    patience: float = 300.0,
) -> Outcome:
    """Deploy stable, let users come, roll the canary out with the real command until it is decided, and clean up."""
    with prepared(site, home, defect, seed, history=history, changes=changes) as made:
        described = site.described
        users = Load(**{**load.__dict__, "seed": seed})
        with Live(described["inference_url"], described["inference_key"], made.route, users, tail=10.0) as live:
            live.more(KNOWN)
            began = time.monotonic()
            process = made.start("run", str(made.plan), "--until", "completed", "--patience", "0s")
            code = made.over(process, patience)
            return outcome(made, code, time.monotonic() - began)


@contextmanager
def prepared(
    site: Site,
    home: Path,
    defect: Defect,
    seed: int,
    *,
    history: Sequence[Row] = (),
    changes: Mapping[str, str] | None = None,
    engine: Mapping[str, Any] | None = None,
) -> Iterator[Case]:
    """A route whose stable engine runs, and a plan for a canary with that defect."""
    old, new = f"sim/{unique('j')}:1", f"sim/{unique('j')}:2"
    knobs = {**ENGINE, **(engine or {})}
    site.node("spark-01", knobs={**knobs, "seed": 2 * seed}, image=old)
    site.node("spark-02", knobs={**knobs, **defect.knobs, "seed": 2 * seed + 1}, image=new)
    more = [PROBES] if defect.probed else []
    if history:
        (home / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history), "utf-8")
        more.append("history: history.jsonl")
    said = {**(changes or {}), "IMAGE": new, "  MORE\n": "".join(f"  {line}\n" for line in more)}
    for key, value in (("MIN", "2s"), ("DEADLINE", "180s")):
        if not any(key in old for old in said):
            said[key] = value
    with case(site, home, said, template=PLAN, store=f"{unique('s')}.db", deployed={"image_name": old}) as made:
        yield made


def outcome(made: Case, code: int, seconds: float) -> Outcome:
    """What the store says of a case's last rollout."""
    state, journal = made.state(), made.journal()
    assert state, f"no rollout was begun: {made.said(made.processes[-1])}"
    judge = state["facts"].get("0.judge") or {}
    found = judge.get("verdict") or {}
    said = state.get("undo") or {}
    reason = str(said.get("reason", "")) if said else ""
    culprits = tuple((found.get("details") or {}).get("evidence_against", {}).get("culprits", ()))
    if "memory" in reason.partition(":")[0] or "memory available" in reason:
        culprits = ("memory", *culprits)
    windows = [entry["data"]["window"] for entry in journal if "window" in entry["data"]]
    return Outcome(code, culprits, reason, str(found.get("sentence", "")), windows, seconds, state)


def recorded(windows: Sequence[Row]) -> list[Row]:
    """Windows of an identical canary as a history: only those that compared live requests."""
    live = [w for w in windows if w["load_ratio"] is not None and w["stable"]["status"] == w["canary"]["status"] == "OK"]
    return [{"rollout_windows": 1}, *live]
