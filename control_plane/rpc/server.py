"""The gRPC server over the control plane: our services, health, and reflection for tools such as grpcurl."""

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from agentflow import limits
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.rpc.agents import AgentService
from control_plane.rpc.executions import ExecutionService
from control_plane.rpc.guard import Guard
from control_plane.rpc.tools import ToolService
from control_plane.rpc.workflows import WorkflowService
from control_plane.service import ControlPlane

SERVICES = tuple(service.full_name for service in pb.DESCRIPTOR.services_by_name.values())


def create_server(
    control_plane: ControlPlane,
    *,
    describes_itself: bool = False,
    keepalive_s: float = limits.RPC_KEEPALIVE_S,
    answer_s: float = limits.RPC_KEEPALIVE_ANSWER_S,
) -> grpc.aio.Server:
    """A watcher may be silent for long: both sides notice within `keepalive_s` and `answer_s` that the other is gone.

    Whoever asks more often than every `answer_s` whether we are there is let go. With `describes_itself`, whoever has a
    credential may ask which services there are.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", limits.REQUEST_BYTES_MAX),
        ("grpc.keepalive_time_ms", round(keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(answer_s * 1000)),
        ("grpc.http2.ping_timeout_ms", round(answer_s * 1000)),  # a minute if not said, whatever the line above says
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", round(answer_s * 1000)),
    ]
    server = grpc.aio.server(interceptors=[Guard(control_plane.identity, control_plane.trail)], options=options)
    pb_grpc.add_WorkflowServiceServicer_to_server(WorkflowService(control_plane), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_ExecutionServiceServicer_to_server(ExecutionService(control_plane), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_ToolServiceServicer_to_server(ToolService(control_plane), server)  # type: ignore[no-untyped-call]
    pb_grpc.add_AgentServiceServicer_to_server(AgentService(control_plane), server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(_Health(control_plane), server)
    if describes_itself:
        reflection.enable_server_reflection((*SERVICES, "grpc.health.v1.Health", reflection.SERVICE_NAME), server)
    return server


class _Health(health.aio.HealthServicer):  # type: ignore[misc]  # comes without types
    """Serving means what /readyz means: starts can be committed."""

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__()
        self._control_plane = control_plane

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.service not in ("", *SERVICES):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {request.service!r}.")
        ready = (await self._control_plane.parts_ready())["database"]
        serving = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=serving)
