"""The rows of GPUStack's management API that a rollout reads: only the fields it uses, unknown ones are ignored.

Strict types: a weight of "90" is a broken contract, not the number 90. `raw` is the row as the server sent it, for what must be
repeated in a write. No calls here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

Json = Any
Moment = Annotated[datetime, Field(strict=False)]
"""ISO 8601 text in JSON"""
Number = int | float


class Part(BaseModel):
    """Strict and tolerant of what it does not know."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Row(Part):
    """An item of a list, with an id."""

    id: int
    _raw: dict[str, Json] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_raw(cls, data: Json, handler: ModelWrapValidatorHandler[Row]) -> Row:
        row = handler(data)
        row._raw = data if isinstance(data, dict) else {}
        return row

    @property
    def raw(self) -> dict[str, Json]:
        """Every field the server sent."""
        return self._raw


class Version(Part):
    """`GET /version`: `{"version": "v2.3.0", "git_commit": "…"}`."""

    version: str


class Memory(Part):
    """Bytes; `total` is 0 where a driver does not say."""

    total: Number | None = None
    used: Number | None = None
    is_unified_memory: bool | None = None


class WorkerStatus(Part):
    """The part of a worker's own report that is read here."""

    memory: Memory | None = None


class Worker(Row):
    """`/v2/workers`; up to 35 s old."""

    name: str
    state: str
    heartbeat_time: Moment | None = None
    status: WorkerStatus | None = None


class Model(Row):
    """`/v2/models`: a deployment."""

    name: str
    replicas: int
    ready_replicas: int = 0
    state: str | None = None
    categories: list[str] | None = None


class Instance(Row):
    """`/v2/model-instances`: one running copy."""

    name: str
    model_id: int
    state: str
    worker_name: str | None = None
    restart_count: int | None = None
    state_message: str | None = None


class Route(Row):
    """`/v2/model-routes`. `targets` and `ready_targets` are counts."""

    name: str
    categories: list[str] | None = None
    meta: dict[str, Json] | None = None
    targets: int | None = None
    ready_targets: int | None = None
    access_policy: str | None = None
    created_model_id: int | None = None
    lb_mode: str | None = None
    owner_principal_id: int | None = None
    plugins: dict[str, Json] | None = None
    """only in the detail of one route"""


class Organization(Row):
    """`/v2/organizations`: who may own routes and deployments; `is_platform` is the one that owns what nobody else does."""

    name: str | None = None
    is_platform: bool = False


class Target(Row):
    """`/v2/model-route-targets`. Null fields are left out by the server; optional ones are in `raw`."""

    route_id: int
    route_name: str
    model_id: int | None = None
    weight: int
    state: str
    fallback_status_codes: list[str] | None = None


class Grant(Part):
    """Who may use a private route."""

    principal_type: str
    principal_id: int


class Access(Part):
    """`/v2/model-routes/{id}/access`."""

    access_policy: str | None = None
    principals: list[Grant] | None = None


class User(Row):
    """`/v2/users/me`: the owner of the key in use."""

    username: str | None = None


class ApiKey(Row):
    """`/v2/api-keys`: never with its value; `masked_value` shows four characters."""

    masked_value: str | None = None
    user_name: str | None = None
    scope: list[str] | None = None


R = TypeVar("R", bound=Row)


class Pages(Part):
    """Where a page stands in its list."""

    total: int
    totalPage: int  # noqa: N815 - the server's name


class Page(Part, Generic[R]):
    """One page of a list."""

    items: list[R]
    pagination: Pages
