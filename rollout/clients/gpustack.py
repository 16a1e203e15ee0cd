"""GPUStack's management API (2.2 and 2.3): the dozen calls of a rollout, typed. One method is one call, or one complete list.

It must not decide, wait for effects, or repeat a write; that is the backend's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter

from rollout.clients.errors import Call, HttpBadAnswer
from rollout.clients.gpustack_rows import (
    Access,
    ApiKey,
    Instance,
    Model,
    ModelFile,
    Organization,
    Page,
    Route,
    Row,
    Target,
    Usage,
    User,
    Version,
    Worker,
)
from rollout.clients.http import Http, typed

Json = Any
R = TypeVar("R", bound=Row)
PER_PAGE = 100
MOST_PAGES = 500
LISTINGS = 4
"""times a list is read again when its pages do not add up"""
MODELS, INSTANCES, WORKERS = "/v2/models", "/v2/model-instances", "/v2/workers"
ROUTES, TARGETS, KEYS, FILES = "/v2/model-routes", "/v2/model-route-targets", "/v2/api-keys", "/v2/model-files"


class GPUStack:
    """One server, one management key. Raises Unreachable, Refused and BadAnswer of `clients.errors`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    @property
    def server_time(self) -> datetime | None:
        """The server's clock, as its latest answer said."""
        return self._http.server_time

    async def version(self) -> str:
        """Such as `v2.3.0`; needs no key."""
        call = Call("GET", "/version")
        return typed(TypeAdapter(Version), await self._http.get(call.path), call).version

    async def workers(self) -> list[Worker]:
        """All workers."""
        return await self._list(WORKERS, Worker)

    async def models(self) -> list[Model]:
        """All deployments."""
        return await self._list(MODELS, Model)

    async def instances(self) -> list[Instance]:
        """All instances of all deployments."""
        return await self._list(INSTANCES, Instance)

    async def routes(self) -> list[Route]:
        """All routes. The server's `name` filter also shows deleted rows, so it is not used."""
        return await self._list(ROUTES, Route)

    async def route(self, route_id: int) -> Route:
        """One route in detail: the lists leave its plugins out."""
        call = Call("GET", f"{ROUTES}/{route_id}")
        return typed(TypeAdapter(Route), await self._http.get(call.path), call)

    async def organizations(self) -> list[Organization]:
        """All organisations; administrators only. Servers before 2.2 have none and answer 404, which is Refused."""
        return await self._list("/v2/organizations", Organization)

    async def targets(self, route_id: int | None = None) -> list[Target]:
        """All targets, or those of one route."""
        return await self._list(TARGETS, Target, {} if route_id is None else {"route_id": route_id})

    async def requests(self, model_id: int, first: date, last: date) -> int:
        """Requests the server saw a deployment finish on these days (UTC), both included; failed ones are not counted."""
        asked: dict[str, str | int] = {"start_date": first.isoformat(), "end_date": last.isoformat(), "model_ids": model_id}
        call = Call("GET", "/v2/dashboard/usage")
        found = typed(TypeAdapter(Usage), await self._http.get(call.path, asked), call)
        return sum(row.request_count for row in found.items if first.isoformat() <= row.date[:10] <= last.isoformat())

    async def files(self) -> list[ModelFile]:
        """The model files of all workers."""
        return await self._list(FILES, ModelFile)

    # Answers of writes are not used: what counts is what a later look shows.

    async def create_model(self, body: Mapping[str, Json]) -> None:
        """A new deployment. A taken name is Refused with status 409."""
        await self._http.write("POST", MODELS, dict(body))

    async def put_model(self, model_id: int, body: Mapping[str, Json]) -> None:
        """`name` and `source` are mandatory; running instances keep their spec, only their number follows `replicas`."""
        await self._http.write("PUT", f"{MODELS}/{model_id}", dict(body))

    async def delete_file(self, file_id: int) -> None:
        """The row, and the paths on its worker's disk. While an instance uses it: Refused with status 409."""
        await self._http.write("DELETE", f"{FILES}/{file_id}?cleanup=true")

    async def delete_model(self, model_id: int) -> None:
        """Stops its instances at once and removes its targets from every route."""
        await self._http.write("DELETE", f"{MODELS}/{model_id}")

    async def create_route(self, body: Mapping[str, Json]) -> None:
        """A new route; the body cannot carry an access policy, it starts with the platform's (`authed`)."""
        await self._http.write("POST", ROUTES, dict(body))

    async def put_route(self, route_id: int, body: Mapping[str, Json]) -> None:
        """`name` is mandatory. With `targets` the whole list is replaced; without, targets stay and the cache is dropped."""
        await self._http.write("PUT", f"{ROUTES}/{route_id}", dict(body))

    async def drop_cache(self, route_id: int, name: str) -> None:
        """The name-only PUT: changes nothing but the proxy's cache, so it is safe to repeat."""
        await self._http.write("PUT", f"{ROUTES}/{route_id}", {"name": name}, repeat=True)

    async def delete_route(self, route_id: int) -> None:
        """Removes the route and its targets."""
        await self._http.write("DELETE", f"{ROUTES}/{route_id}")

    async def access(self, route_id: int) -> Access:
        """Who may use a route."""
        call = Call("GET", f"{ROUTES}/{route_id}/access")
        return typed(TypeAdapter(Access), await self._http.get(call.path), call)

    async def set_private(self, route_id: int, user_ids: list[int]) -> None:
        """Only these users may use the route; the whole list of grants is replaced."""
        grants = [{"principal_type": "user", "principal_id": user} for user in user_ids]
        body = {"access_policy": "allowed_principals", "principals": grants}
        await self._http.write("POST", f"{ROUTES}/{route_id}/access", body)

    async def put_target(self, target_id: int, body: Mapping[str, Json]) -> None:
        """One target. Fields left out fall back to defaults: weight to 0."""
        await self._http.write("PUT", f"{TARGETS}/{target_id}", dict(body))

    async def delete_target(self, target_id: int) -> None:
        """One target; effective at once, siblings untouched."""
        await self._http.write("DELETE", f"{TARGETS}/{target_id}")

    async def me(self) -> User:
        """The owner of the management key."""
        call = Call("GET", "/v2/users/me")
        return typed(TypeAdapter(User), await self._http.get(call.path), call)

    async def users(self) -> list[User]:
        """All users."""
        return await self._list("/v2/users", User)

    async def api_keys(self) -> list[ApiKey]:
        """The keys of all users, masked."""
        return await self._list(KEYS, ApiKey, {"user_id": "*"})

    async def _list(self, path: str, row: type[R], filters: Mapping[str, str | int] | None = None) -> list[R]:
        """Every row once, by id. Pages are "recently updated first" and move while they are read: read again until they add up."""
        adapter = TypeAdapter(Page[row])  # type: ignore[valid-type]
        for _ in range(LISTINGS):
            first = await self._page(path, adapter, 1, filters)
            if first.pagination.totalPage > MOST_PAGES:
                raise HttpBadAnswer(Call("GET", path), f"`pagination.totalPage` is {first.pagination.totalPage}")
            more = range(2, first.pagination.totalPage + 1)
            pages = [first, *[await self._page(path, adapter, number, filters) for number in more]]
            rows = {item.id: item for page in pages for item in page.items}
            if all(page.pagination.total == len(rows) for page in pages):
                return [rows[key] for key in sorted(rows)]
        raise HttpBadAnswer(Call("GET", path), f"its pages did not add up in {LISTINGS} readings")

    async def _page(self, path: str, adapter: TypeAdapter[Page[R]], number: int, filters: Mapping[str, str | int] | None) -> Page[R]:
        data = await self._http.get(path, {"page": number, "perPage": PER_PAGE, **(filters or {})})
        return typed(adapter, data, Call("GET", path))
