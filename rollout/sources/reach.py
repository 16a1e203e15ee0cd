"""May our inference key use a route? One cheap call on the inference URL, before anything is claimed. Judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rollout.clients.errors import HttpRefused
from rollout.clients.http import Http
from rollout.errors import UsageError

Json = Any
PATH = "/v1/models"


class Reach:
    """The `Measurer` for probe_key. It asks once a rollout, so it connects when it asks, and nobody else pays for that."""

    def __init__(self, connect: Callable[[], Http]) -> None:
        self._connect = connect

    def knows(self, verb: str) -> bool:
        return verb == "probe_key"

    async def perform(self, verb: str, args: Mapping[str, Json]) -> dict[str, Json]:
        """{status, listed, error}: does `GET /v1/models` list the route `model` for this key?

        `listed` is None where the answer does not say: the key was refused (`status` 401 or 403), or what answers there keeps no
        such list. Raises Unreachable and BadAnswer.
        """
        if not self.knows(verb):
            raise UsageError(f"No measurement is called `{verb}`.")
        try:
            async with self._connect() as http:
                answer = await http.get(PATH)
        except HttpRefused as error:
            return {"status": error.call.status, "listed": None, "error": f"{error.message} {error.why}".strip()}
        names = _names(answer)
        return {"status": 200, "listed": None if names is None else args["model"] in names, "error": ""}


def _names(answer: Json) -> set[str] | None:
    """The routes of a list in OpenAI's form; None for anything else."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        return None
    return {row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)}
