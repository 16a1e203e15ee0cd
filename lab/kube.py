"""`python -m lab.kube`: a Kubernetes API of its own process, just enough for a GPUStack server in a gateway mode to render into.

Create, read, list, replace, delete and watch for any kind; no authentication, no schema, no admission. For tests:
`POST /_fault {"method","match","status","times","delay"}` refuses or delays the next matching calls, `DELETE /_fault` ends it,
`GET /_audit?since=N` lists every write since then with the object that was written.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import re
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.kube_objects import Conflict, Json, Key, Objects, seeds
from lab.ports import HOST

PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))(?:/namespaces/(?P<ns>[^/]+))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?/?$"
)
WRITTEN: web.RequestKey[Json] = web.RequestKey("written", dict)
NAMESPACE, INGRESS_CLASS = "higress-system", "higress"


class KubeApi:
    """The handlers over one set of objects."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.faults: list[Json] = []
        self.audit: list[Json] = []

    def app(self) -> web.Application:
        """The application, ready to serve."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/_fault", self._fault)
        app.router.add_get("/_audit", self._audit)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        began = time.time()
        injected = await self._disturbed(request)
        answer = injected or await self._answer(request)
        if request.method != "GET":
            body = None if injected else copy.deepcopy(request.get(WRITTEN))
            self.audit.append({"t": began, "method": request.method, "path": request.path, "status": answer.status, "object": body})
        return answer

    async def _disturbed(self, request: web.Request) -> web.Response | None:
        for fault in self.faults:
            if fault["times"] > 0 and fault["method"] == request.method and fault["match"] in request.path:
                fault["times"] -= 1
                await asyncio.sleep(fault["delay"])
                if fault["status"]:
                    return _status(fault["status"], "InternalError", "injected fault")
        return None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        at = PATH.match(request.path)
        if at is None:
            return _discovery(request.path)
        version, resource, namespace = at["core"] or f"{at['group']}/{at['version']}", at["resource"], at["ns"]
        if at["name"] is None and request.method == "GET":
            if request.query.get("watch") in ("1", "true"):
                return await self._watch(request, version, resource, namespace)
            items = self.objects.listed(version, resource, namespace, request.query.get("labelSelector", ""))
            meta = {"resourceVersion": str(self.objects.version)}
            return web.json_response({"kind": "List", "apiVersion": version, "metadata": meta, "items": items})
        try:
            return await self._object(request, version, resource, namespace, at["name"])
        except Conflict as error:
            return _status(409, "AlreadyExists" if request.method == "POST" else "Conflict", str(error))

    async def _object(self, request: web.Request, version: str, resource: str, namespace: str | None, name: str | None) -> web.Response:
        body: Json = json.loads(await request.text() or "{}") if request.method in ("POST", "PUT") else {}
        key = Key(version, resource, namespace, name or str((body.get("metadata") or {}).get("name")))
        if request.method == "POST":
            request[WRITTEN] = await self.objects.create(key, body)
            return web.json_response(request[WRITTEN], status=201)
        found = self.objects.get(key)
        if found is None:
            return _status(404, "NotFound", f'{resource}.{version} "{key.name}" not found')
        if request.method == "GET":
            return web.json_response(found)
        if request.method == "PUT":
            request[WRITTEN] = await self.objects.replace(key, body)
            return web.json_response(request[WRITTEN])
        if request.method == "DELETE":
            request[WRITTEN] = await self.objects.delete(key)
            return _status(200, "", "")
        return _status(405, "MethodNotAllowed", request.method)

    async def _watch(self, request: web.Request, version: str, resource: str, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json;stream=watch"})
        await response.prepare(request)
        async for kind, obj in self.objects.watch(version, resource, namespace):
            await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
        return response

    async def _fault(self, request: web.Request) -> web.Response:
        self.faults = [fault for fault in self.faults if fault["times"] > 0]
        if request.method == "POST":
            self.faults.append({"method": "PUT", "match": "", "status": 0, "times": 1, "delay": 0.0, **await request.json()})
        elif request.method == "DELETE":
            self.faults.clear()
        return web.json_response(self.faults)

    async def _audit(self, request: web.Request) -> web.Response:
        return web.json_response(self.audit[int(request.query.get("since", 0)) :])


def _status(code: int, reason: str, message: str) -> web.Response:
    said = "Failure" if code >= 400 else "Success"
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": said, "reason": reason, "message": message, "code": code}
    return web.json_response({**body, "metadata": {}}, status=code)


def _discovery(path: str) -> web.Response:
    if path.rstrip("/") == "/api/v1":
        return web.json_response({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})
    if path in ("/version", "/readyz"):
        return web.json_response({"major": "1", "minor": "28", "gitVersion": "v1.28.0"})
    return _status(404, "NotFound", "the server could not find the requested resource")


def kubeconfig(port: int) -> str:
    """A kubeconfig that leads here."""
    cluster = {"name": "lab", "cluster": {"server": f"http://{HOST}:{port}"}}
    context = {"name": "lab", "context": {"cluster": "lab", "user": "lab"}}
    whole = {"apiVersion": "v1", "kind": "Config", "current-context": "lab", "clusters": [cluster], "contexts": [context]}
    return json.dumps({**whole, "users": [{"name": "lab", "user": {}}]})


async def serve(port: int, config: Path) -> None:
    """Until the process is ended; the kubeconfig appears when it listens."""
    api = KubeApi()
    for key, obj in seeds(NAMESPACE, INGRESS_CLASS).items():
        await api.objects.create(key, obj)
    runner = web.AppRunner(api.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    await asyncio.to_thread(config.write_text, kubeconfig(port), "utf-8")
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.kube")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.port, given.kubeconfig))
