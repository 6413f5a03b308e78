"""WorkflowService: register and find workflows, start executions of them, and speak to those."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.live.feed import FeedStopped, LiveEvent, Topic
from control_plane.registry.workflows import WorkflowFilter
from control_plane.rpc.calls import Context, Paging, ask, wait_of
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import caller
from control_plane.rpc.values import event_message, execution_message, from_value, workflow_message
from control_plane.service import ControlPlane


class WorkflowService(pb_grpc.WorkflowServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._behind = control_plane

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterResponse:  # noqa: N802
        async with answering(context):
            workflow, created = await self._behind.register(caller().tenant, request.definition)
        return pb.RegisterResponse(workflow=workflow_message(workflow), created=created)

    async def Execute(self, request: pb.ExecuteRequest, context: Context) -> pb.ExecuteResponse:  # noqa: N802
        async with answering(context):
            state = await self._started(request, wait_s=wait_of(request.wait_seconds, context))
            execution = await execution_message(self._behind, state)
        return pb.ExecuteResponse(execution=execution)

    async def ExecuteStream(  # noqa: N802
        self, request: pb.ExecuteStreamRequest, context: Context
    ) -> AsyncIterator[pb.ExecuteStreamResponse]:
        async with answering(context):
            state = await self._started(request, wait_s=None)
            yield pb.ExecuteStreamResponse(execution=await execution_message(self._behind, state))
            async with aclosing(self._until_its_end(state)) as events:
                async for event in events:
                    yield pb.ExecuteStreamResponse(event=event_message(event))

    async def _started(
        self, request: pb.ExecuteRequest | pb.ExecuteStreamRequest, *, wait_s: float | None
    ) -> ExecutionState:
        await self._behind.require_allowed(caller(), request.workflow)
        return await self._behind.execute(
            caller().tenant,
            request.workflow,
            from_value(request.input) if request.HasField("input") else {},
            wait_s=wait_s,
            key=request.idempotency_key or None,
        )

    async def _until_its_end(self, state: ExecutionState) -> AsyncGenerator[LiveEvent, None]:
        """Every event of an execution, up to the last one it has when it has ended."""
        topic = Topic(state.tenant, execution=state.execution)
        async with aclosing(self._behind.live.read(topic, after=0)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event
                if page.events:
                    newest = await self._behind.orchestrator.state(state.tenant, state.execution)
                    if newest.ended and page.events[-1].version >= newest.version:
                        return
        raise FeedStopped

    async def Get(  # noqa: N802
        self, request: pb.WorkflowServiceGetRequest, context: Context
    ) -> pb.WorkflowServiceGetResponse:
        async with answering(context):
            workflow = await self._behind.registry.find(caller().tenant, request.reference)
        return pb.WorkflowServiceGetResponse(workflow=workflow_message(workflow), source=workflow.source)

    async def List(  # noqa: N802
        self, request: pb.WorkflowServiceListRequest, context: Context
    ) -> pb.WorkflowServiceListResponse:
        async with answering(context):
            wanted = WorkflowFilter(name=request.name or None, planner=request.planner or None, tag=request.tag or None)
            page = Paging(request.page_size, request.page_token, wanted)
            found = await self._behind.registry.list(caller().tenant, wanted, after=page.after, limit=page.size + 1)
            total = await self._behind.registry.count(caller().tenant, wanted)
        shown = found[: page.size]
        last = (shown[-1].created_at_ms, shown[-1].id) if len(found) > len(shown) else None
        return pb.WorkflowServiceListResponse(
            workflows=[workflow_message(workflow) for workflow in shown],
            next_page_token=page.token(last),
            total_size=total,
        )

    async def Signal(self, request: pb.SignalRequest, context: Context) -> pb.SignalResponse:  # noqa: N802
        payload = from_value(request.payload) if request.HasField("payload") else None

        def order(stamp: Stamp, id: str) -> messages.Signal:
            return messages.Signal(stamp, id, request.name, payload)

        return pb.SignalResponse(
            execution=await ask(self._behind, context, request.execution, request.request_id, order)
        )

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:  # noqa: N802
        def order(stamp: Stamp, id: str) -> messages.Cancel:
            return messages.Cancel(stamp, id, request.reason)

        return pb.CancelResponse(
            execution=await ask(self._behind, context, request.execution, request.request_id, order)
        )
