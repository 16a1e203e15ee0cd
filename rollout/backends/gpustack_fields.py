"""Which fields of a deployment a client may set, and to which change unit each belongs. Data only.

Source: the create body of GPUStack 2.2 and 2.3 (`POST /v2/models`). Not settable, because the server writes them itself:
`meta`, `distributable`, and every status field.
"""

from __future__ import annotations

from rollout.plan.model import Unit

SETTABLE = frozenset(
    {
        "backend",
        "backend_parameters",
        "backend_version",
        "categories",
        "cluster_id",
        "cpu_offloading",
        "description",
        "disaggregation",
        "distributed_inference_across_workers",
        "env",
        "extended_kv_cache",
        "gather",
        "generic_proxy",
        "gpu_selector",
        "gpu_type_selector",
        "huggingface_filename",
        "huggingface_repo_id",
        "image_name",
        "local_path",
        "lora_list",
        "model_scope_file_path",
        "model_scope_model_id",
        "native_anthropic_api",
        "placement_strategy",
        "replicas",
        "restart_on_error",
        "revision_history_limit",
        "roles",
        "run_command",
        "scaling_schedule",
        "source",
        "speculative_config",
        "worker_selector",
    }
)
SOURCE_FIELDS = ("source", "local_path", "huggingface_repo_id", "huggingface_filename", "model_scope_model_id", "model_scope_file_path")
FRACTION = "gpu_memory_utilization"
"""the share of a GPU's memory; lives in `backend_parameters`, but is sizing"""

UNIT_FIELDS: dict[Unit, tuple[str, ...]] = {
    Unit.BACKEND_IMAGE: ("image_name", "backend_version"),
    Unit.SERVICE_IMAGE: ("image_name", "backend_version"),
    Unit.MODEL_REVISION: SOURCE_FIELDS,
    Unit.PARAMETERS: (
        "backend_parameters",
        "env",
        "run_command",
        "extended_kv_cache",
        "speculative_config",
        "cpu_offloading",
        "distributed_inference_across_workers",
        "lora_list",
        "restart_on_error",
        "native_anthropic_api",
    ),
    Unit.OS: ("os_version", "kernel_release"),
    Unit.DRIVER: ("driver_version", "runtime_version"),
    Unit.WORKER: ("worker_version",),
}
"""what `change.to` may name. A host's unit names facts of the worker: the deployment itself stays as it is."""
HOST_UNITS = frozenset({Unit.OS, Unit.DRIVER, Unit.WORKER})
SIZING_FIELDS = frozenset({"replicas", "worker_selector", "gpu_selector", "gpu_type_selector", "placement_strategy", FRACTION})
