"""Own requests against simulated engines: who answered, what counts as success, and whether a share has moved."""

import asyncio

import pytest
from wire_server import Front

from rollout.clients.secret import Secret
from rollout.clock import SystemClock
from rollout.errors import UsageError
from rollout.sources.registry import Sources
from rollout.testing.engine import SimEngine
from rollout.testing.knobs import Knobs

KEY = "gpustack_1234567890abcdef_secret"


async def no_memory(_worker):
    return None


def engine(model, **knobs):
    return SimEngine(f"{model}-1", model, Knobs(**{"ttft_base": 0.0, "tpot": 0.0, "slots": 64, **knobs}))


def measure(front, *calls):
    """The results of (verb, args) calls through one set of sources; a callable between them is called."""

    async def go():
        results = []
        async with front, Sources(front.url, Secret(KEY), SystemClock(), no_memory) as sources:
            for call in calls:
                if callable(call):
                    call()
                else:
                    results.append(await sources.perform(*call))
        return results

    return asyncio.run(go())


def one_route(name, *targets):
    front = Front()
    front.route(name, *targets)
    return front


def test_a_probe_says_who_answered_and_each_request_has_an_id_of_its_own():
    front = one_route("chat", (engine("m-a"), 3), (engine("m-b"), 1))
    (result,) = measure(front, ("probe", {"model": "chat", "n": 40}))
    assert (result["n"], result["ok"], result["errors"]) == (40, 40, [])
    assert result["models"] == dict(front.seen)
    assert set(result["models"]) == {"m-a", "m-b"}
    assert len(set(front.request_ids)) == 40
    assert front.keys == {f"Bearer {KEY}"}
    assert {(b["max_tokens"], b["stream"]) for b in front.bodies} == {(1, True)}


@pytest.mark.parametrize(
    ("knobs", "word"),
    [({"fail_rate": 1.0}, "http_error: 500"), ({"truncate_rate": 1.0}, "truncated"), ({"abort_rate": 1.0}, "aborted")],
    ids=["errors", "truncated", "aborts"],
)
def test_a_sick_engine_answers_no_probe(knobs, word):
    (result,) = measure(one_route("chat", (engine("m-a", **knobs), 1)), ("probe", {"model": "chat", "n": 8}))
    assert (result["ok"], len(result["errors"])) == (0, 5)
    assert all(word in text for text in result["errors"])
    assert KEY not in str(result)


def test_a_dead_side_and_an_unknown_route_are_facts_and_not_exceptions():
    dead = engine("m-a")
    dead.stop()
    front = one_route("chat", (dead, 1))
    gone, unknown = measure(front, ("probe", {"model": "chat", "n": 2}), ("probe", {"model": "nope", "n": 2}))
    assert (gone["ok"], "503" in gone["errors"][0]) == (0, True)
    assert (unknown["models"], "404 Model not found" in unknown["errors"][0]) == ({}, True)


def test_at_most_four_own_requests_are_in_flight():
    slow = engine("m-a", ttft_base=0.02)
    peak = []
    enter = slow.serve

    async def watched(path, body):
        peak.append(slow.inflight)
        return await enter(path, body)

    slow.serve = watched
    measure(one_route("chat", (slow, 1)), ("probe", {"model": "chat", "n": 24}))
    assert max(peak) == 3  # others inside when one arrives


def test_warm_up_sends_the_prompts_in_turn_one_at_a_time():
    front = one_route("chat", (engine("m-a"), 1))
    (result,) = measure(front, ("warm_up", {"model": "chat", "prompts": ["x", "y", "z"], "n": 5, "max_tokens": 3}))
    assert (result["n"], result["ok"]) == (5, 5)
    assert [b["messages"][0]["content"] for b in front.bodies] == ["x", "y", "z", "x", "y"]


LADDER = [(0.0, 0.05, 5), (0.05, 0.25, 25), (0.10, 0.50, 50), (0.25, 0.50, 50), (0.0, 0.10, 10)]


def share(old, new, deployment="m-b"):
    return ("verify_share", {"model": "chat", "deployment": deployment, "old": old, "new": new, "limit": 200})


