"""`/v2/models`, `/v2/model-instances`, `/v2/model-files`: deployments and what runs of them (contract 5, 10)."""

from __future__ import annotations

import copy
from typing import Any

from rollout.testing.gpustack.api_routes import RouteApi
from rollout.testing.gpustack.calls import Call, find, integer, page
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.instances_control import InstanceControl
from rollout.testing.gpustack.routes_control import RouteControl
from rollout.testing.gpustack.world import PLATFORM, Row, timestamp

SPEC: dict[str, Any] = {
    "name": None,
    "source": None,
    "local_path": None,
    "huggingface_repo_id": None,
    "huggingface_filename": None,
    "model_scope_model_id": None,
    "description": None,
    "meta": {},
    "replicas": 1,
    "categories": [],
    "placement_strategy": "spread",
    "cpu_offloading": None,
    "distributed_inference_across_workers": False,
    "worker_selector": {},
    "gpu_selector": None,
    "backend": None,
    "backend_version": None,
    "backend_parameters": None,
    "image_name": None,
    "run_command": None,
    "env": None,
    "restart_on_error": True,
    "distributable": False,
    "extended_kv_cache": None,
    "speculative_config": None,
    "generic_proxy": False,
    "cluster_id": 1,
    "lora_list": None,
    "access_policy": "authed",
}
SOURCES = ("huggingface", "model_scope", "local_path")
STATUS: dict[str, Any] = {
    "ready_replicas": 0,
    "state": None,
    "state_message": None,
    "role_status": None,
    "stale": None,
    "degradations": None,
    "restarting_since": None,
    "owner_principal_id": PLATFORM,
}
BY_DEFAULT = {
    "least-load": {"enabled": True},
    "session-affinity": {
        "enabled": True,
        "sessionKeys": [{"header": "session-id"}, {"header": "x-client-request-id"}, {"bodyKey": "prompt_cache_key"}],
    },
}
"""policies of the route that a deployment with several replicas brings along"""
SINCE_23 = ("state", "state_message", "role_status", "stale", "degradations", "restarting_since")


