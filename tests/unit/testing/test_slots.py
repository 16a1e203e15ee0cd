"""Slots, queue and sleeps of a simulated engine."""

import asyncio

import pytest

from rollout.testing.slots import EngineStopped, Slots


def test_the_rest_waits_in_order_and_a_leaver_hands_its_slot_over() -> None:
    async def main() -> list[int]:
        slots, order = Slots(lambda: 1), []

        async def one(number: int) -> None:
            await slots.enter()
            order.append(number)
            await asyncio.sleep(0)
            slots.leave()

        await asyncio.gather(*(one(number) for number in range(4)))
        assert (slots.running, slots.waiting) == (0, 0)
        assert slots.peak == (1, 3)
        return order

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_who_gives_up_waiting_is_forgotten() -> None:
    async def main() -> None:
        slots = Slots(lambda: 1)
        await slots.enter()
        waiting = asyncio.ensure_future(slots.enter())
        await asyncio.sleep(0)
        assert slots.waiting == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert slots.waiting == 0
        slots.leave()
        await asyncio.wait_for(slots.enter(), 1)

    asyncio.run(main())


def test_a_slot_handed_to_one_who_gave_up_goes_on_to_the_next() -> None:
    async def main() -> None:
        slots = Slots(lambda: 1)
        await slots.enter()
        first, second = asyncio.ensure_future(slots.enter()), asyncio.ensure_future(slots.enter())
        await asyncio.sleep(0)
        slots.leave()
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert slots.running == 1

    asyncio.run(main())


def test_a_kill_ends_sleepers_waiters_and_later_sleeps() -> None:
    async def main() -> None:
        slots = Slots(lambda: 1)
        await slots.enter()
        held = [asyncio.ensure_future(slots.pause(60)), asyncio.ensure_future(slots.enter())]
        await asyncio.sleep(0)
        slots.kill()
        results = await asyncio.gather(*held, return_exceptions=True)
        assert [type(result) for result in results] == [EngineStopped, EngineStopped]
        with pytest.raises(EngineStopped):
            await slots.pause(0)

    asyncio.run(main())


def test_drained_returns_when_nothing_runs() -> None:
    async def main() -> None:
        slots = Slots(lambda: 2)
        await asyncio.wait_for(slots.drained(), 1)
        await slots.enter()
        waiting = asyncio.ensure_future(slots.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.leave()
        await asyncio.wait_for(waiting, 1)

    asyncio.run(main())
