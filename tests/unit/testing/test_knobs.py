"""Knobs of a simulated engine: where they come from, and what is refused."""

import pytest

from rollout.testing.knobs import Knobs


def test_the_environment_names_fields_and_gives_them_their_type() -> None:
    knobs = Knobs.from_env(
        {"SIM_TTFT_FACTOR": "2", "SIM_SLOTS": "64", "SIM_WRONG_ANSWERS": "true", "SIM_CRASH_AFTER_REQUESTS": "3", "PATH": "x"}
    )
    assert (knobs.ttft_factor, knobs.slots, knobs.wrong_answers, knobs.crash_after_requests) == (2.0, 64, True, 3)


def test_no_environment_is_the_default() -> None:
    assert Knobs.from_env(None) == Knobs()


@pytest.mark.parametrize("text", ["0", "false", "no", ""])
def test_flags_can_be_switched_off_by_text(text: str) -> None:
    assert Knobs().updated({"fail_start": text}).fail_start is False


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown knobs: ttft"):
        Knobs.from_env({"SIM_TTFT": "2"})


def test_updating_leaves_the_original_alone() -> None:
    knobs = Knobs()
    assert knobs.updated({"tokens": 3}).tokens == 3
    assert knobs.tokens == 8
