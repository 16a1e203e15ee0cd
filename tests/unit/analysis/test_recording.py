"""Recordings: windows to lines and back, judged again to the letter; and what is said of a file that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rollout.analysis import JudgeConfig, verdict
from rollout.analysis.changing import changed, settable
from rollout.analysis.recording import Attempt, Look, Unreadable, read, written
from rollout.analysis.replay import judged
from tests.unit.analysis.cases import after, config, probes, windows


def attempt(asked: JudgeConfig, count: int = 12, **more: Any) -> Attempt:
    """A recorded attempt with the verdicts that were said, some probes in it."""
    seen = [*windows(count, each=30, **more), *probes(20, first=count)]
    looks = []
    for n, window in enumerate(seen):
        found = verdict(asked, after(asked, iter(seen[: n + 1])))
        looks.append(Look(window, f"2026-11-01T00:{n:02}:00+00:00", (found.kind, found.sentence)))
    return Attempt(asked, tuple(looks), {"rollout": "3f2a", "target": 1, "attempt": 1})


@pytest.mark.parametrize("noise", [(0.0, 0.0), None])
def test_what_was_written_is_read_and_judged_again_to_the_letter(noise: tuple[float, float] | None) -> None:
    asked = config("thin", noise=noise, rungs=2)
    made = attempt(asked, slow=2.0)
    back = read(written([made]))
    assert back == (made,)
    again = judged(back[0])
    assert [one.worded_as_said for one in again] == [True] * len(made.looks)
    assert again[-1].verdict.kind == "fail"


def test_files_joined_end_to_end_keep_their_attempts_apart() -> None:
    one, other = attempt(config(), 3), attempt(config("thin"), 2)
    assert read([*written([one]), "", *written([other])]) == (one, other)


def test_a_window_without_the_verdict_of_then_is_judged_too() -> None:
    lines = [
        json.dumps({k: v for k, v in json.loads(line).items() if k not in ("verdict", "at")}) for line in written([attempt(config(), 3)])
    ]
    assert [one.as_said for one in judged(read(lines)[0])] == [None] * 5


def test_a_verdict_is_its_kind_and_another_releases_words_for_it_are_told_apart() -> None:
    made = attempt(config("thin", rungs=2), 3)
    looks = [Look(look.window, look.at, (look.said[0], "as another release says it") if look.said else None) for look in made.looks]
    again = judged(Attempt(made.config, tuple(looks), made.about))
    assert {(one.as_said, one.worded_as_said) for one in again} == {(True, False)}
    other = judged(Attempt(made.config, (Look(looks[0].window, None, ("fail", looks[0].said[1] if looks[0].said else "")),)))
    assert other[0].as_said is False


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: row.pop(key)


def with_(**more: Any) -> Callable[[dict[str, Any]], object]:
    return lambda row: row.update(more)


@pytest.mark.parametrize(
    ("line", "change", "key", "said"),
    [
        (1, without("rollout_windows"), "rollout_windows", "no header"),
        (1, with_(rollout_windows=2), "rollout_windows", "format 2"),
        (1, without("config"), "config", "nothing where the judge's config belongs"),
        (1, with_(config={"mode": "thin"}), "config.rungs", "lacks it"),
        (1, lambda row: row["config"].update(alpha=2), "config", "alpha and beta must lie between 0 and 1"),
        (1, lambda row: row["config"].update(alpha="much"), "config", "cannot be used"),
        (3, without("canary"), "canary", "missing"),
        (3, with_(stable=7), "stable", ""),
        (3, lambda row: row["stable"].update(errors=-1), "stable", "errors are a whole number"),
        (3, lambda row: row["stable"].update(requests="30"), "stable", ""),
        (3, lambda row: row["canary"]["ttft"].update(counts=[1]), "canary", "counts"),
        (3, with_(load_ratio="one"), "load_ratio", "a text, not a number"),
        (3, with_(share_counts=5), "share_counts", "not two counts"),
        (3, with_(pairs=[{"stable_ttft": "x"}]), "pairs[0].stable_ttft", "not a number"),
        (3, with_(pairs=[{"stable_ttft": 0.1}]), "pairs", ""),
        (3, with_(id=0), "id", "window 0 comes after window 0"),
        (3, with_(rung=-1), "", "rung is a whole number"),
        (3, with_(id=float("inf")), "", "no number of JSON"),
        (3, with_(id=2.5), "", "id is a whole number"),
        (3, with_(seconds=-30), "", "seconds is a number, at least 0"),
        (3, with_(load_ratio=-1), "", "load_ratio is a number, at least 0"),
        (3, with_(expected_share=1e29), "", "expected_share lies between 0 and 1"),
        (3, with_(share_counts=[50, 3]), "", "share_counts are the canary's and all requests"),
        (3, with_(share_counts="39"), "share_counts", "not two counts"),
        (3, with_(weight_changed="x"), "", "weight_changed is true or false"),
        (3, with_(pairs=5), "pairs", "not a list"),
        (3, with_(pairs=[{"stable_ttft": -1, "canary_ttft": 1, "stable_ok": True, "canary_ok": True}]), "pairs", "at least 0"),
        (3, with_(pairs=[{"stable_ttft": 1, "canary_ttft": 1, "stable_ok": True, "canary_ok": "no"}]), "pairs", "true or false"),
        (3, lambda row: row["stable"].update(requests=10**8), "stable", "requests in one window"),
        (3, lambda row: row["stable"].update(requests=1 << 60), "stable", "whole number"),
        (3, lambda row: row["canary"].update(restarts=3.7), "canary", "restarts are a whole number"),
        (3, lambda row: row["canary"].update(restarts="x"), "canary", "restarts are a whole number"),
        (3, lambda row: row["canary"]["ttft"].update(counts=[1.5] * len(row["canary"]["ttft"]["counts"])), "canary", "whole numbers"),
        (1, lambda row: row["config"].update(memory_noise=[1]), "config", "cannot be used"),
        (1, lambda row: row["config"].update(planned_requests=None), "config", "planned_requests is a number"),
        (1, lambda row: row["config"].update(live=[]), "config", "live is true or false"),
        (1, lambda row: row["config"].update(quality=0), "config", "are not both known"),
        (1, lambda row: row["config"].update(v=50.0), "config", "noise needs 0 <= v <= 5"),
        (3, with_(verdict=["kind", "sentence"]), "verdict", "not an object"),
        (3, with_(verdict="PASS"), "verdict", "not an object"),
    ],
)
def test_a_bad_line_is_named_with_its_key(line: int, change: Callable[[dict[str, Any]], object], key: str, said: str) -> None:
    rows = [json.loads(text) for text in written([attempt(config(), 3)])]
    change(rows[line - 1])
    with pytest.raises(Unreadable) as caught:
        read(map(json.dumps, rows))
    assert (caught.value.line, caught.value.key) == (line, key)
    assert said in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "said"), [('{"id": 3, "ru', "cut off"), ("[1]", "a list"), ('{"id": NaN}', "no number"), ("[" * 100_000, "no JSON")]
)
def test_a_line_that_is_no_object_is_named(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said) as caught:
        read([*written([attempt(config(), 3)]), text])
    assert caught.value.line == 7


def test_an_empty_file_is_no_recording() -> None:
    with pytest.raises(Unreadable, match="empty"):
        read([])


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"alpha": "0.05"}, lambda c: c.alpha == 0.05),
        ({"ttft.tolerated": "0.15"}, lambda c: (c.tolerated("ttft"), c.tolerated("e2e")) == (0.15, 0.05)),
        ({"ttft.tolerated": "0.15", "ttft.unacceptable": "0.5"}, lambda c: c.unacceptable("ttft") == 0.5),
        ({"errors.unacceptable": "0.04"}, lambda c: c.unacceptable("errors") == 0.04),
        ({"tolerated_latency": "0.1"}, lambda c: c.tolerated("ttft") == 0.1),
        ({"v": "0.3", "e2e.v": "0.1"}, lambda c: (c.noise("ttft"), c.noise("e2e")) == ((0.3, 0.5), (0.1, 0.5))),
        ({"mode": "sparse"}, lambda c: c.mode == "sparse"),
        ({"memory_floor": "1024"}, lambda c: c.memory_floor == 1024),
        ({"memory.sd": "3e8", "memory.phi": "0.9"}, lambda c: c.memory_noise == (3e8, 0.9)),
        ({"live": "false"}, lambda c: c.live is False),
        ({"quality": "none"}, lambda c: c.quality is None),
    ],
)
def test_single_values_may_be_put_otherwise(values: dict[str, str], found: Callable[[JudgeConfig], bool]) -> None:
    assert found(changed(config(noise=(0.2, 0.5)), values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ttft.tolerate": "1"}, "did you mean `ttft.tolerated`"),
        ({"memory.unacceptable": "1"}, "there is no `memory.unacceptable`"),
        ({"reference_ttft": "1"}, "there is no"),
        ({"alpha": "5 %"}, "a number like 0.1"),
        ({"alpha": "nan"}, "finite"),
        ({"rungs": "1.5"}, "whole number"),
        ({"mode": "rare"}, "one of rich, thin, sparse"),
        ({"live": "maybe"}, "true or false"),
        ({"ttft.tolerated": "0.3"}, "must lie below unacceptable"),
    ],
)
def test_a_value_that_cannot_be_is_named(values: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        changed(config(), values)


def test_every_key_that_is_offered_can_be_set() -> None:
    sample = {"mode": "thin", "quality": "graded", "live": "true", "rungs": "2", "tail_odds": "3"}
    for key in settable():
        number = "2" if key.startswith(("errors.tolerated", "tolerated_error")) else "0.19" if "unacceptable" in key else "0.01"
        value = sample.get(key, "5" if key in ("planned_requests", "memory_floor") else number)
        fixed = {"memory.sd": "1"} if key == "memory.phi" else {}
        assert changed(config(), {**fixed, key: value}) is not None
