"""One line of a list of executions: the read side's shape, filled by storage and shown by the API."""

import msgspec

from agentflow.ids import ExecutionId, TraceId


class ExecutionSummary(msgspec.Struct, frozen=True):
    id: ExecutionId
    workflow: str
    version: str
    status: str
    started_at_ms: int
    ended_at_ms: int | None
    trace: TraceId
