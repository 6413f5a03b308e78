"""ToolService: look at registered tools, and try one out on a worker."""

from agentflow.contracts.step import StepFault
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.registry.tools import RegisteredTool
from control_plane.registry.versions import precedence
from control_plane.rpc.calls import Context, Paging
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import caller
from control_plane.rpc.values import fault_message, from_value, to_struct, to_value
from control_plane.service import ControlPlane


class ToolService(pb_grpc.ToolServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._behind = control_plane

    async def Get(self, request: pb.ToolServiceGetRequest, context: Context) -> pb.ToolServiceGetResponse:  # noqa: N802
        async with answering(context):
            tool = await self._behind.tools.find(caller().tenant, request.reference)
        return pb.ToolServiceGetResponse(tool=_tool(tool), definition=to_struct(tool.definition))

    async def List(  # noqa: N802
        self, request: pb.ToolServiceListRequest, context: Context
    ) -> pb.ToolServiceListResponse:
        async with answering(context):
            page = Paging(request.page_size, request.page_token, request.name)
            tools = await self._behind.tools.list(caller().tenant, name=request.name or None)
        ordered = sorted(tools, key=_place)
        rest = [tool for tool in ordered if page.after is None or _place(tool) > page.after]
        shown = rest[: page.size]
        return pb.ToolServiceListResponse(
            tools=[_tool(tool) for tool in shown],
            next_page_token=page.token(_place(shown[-1]) if len(rest) > len(shown) else None),
            total_size=len(tools),
        )

    async def Test(self, request: pb.TestRequest, context: Context) -> pb.TestResponse:  # noqa: N802
        async with answering(context):
            tool = await self._behind.tools.find(caller().tenant, request.reference)
            caller().require_tool(tool.name)
            given = from_value(request.input) if request.HasField("input") else {}
            outcome = await self._behind.test_tool(caller().tenant, tool, given, network=request.network)
        fault = outcome["fault"]
        return pb.TestResponse(
            output=to_value(outcome["output"]),
            fault=fault_message(None if fault is None else StepFault(**fault)),
            logs=outcome["logs"],
            duration_ms=outcome["duration_ms"],
            backend=outcome["backend"],
            isolation=outcome["isolation"],
            worker=outcome["worker"],
        )


def _place(tool: RegisteredTool) -> tuple[object, ...]:
    return (tool.name, *precedence(tool.version))


def _tool(tool: RegisteredTool) -> pb.Tool:
    return pb.Tool(
        name=tool.name,
        version=tool.version,
        digest=tool.digest,
        description=tool.description,
        type=tool.spec["run"]["type"],
        permissions=tool.spec.get("permissions", []),
        effect=tool.spec.get("effect", "idempotent"),
        builtin=tool.builtin,
    )
