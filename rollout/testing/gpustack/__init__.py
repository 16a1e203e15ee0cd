"""A GPUStack (2.3.0, or as 2.2.3) on loopback, with the traps of the real one and faults on demand; needs no GPU and no network.

`server` is the door. Rules of the real server live in `targets`, `api_*`, `*_control`, `routing` and `proxy`, what differs by
version in `flavour`; faults in `faults`, `gate` and `undo`. It must stay as wrong as the real server is: the contract tests run
against both.
"""

from rollout.testing.gpustack.faults import Fault, Write
from rollout.testing.gpustack.server import FakeGPUStack
from rollout.testing.gpustack.timing import Timing

__all__ = ["FakeGPUStack", "Fault", "Timing", "Write"]
