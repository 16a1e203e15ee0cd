"""Verdicts and their sentences: evidence named, ignorance named, and four ways of having no numbers told apart."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from rollout.analysis import ArmWindow, Histogram, JudgeConfig, Window, absorb, config_for, new_state, share_alarm, verdict
from tests.unit.analysis.cases import QUIET, REFERENCE, after, config, probes, windows


def test_a_slow_canary_fails_with_odds_culprit_and_effect() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(12, slow=1.4)))
    assert found.kind == "fail"
    assert re.match(r"FAIL: \S+.* to 1 against 'TTFT no slower than \+5 %' \(roll back at 100 to 1\)", found.sentence)
    assert re.search(r"100 to 1\): TTFT \+\d+ % to \+\d+ %, \S+ to \S+ times as many requests over 0\.", found.sentence)
    assert found.details["evidence_against"]["culprits"] == ["ttft"]


def test_a_failing_canary_names_errors_and_their_counts() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(20, errors=0.05)))
    assert found.kind == "fail"
    assert found.details["evidence_against"]["culprits"] == ["errors"]
    assert re.search(r"\d+ of \d+ canary and 0 of \d+ stable failed", found.sentence)


def test_the_breaker_names_itself() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(1, errors=0.9)))
    assert found.sentence.startswith("FAIL: circuit breaker: ")
    assert found.details["breaker"]["alpha"] < 1e-3


def test_a_bucket_that_both_sides_left_empty_beside_a_full_one_is_no_error() -> None:
    """One row of a batch has nothing in it while another has thousands: 0/0 is 0 here."""
    edges = (0.1, 0.2, 0.3, 0.5, 1.0)
    asked = config_for("rich", rungs=1, reference_ttft=Histogram(edges, (300, 300, 200, 150, 40, 10)), noise=(0.0, 0.0))
    side = ArmWindow(1000, 0, Histogram(edges, (0, 0, 0, 700, 250, 50)))
    assert verdict(asked, absorb(asked, new_state(asked), Window(0, 0, 30.0, side, side, load_ratio=1.0))).kind == "continue"


def test_no_bound_is_claimed_where_moods_of_a_replica_meet_paired_probes() -> None:
    fitted = config("thin", noise=(0.2, 0.8))
    assert fitted.claimed(probed=False)
    assert not fitted.claimed(probed=True)
    assert "not guaranteed" in verdict(fitted, after(fitted, probes(20, slow=3.0))).sentence
    assert fitted.tolerated("probes") == 0.10
    quiet = config("thin", noise=(0.0, 0.0))
    assert "not guaranteed" not in verdict(quiet, after(quiet, probes(60, slow=3.0))).sentence


def test_restarts_of_both_sides_have_a_common_cause() -> None:
    asked = config()
    both = [replace(w, canary=replace(w.canary, restarts=1), stable=replace(w.stable, restarts=1)) for w in windows(4)]
    assert verdict(asked, after(asked, iter(both))).kind == "continue"
    alone = [replace(w, canary=replace(w.canary, restarts=1)) for w in windows(4)]
    assert "circuit breaker" in verdict(asked, after(asked, iter(alone))).sentence


def test_a_slow_tail_is_named_as_one_and_not_as_a_slow_down_of_all() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(60, tail=0.1)))
    assert found.kind == "fail"
    assert "TTFT in the tail: " in found.sentence
    assert not re.search(r"TTFT [+-]", found.sentence)


def test_an_equal_canary_passes_and_says_what_is_not_known() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(60)))
    assert found.kind == "pass"
    told = r"PASS: 6000 live requests: TTFT -\d % to \+\d %; nothing is known about errors rarer than 1 % or tails rarer than 2 %"
    assert re.fullmatch(told, found.sentence)


def test_thin_traffic_passes_on_live_or_probes_without_a_claim_on_tails() -> None:
    asked = config("thin")
    mixed = verdict(asked, after(asked, windows(30, ratio=0.1), probes(120, first=30)))
    assert mixed.kind == "pass"
    assert mixed.sentence == "PASS: 120 probes, 3000 live requests; nothing is known about errors rarer than 2 % or about tails"
    assert verdict(asked, after(asked, windows(60))).kind == "pass"
    assert verdict(asked, after(asked, windows(60, ratio=0.1))).kind == "continue"


def test_sparse_traffic_passes_on_probes_and_says_the_bound_is_not_guaranteed() -> None:
    asked = config("sparse", noise=None)
    found = verdict(asked, after(asked, probes(120)))
    assert found.kind == "pass"
    assert found.sentence == "PASS: 120 probes; nothing is known about errors rarer than 5 % or about tails (not guaranteed: one replica)"


def test_slow_probes_fail() -> None:
    asked = config("sparse", noise=None)
    found = verdict(asked, after(asked, probes(120, slow=1.8)))
    assert found.kind == "fail"
    assert "'probe TTFT no slower than +10 %'" in found.sentence


@pytest.mark.parametrize("weak", [{"errors": 0.03, "each": 20}, {"slow": 1.15}])
def test_every_claim_must_be_proved(weak: dict[str, Any]) -> None:
    asked = replace(config(), alpha=1e-12)
    assert verdict(asked, after(asked, windows(15, **weak))).kind == "continue"


def test_no_promotion_before_the_longest_request_could_end() -> None:
    asked = config(max_request_seconds=7200.0)
    found = verdict(asked, after(asked, windows(60)))
    assert found.kind == "continue"
    assert "longest request" in found.sentence


def test_continuing_says_how_far_and_how_much_more() -> None:
    asked = config()
    found = verdict(asked, after(asked, windows(2)))
    assert found.kind == "continue"
    assert re.search(r"promotion \(at 20 to 1; weakest: .*\), .* against \(roll back at 100 to 1\)", found.sentence)
    assert re.search(r"needs about \d+ more canary requests$", found.sentence)
    idle = verdict(asked, after(asked, windows(2, ratio=0.1)))
    assert "latency cannot pass at load ratio 0.1" in idle.sentence
    assert verdict(asked, new_state(asked)).sentence.endswith("0 live requests; no live comparison yet")


def forecast_of_equal(asked: JudgeConfig, count: int) -> float:
    more: dict[str, float] = verdict(asked, after(asked, windows(count, each=30))).details["forecast"]
    return max(more.values())


def test_the_forecast_is_of_the_right_size() -> None:
    """An equal canary at 30 + 30 requests a window passes after some windows; the forecast at the start is within a factor of three."""
    asked = config()
    taken = next(count for count in range(1, 200) if verdict(asked, after(asked, windows(count, each=30))).kind == "pass")
    assert taken * 30 / 3 <= forecast_of_equal(asked, 1) + 30 <= taken * 30 * 3


def no_numbers(status: str, arm: str, windows_seen: int) -> tuple[str, str]:
    asked = config()
    broken: dict[str, Any] = {arm: ArmWindow(0, 0, status=status)}  # type: ignore[arg-type]
    state = after(asked, windows(60), (replace(w, **broken) for w in windows(windows_seen, first=60)))
    found = verdict(asked, state)
    return found.kind, found.sentence


@pytest.mark.parametrize("arm", ["stable", "canary"])
def test_metrics_that_cannot_be_read_are_an_error_even_over_a_finished_proof(arm: str) -> None:
    kind, sentence = no_numbers("METRIC_ERROR", arm, 3)
    assert kind == "error"
    assert sentence.startswith(f"ERROR: METRIC_ERROR on {arm}: its metrics could not be read for 3 windows")


@pytest.mark.parametrize("arm", ["stable", "canary"])
def test_metrics_that_are_not_exposed_are_inconclusive(arm: str) -> None:
    kind, sentence = no_numbers("NO_METRIC", arm, 3)
    assert (kind, sentence.split(":")[1].strip()) == ("inconclusive", f"NO_METRIC on {arm}")


def test_a_single_bad_scrape_changes_nothing() -> None:
    assert no_numbers("METRIC_ERROR", "stable", 1)[0] == "pass"


def test_no_traffic_is_inconclusive_after_a_while_and_neither_good_nor_bad() -> None:
    asked = config()
    for count, kind in ((9, "continue"), (10, "inconclusive")):
        found = verdict(asked, after(asked, (replace(w, stable=QUIET, canary=QUIET) for w in windows(count))))
        assert found.kind == kind
    assert found.sentence.startswith("INCONCLUSIVE: NO_TRAFFIC on canary and stable: it had no request and no probe for 10 windows")


def test_a_latency_that_is_judged_but_not_exposed_is_no_metric() -> None:
    asked = config()
    state = after(asked, (replace(w, canary=ArmWindow(100, 0)) for w in windows(3)))
    assert verdict(asked, state).details["status"] == {"canary": "NO_METRIC", "stable": "OK"}
    assert verdict(asked, state).kind == "inconclusive"


def test_without_engine_metrics_by_design_probes_decide_alone() -> None:
    asked = config_for("sparse", rungs=1, noise=(0.0, 0.0), live=False)
    unread = (replace(w, stable=ArmWindow(0, 0, status="NO_METRIC"), canary=ArmWindow(0, 0, status="NO_METRIC")) for w in windows(5))
    assert verdict(asked, after(asked, unread, probes(120, first=5))).kind == "pass"


def test_a_served_share_in_doubt_stops_every_verdict_but_the_breaker() -> None:
    asked = config()
    wrong = [replace(w, share_counts=(0, 200)) for w in windows(20, slow=3.0)]
    state = after(asked, iter(wrong))
    found, share = verdict(asked, state), share_alarm(asked, state)
    assert (found.kind, share.alarm) == ("inconclusive", True)
    assert (share.canary, share.total, share.expected) == (0, 4000, 0.5)
    assert "look at: a stale proxy" in found.sentence
    assert state.crossing is None


def test_the_share_is_tested_afresh_on_each_rung() -> None:
    asked = config(rungs=2)
    wrong = (replace(w, share_counts=(0, 200)) for w in windows(20))
    state = after(asked, wrong, windows(20, rung=1, first=20))
    assert not share_alarm(asked, state).alarm


def test_a_true_share_does_not_alarm() -> None:
    asked = config()
    assert share_alarm(asked, after(asked, windows(30))).log10_odds < 0


def test_the_bound_is_claimed_only_where_it_holds() -> None:
    assert config_for("rich", rungs=1, noise=(0.02, 0.8)).bound(False) == "wrong rollback <= 0.01, wrong promotion <= 0.05"
    alone = config_for("rich", rungs=1, reference_ttft=REFERENCE)
    assert (alone.bound(False), alone.v, alone.phi, alone.tolerated_latency) == ("not guaranteed: one replica", 0.2, 0.8, 0.1)


@pytest.mark.parametrize("noise", [(0.0, 0.0), (0.2, 0.8)])
def test_details_are_plain_json_at_any_time(noise: tuple[float, float]) -> None:
    asked = config(noise=noise, rungs=3)
    for state in (new_state(asked), after(asked, windows(3)), after(asked, windows(20, slow=2.0)), after(asked, probes(20))):
        assert json.loads(json.dumps(verdict(asked, state).details, allow_nan=False))
