"""One management call as the handlers see it, and the reading of its parts. No rules of the server live here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollout.testing.gpustack.auth import Caller
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.world import Row, World

PER_PAGE = 100


@dataclass(frozen=True)
class Call:
    """Path parameters, query, JSON body and caller of one request."""

    ids: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    caller: Caller
    organization: int | None = None
    """the organisation an administrator acts as, from `X-Organization-Id`"""

    @property
    def id(self) -> int:
        """The `{id}` of the path. Raises ApiError 422 when it is no integer."""
        return integer(self.ids["id"], "id")

    def field(self, name: str) -> Any:
        """A mandatory body field. Raises ApiError 422."""
        if not isinstance(self.body, dict) or self.body.get(name) is None:
            raise invalid(f"body.{name}: Field required")
        return self.body[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.body.get(name, default) if isinstance(self.body, dict) else default


def integer(value: Any, name: str, *, least: int | None = None) -> int:
    """An integer as pydantic reads one: 5, 5.0 and "5", not 5.5. Raises ApiError 422."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise invalid(f"{name}: Input should be a valid integer")
    try:
        number = int(value) if not isinstance(value, float) else int(value) if value == int(value) else None
    except (ValueError, OverflowError):
        number = None
    if number is None:
        raise invalid(f"{name}: Input should be a valid integer")
    if least is not None and number < least:
        raise invalid(f"{name}: Input should be greater than or equal to {least}")
    return number


def find(world: World, kind: str, row_id: int, message: str) -> Row:
    """A row, or ApiError 404 with `message`."""
    row = world.get(kind, row_id)
    if row is None:
        raise ApiError(404, message)
    return row


def page(rows: list[Row], query: Mapping[str, str]) -> dict[str, Any]:
    """`{"items","pagination"}`; the most recently updated first, so that nobody may index into it."""
    number = integer(query.get("page", 1), "page", least=1)
    size = integer(query.get("perPage", PER_PAGE), "perPage", least=1)
    ordered = sorted(rows, key=lambda row: (row["updated_at"], row["id"]), reverse=True)
    start = (number - 1) * size
    pagination = {"page": number, "perPage": size, "total": len(rows), "totalPage": -(-len(rows) // size)}
    return {"items": [dict(row) for row in ordered[start : start + size]], "pagination": pagination}


def without_none(row: Row) -> Row:
    """Routes and targets leave null fields out; private ones too."""
    return {key: value for key, value in row.items() if value is not None and not key.startswith("_")}
