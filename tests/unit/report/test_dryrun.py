"""The dry run says every rung in weights, every call in order, every deadline, and what speaks against starting."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

from rollout.analysis.config import config_for
from rollout.analysis.samples import Histogram
from rollout.domain.receipts import Receipts, TargetReceipt, take
from rollout.domain.weights import rungs
from rollout.domain.world import TargetView
from rollout.plan.model import Plan
from rollout.report.calls import calls
from rollout.report.dryrun import Declared, DryRun, deadlines, dry_run, may, shortest
from rollout.report.dryrun_text import screen
from tests.unit.report.samples import plan, route, world

SHARES = (0.1, 0.5, 1.0)


def receipts(scaled: dict[str, int] | None = None) -> Receipts:
    return take("????????", route("spark-01", "spark-02"), ("spark-01", "spark-02"), scaled or {}, 30, 1800)


def declared(found: Receipts) -> Declared:
    ladders = {p.canary: rungs(SHARES, p.scaled, found.siblings_weight(p)) for p in found.pairs}
    rows: list[list[object]] = [["image_name", "vllm:v0.20.0", "vllm:v0.21.0"], ["gpu_memory_utilization", 0.5, 0.4], ["name", "a", "b"]]
    return Declared("thin", 400.0, found, ladders, {found.pairs[0].canary: rows}, {"spark-01": ["embed"]})


def run(said: Plan | None = None, refusals: tuple[str, ...] = ()) -> DryRun:
    return dry_run(said or plan(), world(), refusals, declared(receipts()), config_for("thin", rungs=2))


def test_each_rung_shows_asked_weight_pair_and_route_share() -> None:
    first, second, full = run().pairs[0].rungs
    assert (first.asked, first.weight) == (0.1, 11)
    assert first.pair_share == pytest.approx(11 / 111)
    assert first.route_share == pytest.approx(11 / 211)
    assert (second.weight, second.may) == (100, "latency may pass and fail")
    assert (full.weight, full.pair_share, full.load_ratio) == (None, 1.0, None)
    assert [r.effective for r in (first, second, full)] == [(11 / 211,), (1 / 3,), (0.5,)]


@pytest.mark.parametrize(
    ("ratio", "word"), [(0.1, "fail, not pass"), (1.0, "pass and fail"), (2.0, "pass, not fail"), (None, "no control")]
)
def test_what_a_rung_may_decide_follows_from_the_load_per_replica(ratio: float | None, word: str) -> None:
    assert word in may(ratio)


def test_the_change_unit_and_the_confounders_are_told_apart() -> None:
    changes = run().pairs[0].changes
    assert [(c.field, c.kind) for c in changes] == [("image_name", "unit"), ("gpu_memory_utilization", "sizing")]


def test_the_calls_begin_and_end_with_the_marker_and_touch_one_target_at_a_time() -> None:
    verbs = [(c.step, c.target, c.verb) for c in run().calls]
    assert verbs[0] == ("declare", None, "mark_route")
    assert verbs[-1] == ("cleanup", None, "unmark_route")
    first = [v for s, t, v in verbs if t == 1 and s in ("attach", "canary", "shift")]
    assert first == ["create_deployment", "create_probe_route", "create_probe_route", "join", "refresh", "set_weight", "refresh", "leave"]
    assert verbs.index(("shift", 1, "leave")) < verbs.index(("attach", 2, "create_deployment"))
    assert [v for s, _, v in verbs if s == "stage"] == [
        "create_deployment",
        "create_probe_route",
        "delete_probe_route",
        "delete_deployment",
    ]


def test_a_skipped_stage_makes_no_call() -> None:
    skipped = plan(stage={"skip": "no staging worker in this lab"})
    assert all(c.step != "stage" for c in run(skipped).calls)
    assert all(d.what != "staging deployment ready" for d in deadlines(skipped, "thin"))


def test_a_weight_that_is_too_coarse_is_replaced_by_a_twin_first() -> None:
    found = receipts({"spark-01": 900})
    first = [c.verb for c in calls(plan(), found, declared(found).ladders) if c.step == "canary" and c.target == 1]
    assert first == ["twin", "join", "refresh"]


def test_an_adopted_canary_is_neither_made_nor_staged_and_goes_on_at_its_rung() -> None:
    """Found with the second rung's weight: no join, no set_weight; then stable leaves, and the second target begins as ever."""
    found = receipts()
    by_hand = found.pairs[0].model_copy(
        update={"canary": "by-hand", "adopted": TargetReceipt(deployment="by-hand", weight=100), "keep": True}
    )
    found = found.model_copy(update={"pairs": (by_hand, found.pairs[1])})
    what = dataclasses.replace(declared(found), standing="by-hand is adopted: rung 2 of the ladder", begin=1)
    told = dry_run(plan(), world(), (), what, config_for("thin", rungs=2))
    assert [c.verb for c in told.calls if c.target == 1 and c.step != "cleanup"] == [
        "create_probe_route",
        "create_probe_route",
        "refresh",
        "leave",
    ]
    assert [c.verb for c in told.calls if c.target == 2][:4] == ["create_deployment", "create_probe_route", "create_probe_route", "join"]
    assert all(c.step != "stage" for c in told.calls)
    assert "by-hand is adopted: rung 2" in shown(told)
    assert "`rollout adopt` would start this" in shown(told)


