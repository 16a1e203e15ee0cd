"""The fake GPUStack on loopback: one listener for management and inference, one for the exporter, control under `/_fault` and `/_log`.

`GET /_fault` lists, `POST /_fault` arms a `Fault` (its fields as JSON), `POST /_fault/release` lets hanging requests go on,
`DELETE /_fault` removes all. `GET /_log` answers the management writes and the reads per path, `DELETE /_log` empties them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from rollout.testing.gpustack.api_admin import AdminApi
from rollout.testing.gpustack.api_models import ModelApi
from rollout.testing.gpustack.api_owners import OwnersApi
from rollout.testing.gpustack.api_routes import RouteApi
from rollout.testing.gpustack.auth import Auth
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, ErrorStyle
from rollout.testing.gpustack.faults import Fault, Faults
from rollout.testing.gpustack.flavour import DEFAULT, FLAVOURS
from rollout.testing.gpustack.gate import Gate, Handler
from rollout.testing.gpustack.instances_control import InstanceControl
from rollout.testing.gpustack.proxy import Proxy
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.targets import TargetRules
from rollout.testing.gpustack.timing import Timing
from rollout.testing.gpustack.undo import Undo
from rollout.testing.gpustack.usage import Usage
from rollout.testing.gpustack.watching import watch
from rollout.testing.gpustack.workers_control import WorkerControl
from rollout.testing.node import SimNode


class FakeGPUStack:
    """An in-process GPUStack, gateway disabled. Not thread safe; everything runs in one event loop."""

    def __init__(
        self, timing: Timing | None = None, admin_password: str = "sandbox-admin", seed: int = 0, *, version: str = DEFAULT
    ) -> None:
        """`version` is one of `flavour.FLAVOURS`."""
        self.core = Core(timing or Timing(), seed, FLAVOURS[version])
        self.admin_password = admin_password
        self.version = f"v{version}"  # what `/version` says; a test may change it, the behaviour stays
        self.world, self.faults = self.core.world, Faults()
        self.world.add("clusters", {"name": "Default Cluster", "state": "ready", "is_default": True, "provider": "Docker"})
        self.auth = Auth(self.world, admin_password)
        self.routes = RouteControl(self.core)
        self.instances = InstanceControl(self.core, self.routes)
        self.workers = WorkerControl(self.core, self.instances)
        self.usage = Usage(self.world)
        self.style = ErrorStyle()
        self.targets = TargetRules(self.core, self.routes)
        self.route_api = RouteApi(self.core, self.routes, self.targets)
        self.model_api = ModelApi(self.core, self.instances, self.routes, self.route_api)
        self.owners = OwnersApi(self.core, self.routes)
        self.admin_api = AdminApi(self.core, self.auth, self.workers, self.instances)
        self.proxy = Proxy(self.core, self.auth, self.usage)
        self.gate = Gate(self.core, self.auth, self.faults, Undo(self.core, self.instances, self.routes), self.style)
        self.url = self.metrics_url = ""
        self._runners: list[web.AppRunner] = []

    def add_node(self, node: SimNode) -> None:
        """Register a started node as a worker."""
        self.workers.register(node)

    def new_key(self, name: str, scope: list[str], user: dict[str, Any] | None = None) -> str:
        """A key's secret value, as the API would give it once."""
        return str(self.auth.add_key(user or self.auth.admin, {"name": name, "scope": scope})["value"])

    async def start(self, host: str = "127.0.0.1", port: int = 0, metrics_port: int = 0) -> None:
        """Listen; `url` and `metrics_url` are set."""
        self.url = await self._listen(self._app(), host, port)
        self.metrics_url = await self._listen(self._exporter(), host, metrics_port)
        self.core.spawn(self.workers.run())

    async def _listen(self, app: web.Application, host: str, port: int) -> str:
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, host, port, backlog=1024).start()
        self._runners.append(runner)
        return f"http://{host}:{runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Let hanging requests go, close listeners and background work."""
        self.faults.clear()
        for runner in self._runners:
            await runner.cleanup()
        await self.core.close()

    # --- wiring

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._errors])
        app.router.add_get("/version", _answer(lambda: {"version": self.version, "git_commit": self.core.flavour.commit}))
        app.router.add_get("/healthz", _answer(lambda: "ok"))
        app.router.add_get("/readyz", _answer(lambda: "ok"))
        app.router.add_get("/v1/models", self.proxy.models)
        app.router.add_post("/v1/{endpoint:.+}", self.proxy.infer)
        app.router.add_post("/v1-openai/{endpoint:.+}", self.proxy.infer)
        app.router.add_route("*", "/_fault", self._fault)
        app.router.add_post("/_fault/release", self._fault)
        app.router.add_route("*", "/_log", self._log)
        for method, path, handler in self._table():
            wrapped = self.gate.wrap(handler)
            app.router.add_route(method, f"/v2/{path}", self._watchable(path, wrapped) if method == "GET" else wrapped)
        return app

    def _table(self) -> list[tuple[str, str, Handler]]:
        """Every management call, one line each."""
        routes, targets, models, admin, owners = self.route_api, self.targets, self.model_api, self.admin_api, self.owners
        return [
            ("GET", "model-routes", routes.list_all),
            ("POST", "model-routes", routes.create),
            ("GET", "model-routes/{id}", routes.read),
            ("PUT", "model-routes/{id}", routes.update),
            ("DELETE", "model-routes/{id}", routes.delete),
            ("POST", "model-routes/{id}/add-targets", routes.add_targets),
            ("GET", "model-routes/{id}/access", routes.access),
            ("POST", "model-routes/{id}/access", routes.set_access),
            ("GET", "model-route-targets", targets.list_all),
            ("PUT", "model-route-targets/{id}", targets.update),
            ("DELETE", "model-route-targets/{id}", targets.delete),
            ("POST", "model-route-targets/{id}/set-fallback", targets.set_fallback),
            ("GET", "models", models.list_all),
            ("POST", "models", models.create),
            ("GET", "models/{id}", models.read),
            ("PUT", "models/{id}", models.update),
            ("DELETE", "models/{id}", models.delete),
            ("POST", "models/{id}/restart", models.restart),
            ("GET", "models/{id}/instances", models.list_of_model),
            ("GET", "model-instances", models.list_instances),
            ("GET", "model-instances/{id}", models.read_instance),
            ("PUT", "model-instances/{id}", models.update_instance),
            ("DELETE", "model-instances/{id}", models.delete_instance),
            ("GET", "model-files", models.list_files),
            ("GET", "model-files/{id}", models.read_file),
            ("DELETE", "model-files/{id}", models.delete_file),
            ("GET", "workers", admin.list_workers),
            ("GET", "workers/{id}", admin.read_worker),
            ("PUT", "workers/{id}", admin.update_worker),
            ("DELETE", "workers/{id}", admin.delete_worker),
            ("GET", "gpu-devices", admin.list_gpus),
            ("GET", "clusters", admin.list_clusters),
            ("GET", "api-keys", admin.list_keys),
            ("POST", "api-keys", admin.create_key),
            ("PUT", "api-keys/{id}", admin.update_key),
            ("DELETE", "api-keys/{id}", admin.delete_key),
            ("GET", "users/me", admin.me),
            ("GET", "users", admin.list_users),
            ("POST", "users", admin.create_user),
            ("DELETE", "users/{id}", admin.delete_user),
            ("GET", "organizations", owners.list_organizations),
            ("POST", "organizations", owners.create_organization),
            ("DELETE", "organizations/{id}", owners.delete_organization),
            ("GET", "model-providers", owners.list_providers),
            ("POST", "model-providers", owners.create_provider),
            ("DELETE", "model-providers/{id}", owners.delete_provider),
            ("GET", "dashboard", admin.dashboard),
            ("GET", "dashboard/usage", self.usage.per_day),
            ("GET", "usage/summary", self.usage.summary),
            ("POST", "usage/breakdown", self.usage.breakdown),
        ]

    def _watchable(self, kind: str, plain: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.query.get("watch") not in ("true", "1"):
                answer: web.StreamResponse = await plain(request)
                return answer
            self.auth.allow(self.auth.caller(request), "management")
            return await watch(self.core, request, self.admin_api.watchable(kind))

        return handle

    @web.middleware
    async def _errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            disturbed = await self.gate.disturb(request) if request.path.startswith("/v1") and self.faults.active else None
            answer: web.StreamResponse = disturbed or await handler(request)
            return answer
        except ApiError as error:
            return self.style.answer(request.path, error)
        except web.HTTPException as error:
            return web.json_response({"detail": error.reason}, status=error.status)

    def _exporter(self) -> web.Application:
        async def page(_request: web.Request) -> web.Response:
            return web.Response(text=self.admin_api.exporter_page(), content_type="text/plain")

        async def targets(_request: web.Request) -> web.Response:
            return web.json_response(self.admin_api.exporter_targets())

        app = web.Application()
        app.router.add_get("/metrics", page)
        app.router.add_get("/metrics/targets", targets)
        return app

    # --- control

    async def _fault(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            self.faults.clear()
        elif request.path.endswith("/release"):
            for fault in self.faults.active:
                self.faults.release(fault)
        elif request.method == "POST":
            try:
                self.faults.add(Fault(**await request.json()))
            except (TypeError, ValueError) as error:
                return web.json_response({"message": str(error)}, status=400)
        return web.json_response([fault.shown() for fault in self.faults.active])

    async def _log(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            self.faults.writes.clear()
            self.faults.reads.clear()
        return web.json_response({"writes": [asdict(write) for write in self.faults.writes], "reads": dict(self.faults.reads)})


def _answer(body: Callable[[], Any]) -> Any:
    async def handle(_request: web.Request) -> web.Response:
        return web.json_response(body())

    return handle
