"""What the user wrote: one rollout plan, frozen, every key known. Pure data; knows no server and no state."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from rollout.plan import checks, history
from rollout.plan.fields import Unit as Unit
from rollout.plan.lines import NamedFile
from rollout.plan.units import Bytes, Duration

Json = Any
Name = Annotated[str, Field(max_length=120, pattern=checks.NAME)]
RouteName = Annotated[str, Field(max_length=120, pattern=checks.ROUTE_NAME)]
Text = Annotated[str, Field(min_length=1)]
Reason = Annotated[str, Field(min_length=8)]
Url = Annotated[str, AfterValidator(checks.url), Field(json_schema_extra={"pattern": "^https?://"})]
# Strict: `replicas: yes` and `replicas: "2"` are slips, not numbers.
Whole = Annotated[int, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Number = Annotated[float, Field(strict=True)]
Share = Annotated[float, Field(strict=True, gt=0, le=100)]
INLINED = {"inlined": True}
"""marks a field that is read from another file: no key of the plan's own file"""
Slower = Annotated[float, Field(strict=True, ge=0, le=20)]
Recorded = Annotated[tuple[dict[str, Json], ...], AfterValidator(history.recorded), WithJsonSchema({"type": "string"}), NamedFile()]


class Part(BaseModel):
    """Every part of a plan is frozen and refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """All contradictions inside this part at once; a part without rules has none."""
        checks.refuse(self)
        return self


class SecretRef(Part):
    """Where a secret is read from when it is needed: exactly one of the two. The secret itself never enters a plan."""

    env: str | None = Field(default=None, pattern=checks.ENV_NAME, description="name of an environment variable")
    file: Text | None = Field(default=None, description="path of a file; its first line is the secret")


class GPUStack(Part):
    """The GPUStack server that serves the route."""

    server: Url = Field(description="management URL, without /v1 or /v2")
    inference: Url | None = Field(
        default=None, description="inference URL, where users send requests; the management URL when absent. With a gateway: the gateway's"
    )
    gateway: Literal["auto", "enabled", "disabled"] = Field(
        default="auto", description="whether GPUStack's gateway stands at the inference URL; `auto` looks at what answers there"
    )
    management_key: SecretRef = Field(description="API key with the scope `management`")
    inference_key: SecretRef = Field(description="API key with the scope `inference`, for our own probes")


class ChangeUnit(Part):
    """One unit and its new value: deployment fields of GPUStack, as its API names them."""

    unit: Unit = Field(description="the one kind of thing that changes")
    to: dict[str, Json] = Field(
        min_length=1, description="deployment fields with their new values; for `os`, `driver` and `worker` the facts to wait for"
    )


class Sizing(Part):
    """Placement and size of the canary; not a change unit, shown and printed as a confounder."""

    replicas: Count | None = Field(default=None, description="replicas of the canary; stable's when absent")
    worker: Text | None = Field(default=None, description="name of the worker that hosts the canary")
    worker_selector: dict[str, str] | None = Field(default=None, description="labels a worker must carry")
    gpu_selector: dict[str, Json] | None = Field(default=None, description="GPUStack's GPU selector")
    gpu_memory_utilization: Number | None = Field(default=None, gt=0, le=1, description="share of the GPU's memory the engine may take")
    port: Whole | None = Field(default=None, ge=1, le=65535, description="port of the instance")


class Canary(Part):
    """The canary is stable plus the change unit, plus this."""

    sizing: Sizing = Field(default=Sizing(), description="placement and size of the canary")


class StableTarget(Part):
    """One target of the route that is replaced."""

    deployment: Name = Field(description="name of the deployment that serves today")
    canary: Canary | None = Field(default=None, description="overrides the plan's `canary` for this target")


class Stage(Part):
    """Load test of the canary's spec on a staging worker, away from the production route. Needs `worker` or `skip`."""

    worker: Text | None = Field(default=None, description="name of the staging worker")
    sizing: Sizing = Field(default=Sizing(), description="placement and size of the staged deployment")
    prompt_tokens: tuple[Count, ...] = Field(default=(128, 1024), min_length=1, max_length=32, description="prompt lengths of the matrix")
    concurrency: tuple[Annotated[int, Field(strict=True, ge=1, le=512)], ...] = Field(
        default=(1, 4), min_length=1, max_length=32, description="requests in flight of the matrix"
    )
    requests_per_cell: Count = Field(default=12, description="requests per cell of the matrix")
    output_tokens: Count = Field(default=64, description="tokens asked for per request")
    max_ttft: Duration | None = Field(default=None, description="median time to first token above which a cell fails")
    ready_within: Duration = Field(default=1800.0, description="time the staged deployment may take to become ready")
    skip: Reason | None = Field(default=None, description="the reason for skipping the step; it is recorded")


