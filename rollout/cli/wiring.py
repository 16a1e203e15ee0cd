"""The only file that names concrete stores, backends and sources: puts them together for one command. Decides nothing.

Imports late: a command pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rollout.cli.secrets import resolve
from rollout.clock import Clock
from rollout.errors import PlanError, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rollout.clients.secret import Secret
    from rollout.domain.byhand import WayBack
    from rollout.domain.receipts import Receipts
    from rollout.domain.state import RolloutState
    from rollout.engine.service import Connected, Service
    from rollout.plan.model import GPUStack, Plan, SecretRef
    from rollout.settings import Settings
    from rollout.sources.load import Memory
    from rollout.store import Store, StoredRollout
    from rollout.store.early import Heard

HOW = "write it as env:NAME or file:PATH."


def open_store(where: str, clock: Clock, *, create: bool) -> Store:
    """The store at a path or URL. Raises StoreError."""
    from rollout.store import Store

    return Store.open(where, create=create, now=clock.now)


def service(store: Store, clock: Clock) -> Service:
    """The engine over one store, able to reach every server that a plan may name."""
    from rollout.engine.service import Service

    async def reach(at: GPUStack) -> Connected:
        return await connect_to(at, clock)

    return Service(store, clock, reach, readable=readable)


def say(store: Store, rollout_id: str, verb: str, actor: str, reason: str, args: dict[str, Any]) -> RolloutState:
    """A person's word, without loading the engine."""
    from rollout.engine.say import say as spoken

    return spoken(store, rollout_id, verb, actor, reason, args)


def say_at_once(settings: Settings, clock: Clock, rollout_id: str, verb: str, reason: str) -> Heard | None:
    """An abort or rollback before the store is loaded; None when it could not be left that way, and `say` has to."""
    from rollout.cli.spoken import actor
    from rollout.store.early import leave

    return leave(settings.store, rollout_id, verb, actor(settings.actor), reason, clock.now())


def readable(at: GPUStack) -> None:
    """Raises PreflightError when a key cannot be read."""
    resolve(at.management_key, "gpustack.management_key")
    resolve(at.inference_key, "gpustack.inference_key")


async def connect(plan: Plan, clock: Clock) -> Connected:
    """Backend and measurer for a plan's servers. Raises PreflightError when a key cannot be read."""
    return await connect_to(plan.gpustack, clock)


async def connect_to(at: GPUStack, clock: Clock) -> Connected:
    """Backend and measurer for one GPUStack. Opens no connection yet."""
    from rollout.backends.registry import BACKENDS, Site
    from rollout.engine.service import Connected
    from rollout.sources.registry import Sources

    management = resolve(at.management_key, "gpustack.management_key")
    inference = resolve(at.inference_key, "gpustack.inference_key")
    memory, forget = _memory(at.server, management, clock)
    site = Site(at.server, at.inference or at.server, at.gateway)
    sources = Sources(site.inference, inference, clock, memory)
    backend = BACKENDS["gpustack"](site, management, inference, clock, sources.engine)

    async def aclose() -> None:
        await sources.aclose()
        await forget()
        await backend.__aexit__(None, None, None)

    return Connected(backend, sources, aclose)


async def way_back(at: GPUStack, route: str, receipts: Receipts | None, clock: Clock) -> WayBack:
    """The calls of a rollback by hand, from the receipts or else from the marker on the route. Reads only."""
    from rollout.backends.gpustack_by_hand import way_back as read
    from rollout.clients.gpustack import GPUStack as Client
    from rollout.clients.http import Http
    from rollout.clients.retry import Retry

    async with Client(Http(at.server, resolve(at.management_key, "gpustack.management_key"), retry=Retry(clock))) as client:
        return await read(client, route, receipts)


def put_back(at: GPUStack, route: str, before: dict[str, Any], kept: Sequence[str]) -> str:
    """The line that undoes a `stable-only`: targets as they were before it."""
    from rollout.backends.gpustack_by_hand import put_back as call
    from rollout.report.byhand import line

    return line(call(route, before["route"], before["targets"], kept), at)


def _memory(server: str, key: Secret, clock: Clock) -> tuple[Memory, Callable[[], Awaitable[None]]]:
    """How the load test learns a worker's available memory (bytes, None = unknown), and how to let that connection go."""
    from rollout.backends.gpustack_views import worker_view
    from rollout.clients.gpustack import GPUStack as Client
    from rollout.clients.http import Http
    from rollout.clients.retry import Retry

    http = Http(server, key, retry=Retry(clock))
    client = Client(http)

    async def available(worker: str) -> int | None:
        try:
            rows = await client.workers()
        except Unreachable:
            return None
        return next((worker_view(row, clock.now()).memory_available for row in rows if row.name == worker), None)

    return available, http.aclose


def gpustack_at(server: str, inference: str | None, management_key: str, inference_key: str) -> GPUStack:
    """The server of `rollback --route`, which has no plan. Raises UsageError for a key that is not a reference."""
    from pydantic import ValidationError

    from rollout.plan.model import GPUStack

    keys = {"management_key": _ref("--management-key", management_key), "inference_key": _ref("--inference-key", inference_key)}
    try:
        return GPUStack(server=server, inference=inference, **keys)
    except ValidationError as error:
        said = "; ".join(e["msg"] for e in error.errors(include_input=False, include_url=False))
        raise UsageError(
            "the server cannot be used", why=said, hint="--server and --inference take URLs such as http://gpustack.lan:80."
        ) from None


def _ref(option: str, text: str) -> SecretRef:
    from pydantic import ValidationError

    from rollout.plan.hidden import is_secret
    from rollout.plan.model import SecretRef

    kind, _, where = text.partition(":")
    try:
        if kind in ("env", "file") and where and not is_secret((), where):
            return SecretRef(env=where) if kind == "env" else SecretRef(file=where)
    except ValidationError:
        pass  # no name of a variable; it may be the key itself, so it is not repeated
    raise UsageError(f"`{option}` is no reference to a key", why="a key itself is never taken from the command line", hint=HOW)


def plan_of(stored: StoredRollout) -> Plan | None:
    """The plan a rollout was started with, to show it; None when it was taken over from a marker, or this release cannot read it."""
    from rollout.plan.load import plan_again

    try:
        return plan_again(stored.plan, stored.state.id) if stored.plan else None
    except PlanError:
        return None  # whoever ticks it is told; to look at a rollout no plan is needed


def alive(owner: str) -> bool:
    """Whether the process that holds a lease may still live."""
    from rollout.store import Owner

    try:
        return Owner.parse(owner).alive()
    except ValueError:
        return True
