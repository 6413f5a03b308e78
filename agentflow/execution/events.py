"""What happened, in the past tense. Events are the truth: stored for ever, only ever added to.

The tag of each struct is its stored name and version. A changed shape is a new struct with the next
version beside the old one, so that every log ever written still folds.
"""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId


class WorkflowRef(msgspec.Struct, frozen=True):
    """The one definition an execution is pinned to, by content."""

    id: WorkflowId
    name: str
    version: str
    digest: str


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often and how soon a failed step is tried again. Delays grow by `multiplier` up to `max_ms`."""

    max_attempts: int = 1
    initial_ms: int = 200
    multiplier: float = 2.0
    max_ms: int = 30_000
    jitter: bool = True  # full jitter: anywhere between nothing and the delay


class ExecutionStarted(msgspec.Struct, frozen=True, tag_field="type", tag="execution.started.v1"):
    at_ms: int
    execution: ExecutionId
    tenant: TenantId
    workflow: WorkflowRef
    input: Any
    trace: TraceId
    deadline_ms: int | None = None


class StepScheduled(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.scheduled.v1"):
    at_ms: int
    path: StepPath
    name: str
    attempt: int
    agent: AgentName
    input: Any
    timeout_ms: int
    tool: str | None = None
    retry: Retry = Retry()


class StepSucceeded(msgspec.Struct, frozen=True, tag_field="type", tag="step.succeeded.v1"):
    at_ms: int
    path: StepPath
    attempt: int
    output: Any
    worker: WorkerId
    started_at_ms: int
    finished_at_ms: int


class StepFailed(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="step.failed.v1"):
    """One attempt failed. With `retry_at_ms` another follows; without, the failure is the step's outcome."""

    at_ms: int
    path: StepPath
    attempt: int
    fault: StepFault
    retry_at_ms: int | None = None
    worker: WorkerId | None = None


class ExecutionCompleted(msgspec.Struct, frozen=True, tag_field="type", tag="execution.completed.v1"):
    at_ms: int
    output: Any


class ExecutionFailed(msgspec.Struct, frozen=True, tag_field="type", tag="execution.failed.v1"):
    at_ms: int
    fault: StepFault


Event = ExecutionStarted | StepScheduled | StepSucceeded | StepFailed | ExecutionCompleted | ExecutionFailed

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(raw: bytes | str) -> Event:
    return _decoder.decode(raw)


def type_of(event: Event) -> str:
    """The stored name, such as `step.succeeded.v1`."""
    return str(type(event).__struct_config__.tag)