def test_an_adopted_canary_is_counted_once_and_as_large_as_it_is() -> None:
    """The target that it has already is no sibling of itself: its share of the route is that of the pair, also with two replicas."""
    seen, found = world(), receipts()
    assert seen.route is not None
    by_hand = dataclasses.replace(seen.deployments["spark-01"], name="by-hand", replicas=2)
    targets = (*seen.route.targets, TargetView(9, 9, "by-hand", 100, "active"))
    there = dataclasses.replace(
        seen, route=dataclasses.replace(seen.route, targets=targets), deployments={**seen.deployments, "by-hand": by_hand}
    )
    pair = found.pairs[0].model_copy(update={"canary": "by-hand", "adopted": TargetReceipt(deployment="by-hand", weight=100)})
    found = found.model_copy(update={"pairs": (pair, found.pairs[1])})
    own, adopted = run().pairs, dry_run(plan(), there, (), declared(found), config_for("thin", rungs=2)).pairs
    assert [r.effective for p in adopted for r in p.rungs] == [r.effective for p in own for r in p.rungs]
    halved = [r.load_ratio / 2 for r in own[0].rungs if r.load_ratio]
    assert [r.load_ratio for r in adopted[0].rungs if r.load_ratio] == pytest.approx(halved)


def test_every_deadline_says_what_happens_then() -> None:
    rows = deadlines(plan(), "sparse")
    assert all(row.then for row in rows)
    assert next(r.seconds for r in rows if r.what == "verdict") == 14400
    assert "never kills" in next(r.then for r in rows if r.what == "drain of stable")
    forced = plan(drain={"on_timeout": "proceed", "reason": "night, nobody is there"})
    assert "cuts" in next(r.then for r in deadlines(forced, "thin") if r.what == "drain of stable")


def test_the_shortest_time_counts_each_rung_below_full() -> None:
    assert shortest(plan(), "thin", 2) == 600 + 3600 + 30
    assert shortest(plan(), "rich", 1) == 600 + 30


def test_refusals_stand_first_and_without_a_declaration_nothing_is_invented() -> None:
    bare = dry_run(plan(), world(), ("route `chat` does not exist",), None, None)
    assert (bare.pairs, bare.calls, bare.evidence) == ((), (), None)
    assert "REFUSED: 1 finding(s)" in shown(bare).splitlines()[2]


def shown(what: DryRun, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, color_system=None).print(screen(what))
    return out.getvalue()


@pytest.mark.parametrize(("pairs", "claimed"), [(None, True), (100, False)])
def test_a_bound_is_claimed_in_advance_only_where_the_verdict_will_claim_it(pairs: int | None, claimed: bool) -> None:
    """With moods of a replica and paired probes it will not, also where rich traffic has probes because the plan asks for them."""
    judge = config_for("rich", rungs=2, reference_ttft=Histogram((0.1, 0.2), (40, 40, 20)), noise=(0.2, 0.8))
    evidence = plan().evidence
    asked = plan().model_copy(
        update={"evidence": evidence.model_copy(update={"probes": evidence.probes.model_copy(update={"pairs": pairs})})}
    )
    seen = dry_run(asked, world(), (), dataclasses.replace(declared(receipts()), mode="rich"), judge).evidence
    assert seen is not None
    assert seen.note.startswith("wrong rollback <=") is claimed


