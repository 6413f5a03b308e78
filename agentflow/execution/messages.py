"""What reached us. Nothing here is a fact yet: a message may be late, repeated, or about another attempt."""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId


class Stamp(msgspec.Struct, frozen=True):
    """The outside world of one decision: what time it is, and a number in [0, 1) for jitter."""

    at_ms: int
    chance: float = 0.0


class Start(msgspec.Struct, frozen=True):
    stamp: Stamp
    execution: ExecutionId
    tenant: TenantId
    workflow: WorkflowRef
    input: Any
    trace: TraceId
    timeout_ms: int | None = None


class StepReported(msgspec.Struct, frozen=True):
    stamp: Stamp
    path: StepPath
    attempt: int
    worker: WorkerId
    started_at_ms: int
    finished_at_ms: int
    output: Any = None
    fault: StepFault | None = None


class TimeReached(msgspec.Struct, frozen=True):
    """The moment that `state.next_wakeup` named has come (or something else woke the shell: harmless)."""

    stamp: Stamp


ExecutionMessage = Start | StepReported | TimeReached
