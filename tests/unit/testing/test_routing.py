"""The proxy's cache of targets: stale on purpose, and never staler than the real one."""

import random
from collections import Counter

from rollout.testing.gpustack.routing import RouteCache
from rollout.testing.gpustack.timing import Timing
from rollout.testing.gpustack.world import World


def cache(ttl: float = 600.0, **weights: int) -> RouteCache:
    """A route `r` with one active target per named weight; model ids count from 1."""
    world = World()
    for number, weight in enumerate(weights.values(), start=1):
        world.add("model-route-targets", {"route_name": "r", "state": "active", "model_id": number, "weight": weight})
    return RouteCache(world, Timing(scale=1.0, cache_ttl=ttl), random.Random(1))


def drawn(seen: RouteCache, count: int) -> Counter[int]:
    choices = [seen.draw("r") for _ in range(count)]
    return Counter(choice.model_id for choice in choices if choice is not None)


def test_weights_decide() -> None:
    counts = drawn(cache(a=90, b=10), 4000)
    assert 300 < counts[2] < 500


def test_all_zero_is_uniform() -> None:
    counts = drawn(cache(a=0, b=0), 1000)
    assert 400 < counts[1] < 600


def test_a_change_is_not_seen_until_the_cache_is_dropped() -> None:
    seen = cache(a=1, b=0)
    assert drawn(seen, 20) == {1: 20}
    seen.world.change("model-route-targets", 1, weight=0)
    seen.world.change("model-route-targets", 2, weight=1)
    assert drawn(seen, 20) == {1: 20}
    seen.drop("r")
    assert drawn(seen, 20) == {2: 20}


def test_the_cache_ends_by_itself() -> None:
    seen = cache(ttl=0.0, a=1, b=0)
    seen.draw("r")
    seen.world.change("model-route-targets", 1, state="unavailable")
    assert drawn(seen, 5) == {2: 5}


def test_nothing_active_is_none_and_is_cached_too() -> None:
    seen = cache()
    assert seen.draw("r") is None
    seen.world.add("model-route-targets", {"route_name": "r", "state": "active", "model_id": 1, "weight": 1})
    assert seen.draw("r") is None
    seen.drop("r")
    assert seen.draw("r") is not None


def test_running_instances_take_turns() -> None:
    seen = cache()
    for state in ("running", "running", "error"):
        seen.world.add("model-instances", {"model_id": 1, "state": state})
    picked = Counter(row["id"] for _ in range(10) if (row := seen.instance(1)) is not None)
    assert picked == {1: 5, 2: 5}
    assert seen.instance(2) is None
