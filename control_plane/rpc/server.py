"""The gRPC services over the control plane."""

from typing import Any, TypeAlias

import grpc
from google.protobuf import json_format, struct_pb2, timestamp_pb2

from agentflow import limits
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.registry.workflows import RegisteredWorkflow
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import Guard, caller
from control_plane.service import ControlPlane

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def create_server(control_plane: ControlPlane) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=[Guard(control_plane.identity)],
        options=[("grpc.max_receive_message_length", limits.REQUEST_BYTES_MAX)],
    )
    pb_grpc.add_WorkflowServiceServicer_to_server(WorkflowService(control_plane), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_ExecutionServiceServicer_to_server(ExecutionService(control_plane), server)  # type: ignore[no-untyped-call]
    return server


class WorkflowService(pb_grpc.WorkflowServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:  # noqa: N802
        async with answering(context):
            workflow, created = await self._control_plane.register(caller().tenant, request.definition)
        return pb.RegisterResponse(workflow=_workflow(workflow), created=created)

    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> pb.ExecuteResponse:  # noqa: N802
        async with answering(context):
            await self._control_plane.require_allowed(caller(), request.workflow)
            state = await self._control_plane.execute(
                caller().tenant,
                request.workflow,
                _from_value(request.input) if request.HasField("input") else {},
                wait_s=min(request.wait_seconds, limits.WAIT_S_MAX) if request.wait_seconds > 0 else None,
            )
            execution = await _execution(self._control_plane, state)
        return pb.ExecuteResponse(execution=execution)


class ExecutionService(pb_grpc.ExecutionServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:  # noqa: N802
        async with answering(context):
            state = await self._control_plane.orchestrator.state(caller().tenant, ExecutionId(request.id))
            execution = await _execution(self._control_plane, state)
        return pb.GetResponse(execution=execution)


def _workflow(workflow: RegisteredWorkflow) -> pb.Workflow:
    return pb.Workflow(
        id=workflow.id,
        name=workflow.name,
        version=workflow.version,
        digest=workflow.digest,
        planner=workflow.planner,
        created_at=_timestamp(workflow.created_at_ms),
    )


async def _execution(control_plane: ControlPlane, state: ExecutionState) -> pb.Execution:
    workflow, fault = state.workflow, state.fault
    values = await control_plane.whole(state, {"input": state.input, "output": state.output})
    return pb.Execution(
        id=state.execution,
        trace_id=state.trace,
        workflow_id=workflow.id if workflow else "",
        workflow=workflow.name if workflow else "",
        workflow_version=workflow.version if workflow else "",
        status=state.status,
        input=_to_value(values["input"]),
        output=_to_value(values["output"]),
        fault=pb.Fault(code=fault.code, message=fault.message, retryable=fault.retryable) if fault else None,
        version=state.version,
        started_at=_timestamp(state.started_at_ms),
        ended_at=None if state.ended_at_ms is None else _timestamp(state.ended_at_ms),
    )


def _timestamp(at_ms: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def _to_value(value: Any) -> struct_pb2.Value:
    return json_format.ParseDict(value, struct_pb2.Value())


def _from_value(value: struct_pb2.Value) -> object:
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
