"""The rows of GPUStack's management API that a rollout reads: only the fields it uses, unknown ones are ignored.

Strict types: a weight of "90" is a broken contract, not the number 90, and so is one that no counter holds. A byte count that
cannot be one is unknown. `raw` is the row as the server sent it, for what must be repeated in a write. No calls here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

Json = Any
Moment = Annotated[datetime, Field(strict=False)]
"""ISO 8601 text in JSON"""
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""ids, weights and numbers of things"""


def _bytes(value: Json) -> Json:
    """None for a number that is no amount of memory: drivers report negative ones, and JSON can say 1e999."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and not 0 <= value < 1 << 53 else value


Bytes = Annotated[float | None, BeforeValidator(_bytes)]


class Part(BaseModel):
    """Strict and tolerant of what it does not know."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Row(Part):
    """An item of a list, with an id."""

    id: Count
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


class UsageRow(Part):
    """What one deployment served on one day, for one route, key and user; successes only."""

    date: str
    request_count: Count


class Usage(Part):
    """`GET /v2/dashboard/usage`."""

    items: list[UsageRow]


class Version(Part):
    """`GET /version`: `{"version": "v2.3.0", "git_commit": "…"}`."""

    version: str


class Memory(Part):
    """Bytes; `total` is 0 where a driver does not say."""

    total: Bytes = None
    used: Bytes = None
    is_unified_memory: bool | None = None


class Mount(Part):
    """One file system of a worker; bytes."""

    mount_point: str | None = None
    used: Bytes = None


class WorkerStatus(Part):
    """The part of a worker's own report that is read here."""

    memory: Memory | None = None
    filesystem: list[Mount] | None = None


class Worker(Row):
    """`/v2/workers`; up to 35 s old."""

    name: str
    state: str
    heartbeat_time: Moment | None = None
    status: WorkerStatus | None = None


class Model(Row):
    """`/v2/models`: a deployment."""

    name: str
    replicas: Count
    ready_replicas: Count = 0
    created_at: Moment | None = None
    state: str | None = None
    categories: list[str] | None = None
    backend_parameters: list[Json] | None = None
    env: dict[str, Json] | None = None
    worker_selector: dict[str, Json] | None = None
    gpu_selector: dict[str, Json] | None = None


class Claim(Part):
    """`computed_resource_claim`: bytes reserved on the worker; `vram` by GPU index."""

    ram: Bytes = None
    vram: dict[str, Bytes] | None = None


class Instance(Row):
    """`/v2/model-instances`: one running copy."""

    name: str
    model_id: Count
    state: str
    worker_name: str | None = None
    restart_count: Count | None = None
    state_message: str | None = None
    computed_resource_claim: Claim | None = None
    created_at: Moment | None = None
    updated_at: Moment | None = None


class ModelFile(Row):
    """`/v2/model-files`: one source on one worker. Rows outlive the deployments that used them."""

    source: str | None = None
    huggingface_repo_id: str | None = None
    huggingface_filename: str | None = None
    model_scope_model_id: str | None = None
    model_scope_file_path: str | None = None
    local_path: str | None = None
    worker_id: int | None = None
    resolved_paths: list[str] | None = None
    size: int | None = None
    state: str | None = None


class Route(Row):
    """`/v2/model-routes`. `targets` and `ready_targets` are counts."""

    name: str
    categories: list[str] | None = None
    meta: dict[str, Json] | None = None
    targets: Count | None = None
    ready_targets: Count | None = None
    access_policy: str | None = None
    created_model_id: Count | None = None
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

    route_id: Count
    route_name: str
    model_id: Count | None = None
    weight: Count
    state: str
    fallback_status_codes: list[str] | None = None


class Grant(Part):
    """Who may use a private route."""

    principal_type: str
    principal_id: Count


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
    name: str | None = None
    expires_at: Moment | None = None
    """None: never"""
    allowed_model_names: list[str] | None = None


R = TypeVar("R", bound=Row)


class Pages(Part):
    """Where a page stands in its list."""

    total: Count
    totalPage: Count  # noqa: N815 - the server's name


class Page(Part, Generic[R]):
    """One page of a list."""

    items: list[R]
    pagination: Pages
