"""The serving platforms that are known, by their key in a plan. A new one is one line here."""

from __future__ import annotations

from collections.abc import Callable

from rollout.backends.gpustack import GPUStackBackend
from rollout.backends.gpustack_observe import SampleSource
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import Clock

Open = Callable[[str, Secret, Secret | None, Clock, SampleSource | None], GPUStackBackend]


def open_gpustack(
    server: str, management_key: Secret, inference_key: Secret | None, clock: Clock, samples: SampleSource | None
) -> GPUStackBackend:
    """A backend for the management URL; close it after use (it is an async context manager)."""
    client = GPUStack(Http(server, management_key, retry=Retry(clock)))
    return GPUStackBackend(client, clock, samples=samples, inference_key=inference_key, management_key=management_key)


BACKENDS: dict[str, Open] = {"gpustack": open_gpustack}