class ModelApi:
    """Handlers of deployments, instances and files."""

    def __init__(self, core: Core, instances: InstanceControl, routes: RouteControl, route_api: RouteApi) -> None:
        self.core, self.world = core, core.world
        self.instances, self.routes, self.route_api = instances, routes, route_api

    # --- deployments

    def list_all(self, call: Call) -> dict[str, Any]:
        rows = self.world.where("models")
        if call.query.get("search"):
            rows = [row for row in rows if call.query["search"] in row["name"]]
        if call.query.get("cluster_id"):
            rows = [row for row in rows if row["cluster_id"] == integer(call.query["cluster_id"], "cluster_id")]
        answer = page(rows, call.query)
        answer["items"] = [self.view(row) for row in answer["items"]]
        return answer

    def view(self, row: Row) -> Row:
        """A deployment as answered; 2.2 tells no state of it."""
        hidden = () if self.core.flavour.balances else SINCE_23
        return {key: value for key, value in row.items() if key not in hidden}

    def read(self, call: Call) -> Row:
        return self.view(find(self.world, "models", call.id, "Model not found"))

    def create(self, call: Call) -> Row:
        spec = self._spec(call)
        with_route = bool(call.get("enable_model_route", False))
        if self.world.one("models", name=spec["name"]):
            raise ApiError(409, f"Model with name '{spec['name']}' already exists.")
        if with_route and self.world.one("model-routes", name=spec["name"]):
            raise ApiError(409, f"Model route with name '{spec['name']}' already exists.")
        if self.world.get("clusters", spec["cluster_id"] or 1) is None:
            raise ApiError(404, f"Cluster {spec['cluster_id']} not found")
        claimed = {"ready_replicas": call.get("ready_replicas", 0)}  # accepted and shown as given until the first look
        model = self.world.add("models", {**SPEC, **spec, **STATUS, **claimed})
        if with_route:
            self._own_route(model)
        self.instances.converge(model["id"])
        return self.view(model)

    def _own_route(self, model: Row) -> None:
        """The route a deployment brings along: weight 100, or since 2.3 none, least-load and affinity when it has several replicas."""
        many = int(model["replicas"]) > 1 and self.core.flavour.balances
        plugins = copy.deepcopy(BY_DEFAULT) if many else {}
        fields = {"categories": model["categories"], "created_model_id": model["id"], "_plugins": plugins, "targets": 1}
        route = self.route_api.new_route(model["name"], fields)
        target = self.route_api.targets.create(route, {"model_id": model["id"], "weight": 0 if many else 100})
        self.world.change("model-route-targets", target["id"], name=f"{model['name']}-deployment")
        for entry in model["lora_list"] or []:
            name = f"{model['name']}:{entry['lora_name']}"
            child = self.route_api.new_route(name, {**fields, "_plugins": {}})
            self.route_api.targets.create(child, {"model_id": model["id"], "weight": 100, "overridden_model_name": name})

    def update(self, call: Call) -> Row:
        """Fields that were sent are written; running instances are never touched by a new spec, only their number is."""
        model = find(self.world, "models", call.id, "Model not found")
        spec = self._spec(call)
        taken = self.world.one("models", name=spec["name"])
        if taken is not None and taken["id"] != call.id:
            raise ApiError(500, "Failed to update model")
        before = model["replicas"]
        self.world.change("models", call.id, **spec)
        self.routes.meta_follows(call.id)
        if model["replicas"] != before:
            self.instances.converge(call.id, "scale_down" if model["replicas"] < before else None)
        return self.view(model)

    def delete(self, call: Call) -> None:
        """Instances, and targets in ALL routes, go at once; nothing waits for requests in flight. Files stay."""
        find(self.world, "models", call.id, "Model not found")
        for row in self.world.where("model-instances", model_id=call.id):
            self.instances.delete(row["id"])
        self.world.remove("models", call.id)
        self.routes.model_deleted(call.id)

    def restart(self, call: Call) -> dict[str, Any]:
        """Delete all instances and let the replicas converge again; a second one meanwhile is a 409."""
        model = find(self.world, "models", call.id, "Model not found")
        rows = self.world.where("model-instances", model_id=call.id)
        if not rows:
            return {
                "spec_digest": "",
                "restarted": False,
                "deleted_instances": [],
                "message": "No instances to restart; the model has none running.",
            }
        if model["restarting_since"]:
            raise ApiError(409, "A restart is already in progress for this model.", "Conflict")
        self.world.change("models", call.id, restarting_since=timestamp())
        for row in rows:
            self.instances.delete(row["id"])
        self.instances.sync_model(call.id)
        self.world.change("models", call.id, restarting_since=timestamp())
        self.instances.converge(call.id, "recreate")
        return {"spec_digest": "", "restarted": True, "deleted_instances": [row["name"] for row in rows], "message": "Instances retired."}

    def _spec(self, call: Call) -> dict[str, Any]:
        name, source = call.field("name"), call.field("source")
        if source not in SOURCES:
            raise invalid("body.source: Input should be 'huggingface', 'model_scope' or 'local_path'")
        if source == "local_path" and not call.get("local_path") and "id" not in call.ids:
            raise invalid("body: Value error, local_path must be provided when source is 'local_path'")
        spec = {key: value for key, value in call.body.items() if key in SPEC}
        if "replicas" in spec:
            spec["replicas"] = integer(spec["replicas"], "body.replicas", least=0)
        for entry in spec.get("lora_list") or []:
            short = str(entry["lora_name"]).removeprefix(f"{name}:")
            if ":" in short:
                raise ApiError(400, f"lora_name '{short}' must not contain ':'. Set lora_name to the bare adapter name.")
            entry["lora_name"] = short  # shown without the deployment's name, whichever way it was sent
        return {**spec, "name": name}

    # --- instances

    def list_instances(self, call: Call) -> dict[str, Any]:
        rows = self.world.where("model-instances")
        for key in ("model_id", "worker_id", "id"):
            if call.query.get(key):
                rows = [row for row in rows if row[key] == integer(call.query[key], key)]
        if call.query.get("state"):
            rows = [row for row in rows if row["state"] == call.query["state"]]
        return page(rows, call.query)

    def list_of_model(self, call: Call) -> dict[str, Any]:
        find(self.world, "models", call.id, "Model not found")
        return page(self.world.where("model-instances", model_id=call.id), call.query)

    def read_instance(self, call: Call) -> Row:
        return dict(find(self.world, "model-instances", call.id, "Model instance not found"))

    def update_instance(self, call: Call) -> Row:
        """Any admin may write any state; the model follows."""
        row = find(self.world, "model-instances", call.id, "Model instance not found")
        fields = {key: value for key, value in call.body.items() if key in row and key not in ("id", "created_at", "updated_at")}
        self.world.change("model-instances", call.id, **fields)
        self.instances.sync_model(row["model_id"])
        return dict(row)

    def delete_instance(self, call: Call) -> None:
        """The replicas converge again: a replacement comes at once."""
        row = find(self.world, "model-instances", call.id, "Model instance not found")
        self.instances.delete(call.id)
        self.instances.sync_model(row["model_id"])
        self.instances.converge(row["model_id"], "recreate")

    # --- files

    def list_files(self, call: Call) -> dict[str, Any]:
        rows = self.world.where("model-files")
        if call.query.get("worker_id"):
            rows = [row for row in rows if row["worker_id"] == integer(call.query["worker_id"], "worker_id")]
        return page(rows, call.query)

    def read_file(self, call: Call) -> Row:
        return dict(find(self.world, "model-files", call.id, f"Model file {call.id} not found"))

    def delete_file(self, call: Call) -> None:
        """409 while an instance uses the source on that worker. With `cleanup` the worker deletes the paths too, else only the row goes."""
        row = find(self.world, "model-files", call.id, f"Model file {call.id} not found")
        fields = {key: row[key] for key in ("worker_id", "source", "local_path", "huggingface_repo_id", "model_scope_model_id")}
        used = ", ".join(item["name"] for item in self.world.where("model-instances", **fields))
        if used:
            raise ApiError(409, f"Cannot delete the model file. It's being used by model instances: {used}.", "Conflict")
        self.world.remove("model-files", call.id)
        node = self.instances.core.nodes.get(row["worker_id"])
        if node is not None and (call.query.get("cleanup") == "true" or row["cleanup_on_delete"]):
            for path in row["resolved_paths"]:
                node.drop_file(path)
