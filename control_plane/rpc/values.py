"""Our values as protobuf messages, and back."""

from typing import Any

from google.protobuf import json_format, struct_pb2, timestamp_pb2

from agentflow.contracts.claims import parted
from agentflow.contracts.step import StepFault
from agentflow.execution.state import ExecutionState
from agentflow.v1 import agentflow_pb2 as pb
from control_plane.live.feed import LiveEvent
from control_plane.registry.executions import ExecutionSummary
from control_plane.registry.workflows import WorkflowSummary
from control_plane.service import ControlPlane


def workflow_message(workflow: WorkflowSummary) -> pb.Workflow:
    return pb.Workflow(
        id=workflow.id,
        name=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        planner=workflow.planner,
        created_at=timestamp(workflow.created_at_ms),
    )


async def execution_message(behind: ControlPlane, state: ExecutionState) -> pb.Execution:
    workflow = state.workflow
    values = await behind.whole(state, {"input": state.input, "output": state.output})
    return pb.Execution(
        id=state.execution,
        trace_id=state.trace,
        workflow_id=workflow.id if workflow else "",
        workflow=workflow.name if workflow else "",
        workflow_version=workflow.version if workflow else "",
        status=state.status,
        input=to_value(values["input"]),
        output=to_value(values["output"]),
        fault=fault_message(state.fault),
        version=state.version,
        started_at=timestamp(state.started_at_ms),
        ended_at=None if state.ended_at_ms is None else timestamp(state.ended_at_ms),
    )


def summary_message(summary: ExecutionSummary) -> pb.ExecutionSummary:
    return pb.ExecutionSummary(
        id=summary.id,
        trace_id=summary.trace,
        workflow_id=summary.workflow.id,
        workflow=summary.workflow.name,
        workflow_version=summary.workflow.version,
        status=summary.status,
        started_at=timestamp(summary.started_at_ms),
        ended_at=None if summary.ended_at_ms is None else timestamp(summary.ended_at_ms),
    )


def event_message(event: LiveEvent) -> pb.Event:
    data, large = parted(event.event)
    kind, at_ms = data.pop("type"), data.pop("at_ms")
    return pb.Event(
        seq=event.seq,
        execution_id=event.execution,
        workflow=event.workflow,
        version=event.version,
        type=kind,
        at=timestamp(at_ms),
        data=to_struct(data),
        large=[pb.LargeValue(path=[str(part) for part in each.path], bytes=each.bytes) for each in large],
    )


def fault_message(fault: StepFault | None) -> pb.Fault | None:
    return None if fault is None else pb.Fault(code=fault.code, message=fault.message, retryable=fault.retryable)


def timestamp(at_ms: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def from_timestamp(moment: timestamp_pb2.Timestamp) -> int:
    return moment.seconds * 1000 + moment.nanos // 1_000_000


def to_value(value: Any) -> struct_pb2.Value:
    return json_format.ParseDict(value, struct_pb2.Value())


def to_struct(value: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(value, struct_pb2.Struct())


def from_value(value: struct_pb2.Value) -> object:
    return _whole(json_format.MessageToDict(value))


def _whole(value: object) -> object:
    """A protobuf number is always a double; one without a fraction was an integer to whoever sent it."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
        case _:
            return value