@pytest.mark.parametrize(("old", "new", "percent"), LADDER)
def test_a_share_that_moved_is_seen_to_have_moved(old, new, percent):
    front = one_route("chat", (engine("m-a"), 100 - percent), (engine("m-b"), percent))
    (result,) = measure(front, share(old, new))
    assert result["moved"] is True
    assert (result["n"], result["hits"], result["failed"]) == (sum(front.seen.values()), front.seen["m-b"], 0)


@pytest.mark.parametrize(("old", "new"), [(0.0, 0.05), (0.0, 0.10), (0.05, 0.25), (0.25, 0.50)])
def test_a_stale_route_is_seen_to_be_stale(old, new):
    targets = [(engine("m-a"), round(100 * (1 - old)))] + ([(engine("m-b"), round(100 * old))] if old else [])
    (result,) = measure(one_route("chat", *targets), share(old, new))
    assert result["moved"] is False
    assert result["llr"] < -6.9


def test_a_removed_target_is_proved_gone_and_one_that_stays_is_caught_by_a_single_answer():
    gone = one_route("chat", (engine("m-a"), 1))
    (result,) = measure(gone, share(0.25, 0.0))
    assert (result["moved"], result["hits"], result["n"] >= 25) == (True, 0, True)
    stays = one_route("chat", (engine("m-a"), 1), (engine("m-b"), 1))
    (result,) = measure(stays, share(0.5, 0.0))
    assert (result["moved"], result["hits"] >= 1) == (False, True)


def test_answers_that_break_off_still_tell_who_served():
    front = one_route("chat", (engine("m-a"), 1), (engine("m-b", truncate_rate=1.0), 1))
    (result,) = measure(front, share(0.0, 0.5))
    assert (result["moved"], result["failed"]) == (True, 0)


def test_a_route_that_only_fails_decides_nothing_and_is_not_hammered():
    front = one_route("chat", (engine("m-a", fail_rate=1.0), 1))
    (result,) = measure(front, share(0.0, 0.5))
    assert (result["moved"], result["n"], result["hits"], result["llr"]) == (None, 0, 0, 0.0)
    assert 20 <= result["failed"] <= 24


def test_shares_too_close_for_the_limit_stay_undecided():
    front = one_route("chat", (engine("m-a"), 94), (engine("m-b"), 6))
    (result,) = measure(front, share(0.05, 0.06))
    assert (result["moved"], result["n"]) == (None, 200)
    assert abs(result["llr"]) < 6.9


CALLS = [
    ("probe", {"model": "chat", "n": 50}),
    ("warm_up", {"model": "chat", "prompts": ["x"], "n": 5, "max_tokens": 4}),
    share(0.25, 0.5),
    ("probe_pairs", {"stable": "chat", "canary": "chat", "n": 9, "prompts": ["x"], "max_tokens": 4, "seq": 0}),
    ("stage_cell", {"model": "chat", "worker": "w", "prompt_tokens": 9, "concurrency": 3, "requests": 9, "output_tokens": 4}),
]


@pytest.mark.parametrize("call", CALLS, ids=[name for name, _ in CALLS])
def test_a_cancelled_measurement_leaves_no_request_and_no_task_behind(call):
    slow = engine("m-a", ttft_base=30.0)

    async def go():
        front = one_route("chat", (slow, 1))
        async with front, Sources(front.url, None, SystemClock(), no_memory) as sources:
            before = len(asyncio.all_tasks())
            task = asyncio.create_task(sources.perform(*call))
            await asyncio.sleep(0.15)
            inside = slow.inflight
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(0.1)  # the server notices that its clients have left
            return task.cancelled(), inside, slow.inflight, len(asyncio.all_tasks()) - before

    cancelled, inside, left, tasks = asyncio.run(go())
    assert cancelled
    assert inside >= 1
    assert (left, tasks) == (0, 0)


def test_an_unknown_measurement_is_refused():
    with pytest.raises(UsageError):
        measure(Front(), ("measure_everything", {}))


def test_the_key_is_taken_out_of_what_a_server_says():
    class Echo(Front):
        async def _chat(self, request):
            from aiohttp import web

            return web.json_response({"error": {"message": f"bad key {request.headers['Authorization']}"}}, status=401)

    (result,) = measure(Echo(), ("probe", {"model": "chat", "n": 1}))
    assert "bad key Bearer" in result["errors"][0]
    assert KEY not in str(result)