@pytest.mark.parametrize("width", [80, 120])
def test_the_forecast_fits_the_terminal(width: int) -> None:
    text = shown(run(), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "11 : 100" in text
    assert "traffic is split by the server itself, by exact weights" in text
    assert "not guaranteed: one replica" in text
    assert "also serves embed" in text


def test_the_forecast_is_json() -> None:
    raw = json.loads(run().model_dump_json())
    assert raw["evidence"]["v"] == 0.2
    assert raw["pairs"][0]["rungs"][0]["weight"] == 11
    assert raw["deadlines"][-1]["what"] == "rollback window"


def test_a_stable_that_may_be_parked_says_when_and_who_is_asked() -> None:
    row = next(r for r in deadlines(plan(), "thin") if r.what == "stable runs on, at least")
    assert (row.seconds, row.then) == (3600, "then it is parked where memory is needed, after `rollout approve --park`")
    parked = plan(window={"keep": "parked", "approval": "none", "duration": "2h"})
    assert next(r.then for r in deadlines(parked, "thin") if r.what == "stable runs on, at least") == "then it is parked with replicas 0"
    for never in ({"keep": "warm"}, {"duration": "30m"}):
        assert all(r.what != "stable runs on, at least" for r in deadlines(plan(window=never), "thin"))
    assert [c.verb for c in run(parked).calls if c.verb == "scale"] == ["scale", "scale"]


def test_a_default_window_on_sparse_traffic_may_be_longer() -> None:
    assert deadlines(plan(), "sparse")[-1].then.startswith("longer until 50 live requests, at most 72 h; ")
    assert deadlines(plan(), "rich")[-1].then.startswith("waits")
    assert deadlines(plan(window={"duration": "24h"}), "sparse")[-1].then.startswith("waits")


def test_files_are_deleted_only_by_the_plans_word() -> None:
    assert "delete_file" not in [c.verb for c in run().calls]
    assert [c.target for c in run(plan(cleanup={"files": "delete"})).calls if c.verb == "delete_file"] == [1, 2]


def test_a_conversion_is_one_call_before_the_first_rung() -> None:
    converted = {"spark-01": 100, "spark-02": 100}
    bare = dataclasses.replace(route("spark-01", "spark-02"), lb_mode=None)
    found = take("????????", bare, ("spark-01", "spark-02"), {}, 30, 1800, converted=converted)
    told = calls(plan(), found, declared(found).ladders)
    places = [n for n, c in enumerate(told) if c.verb == "reweigh"]
    assert places == [next(n for n, c in enumerate(told) if c.verb == "join") - 1]
    assert told[places[0]].text == "give route chat weights, all in one write: spark-01 100, spark-02 100"


def test_notes_on_the_route_stand_in_the_text_and_in_the_json() -> None:
    limited = dataclasses.replace(route("spark-01").targets[0], extra={"max_running_requests": 4})
    seen = dataclasses.replace(world(), route=dataclasses.replace(route("spark-01"), targets=(limited,)))
    shown = dry_run(plan(stable=[{"deployment": "spark-01"}]), seen, (), None, None)
    note = "spark-01 may run 4 requests an instance here: the canary gets the same limit"
    assert shown.model_dump()["notes"] == (note,)
    console = Console(file=io.StringIO(), width=200)
    console.print(screen(shown))
    assert f"  {note}" in console.file.getvalue()  # type: ignore[attr-defined]


def with_set(count: int) -> Plan:
    rows = [{"id": f"q{n}", "prompt": "x", "expected": "z"} for n in range(count)]
    said = plan().model_dump(mode="json", by_alias=True)
    said["evidence"]["quality"] = {"file": "sets/q.jsonl", "max_tokens": 32, "prompts": rows}
    return Plan.model_validate(said)


def test_a_prompt_set_says_what_its_replay_costs_each_side() -> None:
    found = run(with_set(101)).evidence
    assert found is not None
    assert found.replay is not None
    assert (found.replay.requests, found.replay.batches, found.replay.max_tokens, found.replay.targets) == (101, 11, 32, 2)
    told = " ".join(shown(run(with_set(101))).split())
    assert "quality: 101 prompts of sets/q.jsonl in 11 batches: 101 requests to stable and 101 to the canary" in told
    assert "each of at most 32 tokens, for each target" in told
    assert "quality: -5 points of 100 are too much; a promotion needs at least 126 prompts, when no answer differs" in told
    assert "quality:" not in shown(run())


def test_a_set_that_is_too_small_for_a_promotion_is_told() -> None:
    there = dataclasses.replace(declared(receipts()), mode="sparse")
    notes = {}
    for count in (49, 50):
        found = dry_run(with_set(count), world(), (), there, config_for("sparse", rungs=2)).evidence
        notes[count] = found.replay.note if found and found.replay else None
    assert notes == {49: "a promotion needs at least 50 prompts, when no answer differs: it would hold", 50: ""}