class Probes(Part):
    """Own paired requests to stable and canary through their private routes."""

    pairs: Whole | None = Field(
        default=None,
        ge=10,
        le=2000,
        description="pairs that count, per target at most (a batch that our own machine delayed is sent again); by mode when absent: thin "
        "and sparse 120, rich none. In rich mode all of them are sent "
        "before 100 %: they see answers that break off, which no engine counts",
    )
    batch: Whole = Field(default=10, ge=1, le=100, description="pairs sent in one go")
    prompts: tuple[Text, ...] = Field(
        default=("Say hello.", "Count to ten.", "Name three colours.", "What is a rollout?"), min_length=1, description="prompts, in turn"
    )
    max_tokens: Count = Field(default=16, description="tokens asked for per probe")
    warm_up: Count = Field(default=8, description="requests that warm the canary; excluded from evidence")


class Message(Part):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"] = Field(description="who says it")
    content: str = Field(description="the text", repr=False)


class Prompt(Part):
    """One line of a prompt set: what both sides are asked, and the right answer."""

    id: str = Field(description="its name; the line's number when absent")
    prompt: str | None = Field(default=None, description="the user's message; or `messages`", repr=False)
    messages: tuple[Message, ...] = Field(default=(), description="a conversation instead of one prompt", repr=False)
    expected: str = Field(description="the right answer", repr=False)

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The messages of a chat request."""
        return [message.model_dump() for message in self.messages] or [{"role": "user", "content": self.prompt or ""}]


class Quality(Part):
    """A prompt set that is replayed to stable and canary through their private routes: each prompt once, to both at the same time."""

    file: Text = Field(description="the set, lines of JSON, in the plan's folder or below; it is read and kept with the plan")
    batch: Whole = Field(default=10, ge=1, le=100, description="prompts replayed in one go, at most")
    max_tokens: Count = Field(default=64, description="tokens asked for per answer; an answer that is cut there is not the expected one")
    prompts: SkipJsonSchema[tuple[Prompt, ...]] = Field(
        default=(), description="the lines of `file`", repr=False, json_schema_extra={**INLINED}
    )


class SpeedMargin(Part):
    """How much slower a canary may be, as a share: 0.05 = 5 % slower."""

    tolerated: Slower | None = Field(default=None, description="slower by no more than this is never a reason to roll back")
    unacceptable: Slower | None = Field(default=None, description="slower by this must be disproved before 100 %")


class ErrorMargin(Part):
    """How many more requests of a canary may fail."""

    tolerated: Number | None = Field(default=None, ge=1, le=100, description="odds ratio: 1.25 = a quarter more failures than stable")
    unacceptable: Number | None = Field(
        default=None, gt=0, lt=1, description="difference of the shares that fail which must be disproved before 100 %: 0.01 = 1 point"
    )


class QualityMargin(Part):
    """How much of the mean score a canary may lose: 0.05 = 5 points of 100."""

    tolerated: Number | None = Field(default=None, ge=0, lt=1, description="a loss of no more than this is never a reason to roll back")
    unacceptable: Number | None = Field(default=None, gt=0, lt=1, description="a loss of this must be disproved before 100 %")


class MemoryMargin(Part):
    """How fast the memory that a canary uses may grow beside stable's."""

    tolerated: Bytes | None = Field(default=None, ge=0, description="growth an hour that is never a reason to roll back; 1GiB when absent")


