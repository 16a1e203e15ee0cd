"""A simulated node: one memory for everything, knobs in order, instances that come, go and die."""

import asyncio

import pytest

from rollout.testing.knobs import GIB
from rollout.testing.node import SimNode
from rollout.testing.node_http import apply_control, node_state

MODEL = {"id": 1, "name": "m-a", "backend": "vLLM"}


def node(**fields: object) -> SimNode:
    return SimNode("spark-01", listen=False, **fields)  # type: ignore[arg-type]


def test_memory_is_the_os_and_every_engine() -> None:
    async def main() -> None:
        spark = node(mem_gib=128, os_bytes=10 * GIB)
        assert spark.mem_available == 118 * GIB
        await spark.start_instance({"id": 1, "name": "m-a-x"}, {**MODEL, "env": {"SIM_WEIGHTS_BYTES": str(30 * GIB)}})
        await spark.start_instance({"id": 2, "name": "m-a-y"}, MODEL)
        assert spark.mem_used == 45 * GIB
        memory = spark.status()["status"]["memory"]
        assert (memory["total"], memory["used"], memory["is_unified_memory"]) == (128 * GIB, 45 * GIB, True)
        assert spark.status()["status"]["gpu_devices"][0]["memory"] == memory
        await spark.stop_instance(1)
        assert spark.mem_used == 15 * GIB
        spark.knobs.mem_used = 127 * GIB
        assert spark.mem_available == GIB

    asyncio.run(main())


def test_knobs_come_from_node_parameters_image_environment_and_name_in_this_order() -> None:
    spark = node(base_knobs={"slots": 2, "tokens": 2, "tpot": 2.0, "fail_rate": 0.2, "jitter": 0.2})
    spark.image_knobs["img:2"] = {"tpot": 4.0, "fail_rate": 0.4, "jitter": 0.4}
    spark.model_knobs["m-a"] = {"jitter": 0.6}
    model = {
        **MODEL,
        "backend_parameters": ["--max-num-seqs=3"],
        "image_name": "img:2",
        "env": {"SIM_FAIL_RATE": "0.5", "SIM_JITTER": "0.5"},
    }
    knobs = spark.knobs_for(model)
    assert (knobs.slots, knobs.tokens, knobs.tpot, knobs.fail_rate, knobs.jitter) == (3, 2, 4.0, 0.5, 0.6)


def test_knobs_reach_running_engines_and_later_ones() -> None:
    async def main() -> None:
        spark = node()
        first = await spark.start_instance({"id": 1, "name": "m-a-x"}, MODEL)
        other = await spark.start_instance({"id": 2, "name": "m-b-x"}, {**MODEL, "name": "m-b", "image_name": "img:2"})
        await apply_control(spark, {"knobs": {"tokens": 3}, "model": "m-a"})
        await apply_control(spark, {"knobs": {"tokens": 5}, "image": "img:2"})
        assert (first.knobs.tokens, other.knobs.tokens) == (3, 5)
        later = await spark.start_instance({"id": 3, "name": "m-c-x"}, {**MODEL, "name": "m-c", "image_name": "img:2"})
        assert later.knobs.tokens == 5

    asyncio.run(main())


def test_control_refuses_what_it_does_not_know() -> None:
    async def main() -> None:
        spark = node()
        with pytest.raises(ValueError, match="unknown control keys: helthy"):
            await apply_control(spark, {"helthy": False})
        with pytest.raises(ValueError, match="unknown knobs"):
            await apply_control(spark, {"knobs": {"speed": 1}})
        with pytest.raises(ValueError, match="unknown fact"):
            await apply_control(spark, {"facts": {"colour": "red"}})
        await apply_control(spark, {"healthy": False, "facts": {"driver_version": "590.1"}})
        assert spark.knobs.healthy is False
        assert spark.status()["status"]["gpu_devices"][0]["driver_version"] == "590.1"

    asyncio.run(main())


def test_a_crash_is_reported_and_the_counters_are_kept() -> None:
    async def main() -> None:
        told: list[tuple[int, str]] = []

        async def tell(instance_id: int, message: str) -> None:
            told.append((instance_id, message))

        spark = node(on_exit=tell)
        engine = await spark.start_instance({"id": 9, "name": "m-a-x"}, MODEL)
        stream = asyncio.ensure_future(engine.serve("/v1/completions", {"prompt": "x", "sim": {"ttft": 60}}))
        await asyncio.sleep(0)
        await spark.crash_instance(9)
        for _ in range(5):
            await asyncio.sleep(0)
        assert told == [(9, "engine m-a-x exited with code 137")]
        assert node_state(spark)["instances"] == []
        assert node_state(spark)["finished"]["m-a-x"]["cut"] == 1
        assert stream.exception() is not None

    asyncio.run(main())


def test_a_second_start_of_the_same_instance_is_the_first_one() -> None:
    async def main() -> None:
        spark = node()
        first = await spark.start_instance({"id": 1, "name": "m-a-x"}, MODEL)
        assert await spark.start_instance({"id": 1, "name": "m-a-x"}, MODEL) is first

    asyncio.run(main())


@pytest.mark.parametrize(("header", "found"), [("model-1-9.static", True), ("model-1-8.static", False), ("nonsense", False), (None, False)])
def test_the_proxy_header_names_an_instance(header: str | None, found: bool) -> None:
    async def main() -> bool:
        spark = node()
        await spark.start_instance({"id": 9, "name": "m-a-x"}, MODEL)
        return spark.find(header) is not None

    assert asyncio.run(main()) is found
