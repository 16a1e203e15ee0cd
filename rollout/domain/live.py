"""Values of a live deployment, which may hold secrets. Pure; hides nothing itself: what is kept of them goes through `plan.hidden`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = Any


class Live(Mapping[str, Json]):
    """A spec as the server has it, to be read and never written down: it prints its field names alone, and no serialiser takes it."""

    __slots__ = ("__values",)

    def __init__(self, values: Mapping[str, Json]) -> None:
        self.__values = values

    def __getitem__(self, key: str) -> Json:
        return self.__values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__values)

    def __len__(self) -> int:
        return len(self.__values)

    def __repr__(self) -> str:
        return f"Live({', '.join(sorted(self))})"