class Margins(Part):
    """What a rollback has to prove exceeded and a promotion has to disprove, where the defaults of the evidence mode do not fit."""

    ttft: SpeedMargin = Field(default=SpeedMargin(), description="time to first token")
    e2e: SpeedMargin = Field(default=SpeedMargin(), description="time of a whole request")
    tpot: SpeedMargin = Field(default=SpeedMargin(), description="time per output token")
    errors: ErrorMargin = Field(default=ErrorMargin(), description="requests that fail")
    quality: QualityMargin = Field(default=QualityMargin(), description="scores of replayed prompts")
    memory: MemoryMargin = Field(default=MemoryMargin(), description="memory in use on the side's fullest worker")
    probes: SpeedMargin = Field(default=SpeedMargin(), description="time to first token of paired probes")


class EvidenceMode(StrEnum):
    """How much traffic there is to judge from."""

    AUTO = "auto"
    RICH = "rich"
    THIN = "thin"
    SPARSE = "sparse"


class Evidence(Part):
    """What is enough to decide."""

    mode: EvidenceMode = Field(default=EvidenceMode.AUTO, description="how much traffic to expect; `auto` looks at stable's last 24h")
    window: Duration = Field(default=30.0, ge=1.0, description="length of one measuring window, at least 1s")
    min_requests: Count = Field(default=20, description="canary requests a rung sees at least")
    min_time: Duration = Field(default=600.0, description="time a rung lasts at least")
    min_time_before_full: Duration | None = Field(
        default=None, description="time at the last rung below 100; by mode when absent: rich 10m, thin 1h, sparse 2h"
    )
    deadline: Duration | None = Field(default=None, description="time to a verdict; by mode when absent: 2h, sparse 4h")
    alpha: Number = Field(default=0.01, gt=0, lt=0.5, description="bound on rolling back a canary that is within tolerance")
    beta: Number = Field(default=0.05, gt=0, lt=0.5, description="bound on passing a canary that is unacceptable")
    settle: Duration = Field(default=2.0, ge=2.0, description="wait after a weight write before it is verified")
    probes: Probes = Field(default=Probes(), description="own paired requests")
    quality: Quality | None = Field(
        default=None, description="a prompt set whose answers are compared; without it nothing is known of quality"
    )
    margins: Margins = Field(default=Margins(), description="margins of single metrics; by mode when absent")
    history: Recorded | None = Field(
        default=None,
        description="windows of stable against itself, as a rollout records them: how much its numbers differ by themselves is fitted on "
        "them, and only then the error bounds are claimed",
    )


class Drain(Part):
    """When stable counts as empty."""

    quiet: Duration = Field(default=30.0, ge=1.0, description="in-flight 0 and flat counters for this long")
    deadline: Duration = Field(default=1800.0, description="ends in a hold, never in a kill")
    on_timeout: Literal["hold", "proceed"] = Field(
        default="hold", description="`proceed` cuts the streams that still run; it needs `reason`"
    )
    reason: Reason | None = Field(default=None, description="why streams may be cut; it is recorded")


class Window(Part):
    """Time after promotion in which stable stays restorable."""

    duration: Duration | None = Field(
        default=None,
        description="rollback window; when absent 24h, and with sparse traffic until 50 live requests were served too, at most 72h",
    )
    keep: Literal["auto", "warm", "parked"] = Field(
        default="auto",
        description="how stable is kept: `warm` = running, a rollback takes seconds; `parked` = with replicas 0, a rollback takes its load "
        "time; `auto` = parked only where a worker of stable has less than twice `guards.memory_floor` available",
    )
    warm: Duration = Field(default=3600.0, description="time stable runs on at least before it may be parked")
    approval: Literal["required", "none"] = Field(
        default="required", description="whether `rollout approve --park` is needed before stable is parked"
    )


