"""A GPUStack in a dictionary, behind httpx's mock transport: what the backend's rules need of the server, and ways to be sick.

Only for unit tests of the backend: its own clock, no sockets, every call recorded. The shipped sandbox is the faithful one.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx

from rollout.backends.gpustack import GPUStackBackend
from rollout.backends.gpustack_spec import derive_spec, spec_of
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.domain.receipts import spec_digest

T = TypeVar("T")
Row = dict[str, Any]
Fault = Callable[["Double", httpx.Request], httpx.Response | None]
KINDS = {
    "models": "models",
    "model-routes": "routes",
    "model-route-targets": "targets",
    "model-instances": "instances",
    "workers": "workers",
    "model-files": "files",
    "organizations": "organizations",
}
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Tick:
    """A clock that sleeping moves; whoever is in `on_sleep` is told."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.on_sleep: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        for listener in self.on_sleep:
            listener()


class Double:
    """Tables by kind; a written target becomes active at the next sleep of the clock while its model runs."""

    def __init__(self) -> None:
        self.clock = Tick()
        self.clock.on_sleep.append(self.settle)
        self.tables: dict[str, dict[int, Row]] = {kind: {} for kind in KINDS.values()}
        self.access: dict[int, Any] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.faults: list[tuple[str, str, Fault]] = []
        self.never_active: set[int] = set()
        self.usage: list[Row] | None = None  # rows of the daily usage; None = this server has no such call
        self.next = 1

    # --- what tests say

    def model(self, name: str, **fields: Any) -> Row:
        return self._add("models", {"name": name, "replicas": 1, "ready_replicas": 1, "state": "running", "source": "local_path", **fields})

    def route(self, name: str, weights: dict[str, int] | None = None, **fields: Any) -> Row:
        row = self._add("routes", {"name": name, "meta": {}, "access_policy": "authed", "lb_mode": "weighted", **fields})
        for model, weight in (weights or {}).items():
            self.target(name, model, weight)
        return row

    def target(self, route: str, model: str | None, weight: int, **fields: Any) -> Row:
        model_id = self.named("models", model)["id"] if model else None
        owner = self.named("routes", route)
        own = {"route_id": owner["id"], "route_name": route, "weight": weight, "state": "active", **fields}
        return self._add("targets", own | ({"model_id": model_id} if model_id else {}))

    def named(self, kind: str, name: str) -> Row:
        return next(row for row in self.tables[kind].values() if row["name"] == name)

    def weights(self, route: str) -> dict[str, int]:
        """Weights by deployment; a second target of one gets a tick."""
        names = {m["id"]: m["name"] for m in self.tables["models"].values()}
        found: dict[str, int] = {}
        for row in sorted(self.tables["targets"].values(), key=lambda t: t["id"]):
            if row["route_name"] == route:
                name = names.get(row.get("model_id", -1), f"target-{row['id']}")
                found[name + "'" * (name in found)] = row["weight"]
        return found

    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.calls if method != "GET"]

    def fault(self, method: str, part: str, fault: Fault) -> None:
        """The next call of that method whose path contains `part` meets `fault`; it answers, or returns None to go on as usual."""
        self.faults.append((method, part, fault))

    def backend(self, **options: Any) -> GPUStackBackend:
        http = Http("http://gpustack.test", Secret("key"), retry=Retry(self.clock, attempts=2), transport=httpx.MockTransport(self.answer))
        return GPUStackBackend(GPUStack(http), self.clock, **options)

    def perform(self, verb: str, **args: Any) -> dict[str, Any]:
        return run(self.backend().perform(verb, args))

    # --- the server

    def settle(self) -> None:
        for row in self.tables["targets"].values():
            model = self.tables["models"].get(row.get("model_id", -1))
            if row["id"] not in self.never_active and (model is None or model["ready_replicas"] > 0):
                row["state"] = "active"

    def answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.calls.append((request.method, request.url.path, copy.deepcopy(body)))
        for entry in self.faults:
            method, part, fault = entry
            if method == request.method and part in request.url.path:
                self.faults.remove(entry)
                sick = fault(self, request)
                if sick is not None:
                    return sick
                break
        return self.really(request)

    def really(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        parts = request.url.path.strip("/").split("/")[1:]
        if request.url.path == "/version":
            return httpx.Response(200, json={"version": "v2.3.0"})
        if request.url.path == "/v2/users/me":
            return httpx.Response(200, json={"id": 1, "username": "admin"})
        if request.url.path == "/v2/dashboard/usage" and self.usage is not None:
            wanted = request.url.params
            days = [r for r in self.usage if wanted["start_date"] <= r["date"] <= wanted["end_date"]]
            return httpx.Response(200, json={"items": [r for r in days if str(r["model_id"]) == wanted["model_ids"]]})
        if parts[0] not in KINDS:
            return error(404, "Not Found")
        kind, number = KINDS[parts[0]], int(parts[1]) if len(parts) > 1 else None
        if number is not None and number not in self.tables[kind]:
            return error(404, f"id {number} not found")
        if parts[-1] == "access":
            return self._access(request.method, number or 0, body)
        handler = getattr(self, f"_{request.method.lower()}_{kind}", None)
        if request.method == "GET" and number is not None:
            return httpx.Response(200, json=self._shown(kind, self.tables[kind][number]))
        if request.method == "GET":
            return self._list(kind, request.url.params)
        if request.method == "DELETE":
            return self._delete(kind, number or 0)
        return handler(number, body) if handler else error(405, "Method Not Allowed")

    def _list(self, kind: str, params: httpx.QueryParams) -> httpx.Response:
        rows = [self._shown(kind, row) for row in self.tables[kind].values()]
        wanted = params.get("route_id")
        rows = [row for row in reversed(rows) if wanted is None or row["route_id"] == int(wanted)]
        return httpx.Response(200, json={"items": rows, "pagination": {"page": 1, "perPage": 100, "total": len(rows), "totalPage": 1}})

    def _shown(self, kind: str, row: Row) -> Row:
        if kind != "routes":
            return row
        own = [t for t in self.tables["targets"].values() if t["route_id"] == row["id"]]
        return {**row, "targets": len(own), "ready_targets": sum(t["state"] == "active" for t in own)}

    def _access(self, method: str, number: int, body: Any) -> httpx.Response:
        if method == "POST":
            self.access[number] = body["principals"]
            self.tables["routes"][number]["access_policy"] = body["access_policy"]
        answer = {"access_policy": self.tables["routes"][number]["access_policy"], "principals": self.access.get(number, [])}
        return httpx.Response(200, json=answer)

    def _post_models(self, _number: int | None, body: Row) -> httpx.Response:
        if any(row["name"] == body["name"] for row in self.tables["models"].values()):
            return error(409, f"Model '{body['name']}' already exists.")
        return httpx.Response(200, json=self.model(**{**body, "ready_replicas": 0, "state": None}))

    def _put_models(self, number: int | None, body: Row) -> httpx.Response:
        row = self.tables["models"][number or 0]
        row.update(copy.deepcopy(body))
        return httpx.Response(200, json=row)

    def _post_routes(self, _number: int | None, body: Row) -> httpx.Response:
        if any(row["name"] == body["name"] for row in self.tables["routes"].values()):
            return error(409, f"Route '{body['name']}' already exists.")
        row = self.route(**{k: v for k, v in body.items() if k != "targets"})
        self._replace(row, body.get("targets") or [])
        return httpx.Response(200, json=self._shown("routes", row))

    def _put_routes(self, number: int | None, body: Row) -> httpx.Response:
        row = self.tables["routes"][number or 0]
        if "meta" in body:
            row["meta"] = copy.deepcopy(body["meta"])
        if body.get("targets") is not None:
            sick = self._replace(row, body["targets"])
            if sick is not None:
                return sick
        return httpx.Response(200, json=self._shown("routes", row))

    def _replace(self, route: Row, entries: list[Row]) -> httpx.Response | None:
        own = {t["id"] for t in self.tables["targets"].values() if t["route_id"] == route["id"]}
        if any(e.get("id") not in own for e in entries if e.get("id")):
            return error(500, "ModelRouteTargets with ids '…' not found.")
        for gone in own - {e.get("id") for e in entries}:
            del self.tables["targets"][gone]
        for entry in entries:
            if entry.get("id"):
                self._update(self.tables["targets"][entry["id"]], entry)
            else:
                self._add("targets", {**entry, "route_id": route["id"], "route_name": route["name"], "state": "unavailable"})
        return None

    def _put_targets(self, number: int | None, body: Row) -> httpx.Response:
        row = self.tables["targets"][number or 0]
        self._update(row, {"weight": 0, "max_running_requests": None, "overridden_model_name": None, **body})
        return httpx.Response(200, json=row)

    @staticmethod
    def _update(row: Row, entry: Row) -> None:
        before = dict(row)
        row.update({k: v for k, v in entry.items() if v is not None})
        for key in [k for k, v in entry.items() if v is None]:
            row.pop(key, None)
        if row != before:
            row["state"] = "unavailable"

    def _delete(self, kind: str, number: int) -> httpx.Response:
        del self.tables[kind][number]
        key = {"models": "model_id", "routes": "route_id"}.get(kind)
        if key:
            self.tables["targets"] = {i: t for i, t in self.tables["targets"].items() if t.get(key) != number}
        return httpx.Response(200, text="null")

    def _add(self, kind: str, row: Row) -> Row:
        row = {"id": self.next, **copy.deepcopy(row)}
        if kind == "targets":
            row["name"] = f"{row['route_name']}-{self.next}"
        self.tables[kind][self.next] = row
        self.next += 1
        return row


def recipe(double: Double, base: str, name: str, unit: str = "parameters", to: Row | None = None, sizing: Row | None = None) -> Row:
    """Arguments of `create_deployment`: how `name` is derived from `base` as it is now."""
    change: Row = {"unit": unit, "to": to if to is not None else {"env": {"NEW": "1"}}}
    derived = derive_spec(spec_of(double.named("models", base)), unit, change["to"], sizing or {}, name)
    return {"name": name, "base": base, "change": change, "sizing": sizing or {}, "digest": spec_digest(derived)}


def error(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"code": status, "reason": "Error", "message": message})


def lost(double: Double, request: httpx.Request) -> httpx.Response:
    """Applied, and the answer never arrives."""
    double.really(request)
    raise httpx.ReadError("connection reset", request=request)


def hang(_double: Double, request: httpx.Request) -> httpx.Response:
    """Neither applied nor answered."""
    raise httpx.ReadTimeout("timed out", request=request)


def late(double: Double, request: httpx.Request) -> httpx.Response:
    """Applied, and the answer comes too late."""
    double.really(request)
    raise httpx.ReadTimeout("timed out", request=request)


def broken(_double: Double, _request: httpx.Request) -> httpx.Response:
    """500, nothing applied."""
    return error(500, "Internal server error")


def broken_after(double: Double, request: httpx.Request) -> httpx.Response:
    """500, but applied."""
    double.really(request)
    return error(500, "Internal server error")


def garbled_after(double: Double, request: httpx.Request) -> httpx.Response:
    """Applied, answered with a page."""
    double.really(request)
    return httpx.Response(200, text="<html>ok</html>")


def ignored(_double: Double, request: httpx.Request) -> httpx.Response:
    """200, and nothing happens."""
    return httpx.Response(200, json={"id": 1, "name": "x", **(json.loads(request.content) if request.content else {})})
