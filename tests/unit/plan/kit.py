"""A valid plan as text, and short ways to make it wrong."""

from __future__ import annotations

import pytest

from rollout.errors import PlanError
from rollout.plan.finding import Finding
from rollout.plan.load import parse_plan

GOOD = """\
apiVersion: rollout/v1
kind: RolloutPlan
metadata: {name: chat-new-image}
gpustack:
  server: http://127.0.0.1:30080
  management_key: {env: ROLLOUT_MANAGEMENT_KEY}
  inference_key: {env: ROLLOUT_INFERENCE_KEY}
route: {name: chat}
change:
  unit: backend_image
  to: {image_name: "sim/vllm:2"}
stable:
  - deployment: chat-spark-01
stage: {worker: staging}
"""


def but(old: str, new: str) -> str:
    """The good plan with one text replaced; `old` must be in it."""
    assert old in GOOD
    return GOOD.replace(old, new)


def plus(text: str) -> str:
    """The good plan with more lines."""
    return f"{GOOD}{text}\n"


def refusal(text: str) -> PlanError:
    """The error of a plan that must be refused."""
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "plan.yaml")
    assert caught.value.exit_code == 3
    assert caught.value.findings
    return caught.value


def refused(text: str) -> list[Finding]:
    """All findings of a plan that must be refused."""
    return [f for f in refusal(text).findings if isinstance(f, Finding)]


def only(text: str) -> Finding:
    """The finding of a plan with one mistake: one mistake is one finding."""
    found = refused(text)
    assert len(found) == 1, [str(f) for f in found]
    return found[0]
