"""The serving platforms that are known, by their key in a plan. A new one is one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollout.backends.gpustack import GPUStackBackend
from rollout.backends.gpustack_front import Front
from rollout.backends.gpustack_observe import SampleSource
from rollout.clients.gpustack import GPUStack
from rollout.clients.http import Http
from rollout.clients.retry import Retry
from rollout.clients.secret import Secret
from rollout.clock import Clock


@dataclass(frozen=True)
class Site:
    """Where a platform is: its management URL, the URL where users send requests, and what the plan says of a gateway there."""

    server: str
    inference: str
    gateway: str = "auto"


Open = Callable[[Site, Secret, Secret | None, Clock, SampleSource | None], GPUStackBackend]


def open_gpustack(
    site: Site, management_key: Secret, inference_key: Secret | None, clock: Clock, samples: SampleSource | None
) -> GPUStackBackend:
    """A backend for the management URL; close it after use (it is an async context manager)."""
    client = GPUStack(Http(site.server, management_key, retry=Retry(clock)))
    apart = site.inference.rstrip("/") != site.server.rstrip("/")
    front = Front(Http(site.inference, None, retry=Retry(clock)), apart=apart, said=site.gateway)
    return GPUStackBackend(client, clock, samples=samples, inference_key=inference_key, management_key=management_key, front=front)


BACKENDS: dict[str, Open] = {"gpustack": open_gpustack}
