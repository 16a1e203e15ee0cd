"""The server hangs, drops, cuts, ignores or reverts: over real sockets, with real time-outs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rollout.clients.http import Limits
from rollout.errors import BadAnswer, Refused, Unreachable
from tests.integration.backends.place import CANARY, ROUTE, STABLE, Place, at

PAIR = {STABLE: 100, CANARY: 5}
FAULTS: list[dict[str, Any]] = [
    {"kind": "hang", "applied": True},
    {"kind": "hang", "applied": False},
    {"kind": "drop", "applied": True},
    {"kind": "drop", "applied": False},
    {"kind": "status", "status": 503, "applied": True},
    {"kind": "html", "status": 502, "applied": False},
    {"kind": "truncate"},
    {"kind": "delay", "seconds": 0.1},
]
IDS = ["-".join(str(v) for v in fault.values()) for fault in FAULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_a_target_is_written_once_whatever_happens_to_the_answer(fault: dict[str, Any]) -> None:
    async def work(here: Place) -> None:
        here.fault(method="PUT", path="/model-routes/", **fault)
        await here.perform("join", route=ROUTE, deployment=CANARY, weight=5)
        here.fault(method="PUT", path="/model-route-targets/", **fault)
        await here.perform("set_weight", route=ROUTE, deployment=CANARY, weight=11)
        here.fault(method="DELETE", path="/model-route-targets/", **fault)
        await here.perform("leave", route=ROUTE, deployment=CANARY)
        assert here.box.weights(ROUTE) == {STABLE: 100}

    at({STABLE: 100}, work)


@pytest.mark.parametrize("fault", FAULTS, ids=IDS)
def test_a_deployment_and_its_private_route_are_made_once(fault: dict[str, Any]) -> None:
    async def work(here: Place) -> None:
        args = await here.recipe("m-new")
        for path in ("/v2/models$", "/v2/model-routes$", "/access$"):
            here.fault(method="POST", path=path, **fault)
        here.fault(method="PUT", path="/v2/model-routes/", **fault)
        await here.perform("create_deployment", **args)
        await here.perform("create_probe_route", name="probe-new", deployment="m-new")
        assert (here.count("models", "m-new"), here.count("model-routes", "probe-new")) == (1, 1)
        assert here.box.weights("probe-new") == {"m-new": 100}

    at({STABLE: 100}, work)


@pytest.mark.parametrize("verb", ["join", "create_deployment"])
def test_a_hanging_write_that_is_carried_out_late_makes_no_second_one(verb: str) -> None:
    async def work(here: Place) -> None:
        args = await here.recipe("m-new") if verb == "create_deployment" else {"route": ROUTE, "deployment": CANARY, "weight": 5}
        method, path = ("POST", "/v2/models$") if verb == "create_deployment" else ("PUT", "/model-routes/")
        hanging = here.fault("hang", method, path)
        await here.perform(verb, **args)
        here.box.gpustack.faults.release(hanging)
        await here.box.until(lambda: hanging.kind in [w.fault for w in here.box.gpustack.faults.writes], "the late write")
        assert here.count("models", "m-new") == (verb == "create_deployment")
        assert len(here.box.gpustack.world.where("model-route-targets", route_name=ROUTE)) == 1 + (verb == "join")

    at({STABLE: 100}, work)


def test_cancelling_while_the_server_hangs_returns_at_once() -> None:
    async def work(here: Place) -> None:
        here.fault("hang", "PUT", "/model-route-targets/")
        task = asyncio.create_task(here.perform("set_weight", route=ROUTE, deployment=CANARY, weight=50))
        await here.box.until(lambda: here.box.gpustack.faults.active[0].hits == 1, "the write to hang")
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 0.5

    at(PAIR, work, limits=Limits())


def test_a_server_that_hangs_for_good_is_unreachable_in_bounded_time() -> None:
    async def work(here: Place) -> None:
        for _ in range(30):
            here.fault("hang", "PUT", "/model-route-targets/", applied=False)
        began = time.monotonic()
        with pytest.raises(Unreachable):
            await here.perform("set_weight", route=ROUTE, deployment=CANARY, weight=50)
        assert time.monotonic() - began < 5
        assert here.box.weights(ROUTE) == PAIR

    at(PAIR, work)


@pytest.mark.parametrize("kind", ["ignore", "revert"])
def test_a_write_that_does_not_stick_is_an_error(kind: str) -> None:
    async def work(here: Place) -> None:
        for _ in range(3):
            here.fault(kind, "PUT", "/model-route-targets/")
        with pytest.raises(BadAnswer, match="does not show it"):
            await here.perform("set_weight", route=ROUTE, deployment=CANARY, weight=50)

    at(PAIR, work)


@pytest.mark.parametrize("path", ["/v2/models", "/v2/model-routes", "/v2/model-route-targets", "/v2/model-instances", "/v2/workers"])
def test_one_sick_read_is_read_again(path: str) -> None:
    async def work(here: Place) -> None:
        for fault in ({"kind": "status", "status": 503}, {"kind": "drop"}):
            here.fault(method="GET", path=f"{path}$", **fault)
        world = await here.observe(STABLE)
        assert world.deployments[STABLE].ready

    at(PAIR, work)


def refused_by(action: Callable[[Place], Awaitable[None]]) -> Callable[[Place], Awaitable[None]]:
    async def work(here: Place) -> None:
        await action(here)
        with pytest.raises(Refused):
            await here.perform("leave", route=ROUTE, deployment=CANARY)
        assert here.box.weights(ROUTE) == PAIR

    return work


def test_the_canary_does_not_leave_while_stable_is_down() -> None:
    async def crash(here: Place) -> None:
        node = here.box.nodes["spark-01"]
        node.knobs.restart_delay = None
        await node.crash_instance(next(i for i, run in node.instances.items() if run.model["name"] == STABLE))
        rows = here.box.gpustack.world
        await here.box.until(
            lambda: any(r["state"] != "active" for r in rows.where("model-route-targets", route_name=ROUTE)), "stable down"
        )

    at(PAIR, refused_by(crash))
