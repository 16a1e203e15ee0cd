"""The clock that tests move."""

import asyncio
from datetime import timedelta

from rollout.testing.clock import START, FakeClock


def test_sleep_moves_both_clocks_and_takes_no_time() -> None:
    clock = FakeClock()
    asyncio.run(clock.sleep(3600))
    assert clock.now() == START + timedelta(hours=1)
    assert clock.monotonic() == 3600
    assert clock.slept == [3600]


def test_a_jump_moves_the_wall_alone() -> None:
    clock = FakeClock()
    clock.jump(-7200)
    assert clock.now() == START - timedelta(hours=2)
    assert clock.monotonic() == 0


def test_a_reboot_starts_the_monotonic_clock_again() -> None:
    clock = FakeClock()
    clock.advance(50)
    clock.reboot()
    assert clock.monotonic() == 0
    assert clock.now() == START + timedelta(seconds=50)


def test_now_is_aware() -> None:
    assert FakeClock().now().tzinfo is not None
