"""The rest of `/v2` that a rollout controller reads: keys, users, workers, clusters, GPUs, dashboard; and the server's exporter.

Contract 2, 4.3, 9.2, 9.3. Small answers in the real shapes; rules of deployments and routes live elsewhere.
"""

from __future__ import annotations

from typing import Any

from rollout.testing.gpustack.auth import Auth
from rollout.testing.gpustack.calls import Call, find, page
from rollout.testing.gpustack.core import Core
from rollout.testing.gpustack.errors import ApiError, invalid
from rollout.testing.gpustack.instances_control import InstanceControl
from rollout.testing.gpustack.workers_control import WorkerControl
from rollout.testing.gpustack.world import Row


class AdminApi:
    """Handlers of everything beside deployments and routes."""

    def __init__(self, core: Core, auth: Auth, workers: WorkerControl, instances: InstanceControl) -> None:
        self.core, self.world, self.auth = core, core.world, auth
        self.workers, self.instances = workers, instances

    # --- keys and users

    def list_keys(self, call: Call) -> dict[str, Any]:
        """The caller's own; an administrator may ask for another user's by id, or for all with `*`."""
        asked = call.query.get("user_id") if call.caller.is_admin else None
        whose = {} if asked == "*" else {"user_id": int(asked) if asked else call.caller.user["id"]}
        return page([{**row, "value": None} for row in self.world.where("api-keys", **whose)], call.query)

    def create_key(self, call: Call) -> Row:
        return self.auth.add_key(call.caller.user, call.body)

    def update_key(self, call: Call) -> Row:
        find(self.world, "api-keys", call.id, "Api key not found")
        fields = {key: call.body[key] for key in ("scope", "description", "allowed_model_names") if key in call.body}
        return {**self.world.change("api-keys", call.id, **fields), "value": None}

    def delete_key(self, call: Call) -> None:
        find(self.world, "api-keys", call.id, "Api key not found")
        self.world.remove("api-keys", call.id)

    def me(self, call: Call) -> Row:
        return dict(call.caller.user)

    def list_users(self, call: Call) -> dict[str, Any]:
        return page(self.world.where("users"), call.query)

    def create_user(self, call: Call) -> Row:
        name, password = str(call.field("username")), str(call.field("password"))
        if self.world.one("users", username=name):
            raise ApiError(409, f"User with username '{name}' already exists.")
        return self.auth.add_user(name, password, is_admin=bool(call.get("is_admin")))

    def delete_user(self, call: Call) -> None:
        find(self.world, "users", call.id, "User not found")
        for key in self.world.where("api-keys", user_id=call.id):
            self.world.remove("api-keys", key["id"])
        for grant in self.world.where("grants", principal_id=call.id):
            self.world.remove("grants", grant["id"])
        self.world.remove("users", call.id)

    # --- workers

    def list_workers(self, call: Call) -> dict[str, Any]:
        answer = page(self.world.where("workers"), call.query)
        answer["items"] = [self.workers.view(row) for row in answer["items"]]
        return answer

    def read_worker(self, call: Call) -> Row:
        return self.workers.view(find(self.world, "workers", call.id, "worker not found"))

    def update_worker(self, call: Call) -> Row:
        """Labels, and maintenance: running instances keep serving, nothing new is placed."""
        find(self.world, "workers", call.id, "worker not found")
        if "labels" in call.body:
            self.world.change("workers", call.id, labels=call.body["labels"])
        if "maintenance" in call.body:
            self.workers.maintain(call.id, call.body["maintenance"])
        return self.workers.view(self.world.tables["workers"][call.id])

    def delete_worker(self, call: Call) -> None:
        """The row goes with the instances on it; model-file rows stay."""
        find(self.world, "workers", call.id, "worker not found")
        for row in self.world.where("model-instances", worker_id=call.id):
            self.instances.delete(row["id"])
            self.instances.converge(row["model_id"], "recreate")
        self.world.remove("workers", call.id)

    def list_gpus(self, call: Call) -> dict[str, Any]:
        rows = []
        for worker in self.world.where("workers"):
            seen = self.workers.view(worker)
            place = {f"worker_{key}": worker[key] for key in ("id", "name", "ip")} | {"cluster_id": worker["cluster_id"]}
            for gpu in seen["status"]["gpu_devices"]:
                known = {"id": f"{worker['name']}:{gpu['type']}:{gpu['index']}", "updated_at": worker["updated_at"]}
                rows.append({**gpu, **place, **known})
        return page(rows, call.query)

    # --- overview

    def list_clusters(self, call: Call) -> dict[str, Any]:
        return page([{**row, "workers": len(self.world.tables["workers"])} for row in self.world.where("clusters")], call.query)

    def dashboard(self, _call: Call) -> dict[str, Any]:
        workers = self.world.where("workers")
        rates = [row["status"]["memory"]["utilization_rate"] for row in workers]
        mean = sum(rates) / len(rates) if rates else 0.0
        counts = {
            "worker_count": len(workers),
            "gpu_count": len(workers),
            "model_count": len(self.world.tables["models"]),
            "model_instance_count": len(self.world.tables["model-instances"]),
            "cluster_count": 1,
        }
        load = {"current": {"cpu": 2.0, "ram": mean, "gpu": 3.0, "vram": mean}, "history": {"cpu": [], "ram": [], "gpu": [], "vram": []}}
        return {"cluster_id": None, "resource_counts": counts, "system_load": load, "active_models": []}

    def watchable(self, kind: str) -> str:
        """A kind that can be watched. Raises ApiError 422 otherwise."""
        if kind not in ("workers", "models", "model-instances", "model-files", "model-routes", "model-route-targets"):
            raise invalid(f"{kind} cannot be watched")
        return kind

    def exporter_page(self) -> str:
        """The server's own metrics: desired and running instances, restarts, worker states."""
        samples: list[tuple[str, dict[str, Any], float]] = []
        for row in self.world.where("models"):
            labels = {"model_id": row["id"], "model_name": row["name"]}
            samples.append(("model_desired_instances", labels, row["replicas"]))
            samples.append(("model_running_instances", labels, row["ready_replicas"]))
        for row in self.world.where("model-instances"):
            labels = {"model_instance_name": row["name"], "worker_name": row["worker_name"] or ""}
            samples.append(("model_instance_status", {**labels, "state": row["state"]}, 1.0))
            samples.append(("model_instance_restart_count", labels, row["restart_count"]))
        for row in self.world.where("workers"):
            labels = {"worker_id": row["id"], "worker_name": row["name"]}
            samples.append(("worker_status", {**labels, "state": row["state"]}, 1.0))
        lines = []
        for name, labels, value in samples:
            inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"gpustack:{name}{{{inside}}} {float(value)}")
        return "\n".join(lines) + "\n"

    def exporter_targets(self) -> list[dict[str, Any]]:
        """Scrape targets of ready workers."""
        labels = {"cluster_id": "1", "cluster_name": "Default Cluster"}
        ready = self.world.where("workers", state="ready")
        return [{"labels": labels, "targets": [f"{row['ip']}:{row['metrics_port']}"]} for row in ready]