class Cleanup(Part):
    """What happens after the window: the old deployment and the probe routes are removed."""

    approval: Literal["required", "none"] = Field(default="required", description="whether `rollout approve` is needed before it")
    files: Literal["keep", "delete"] = Field(
        default="keep", description="`delete` also deletes stable's model files from its workers, unless anything else uses them"
    )


class Guards(Part):
    """What must stay true, and what happens when it does not."""

    memory_floor: Bytes = Field(default=8 << 30, ge=0, description="memory available on a worker below which the canary is taken back")
    unknown_memory: Literal["hold", "accept"] = Field(
        default="hold", description="what to do while a worker's memory is unknown; `accept` starts beside stable anyway"
    )
    heartbeat_age: Duration = Field(default=180.0, description="a worker silent for longer is lost")
    key_life: Duration = Field(default=3600.0, description="an API key that ends sooner refuses the start, and holds a rollout under way")


class Gates(Part):
    """Who may say no, and when."""

    approve_before: tuple[Literal["stage", "attach", "canary", "shift"], ...] = Field(
        default=(), description="steps that wait for `rollout approve`"
    )


class Route(Part):
    """The production route whose weight moves."""

    name: RouteName = Field(description="name of the route, as clients write it in `model`")
    convert_to_weighted: bool = Field(
        default=False,
        strict=True,
        description="give the targets of a route without weights one each for the rollout, in one write; given back on rollback",
    )
    accept_loss: bool = Field(
        default=False, strict=True, description="accept that with the gateway off this write and its undo may lose requests"
    )


class Metadata(Part):
    """How people find this rollout."""

    name: Name = Field(description="name of the rollout")
    labels: dict[str, str] = Field(default_factory=dict, description="free words, such as a team or a ticket")


class Plan(Part):
    """A rollout plan: `apiVersion: rollout/v1`, `kind: RolloutPlan`."""

    api_version: Literal["rollout/v1"] = Field(alias="apiVersion", description="format of this file")
    kind: Literal["RolloutPlan"] = Field(description="what this file is")
    metadata: Metadata = Field(description="how people find this rollout")
    gpustack: GPUStack = Field(description="the server that serves the route")
    route: Route = Field(description="the route whose weight moves")
    change: ChangeUnit = Field(description="the one thing that changes")
    stable: Annotated[tuple[StableTarget, ...], AfterValidator(checks.distinct)] = Field(
        min_length=1, description="the targets that are replaced, one after another"
    )
    canary: Canary = Field(default=Canary(), description="what differs besides the change unit")
    ladder: Annotated[tuple[Share, ...], AfterValidator(checks.rising)] | Literal["auto"] = Field(
        default="auto", description="shares of the pair (canary + the stable target it replaces) in percent; `auto` chooses by traffic"
    )
    stage: Stage = Field(description="load test before anything touches the route")
    evidence: Evidence = Field(default=Evidence(), description="what is enough to decide")
    drain: Drain = Field(default=Drain(), description="when stable counts as empty")
    window: Window = Field(default=Window(), description="how long a rollback stays possible")
    cleanup: Cleanup = Field(default=Cleanup(), description="what happens after the window")
    guards: Guards = Field(default=Guards(), description="what must stay true")
    gates: Gates = Field(default=Gates(), description="who may say no, and when")
    ready_within: Duration = Field(default=1800.0, description="time a canary may take to become ready; scheduling alone may take 3m")

    def canary_of(self, index: int) -> Canary:
        """The canary's sizing for stable target number `index`."""
        return self.stable[index].canary or self.canary
