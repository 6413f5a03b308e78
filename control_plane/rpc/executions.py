"""ExecutionService: look at executions, watch them, and ask things of them."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.ids import ExecutionId
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.live.feed import FeedStopped, Topic
from control_plane.registry.executions import ExecutionFilter, ExecutionPlace
from control_plane.rpc.calls import Context, Paging, ask
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import caller
from control_plane.rpc.values import event_message, execution_message, from_timestamp, summary_message
from control_plane.service import ControlPlane


class ExecutionService(pb_grpc.ExecutionServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._behind = control_plane

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:  # noqa: N802
        async with answering(context):
            state = await self._behind.orchestrator.state(caller().tenant, ExecutionId(request.id))
            execution = await execution_message(self._behind, state)
        return pb.GetResponse(execution=execution)

    async def List(  # noqa: N802
        self, request: pb.ExecutionServiceListRequest, context: Context
    ) -> pb.ExecutionServiceListResponse:
        async with answering(context):
            wanted = _filter(request)
            page = Paging(request.page_size, request.page_token, wanted)
            found = await self._behind.executions.page(
                caller().tenant,
                wanted,
                limit=page.size,
                after=None if page.after is None else ExecutionPlace(*page.after),
                newest_first=True,
            )
        last = None if found.reached is None else (found.reached.started_at_ms, found.reached.id)
        return pb.ExecutionServiceListResponse(
            executions=[summary_message(summary) for summary in found.items], next_page_token=page.token(last)
        )

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        async with answering(context):
            execution = ExecutionId(request.execution) if request.execution else None
            if execution is not None:
                await self._behind.orchestrator.state(caller().tenant, execution)
            topic = Topic(caller().tenant, request.workflow or None, execution)
            after = request.after if request.HasField("after") else None
            async with aclosing(self._behind.live.read(topic, after=after)) as pages:
                async for page in pages:
                    for event in page.events:
                        yield pb.WatchResponse(seq=event.seq, event=event_message(event))
                    if not page.events:
                        yield pb.WatchResponse(seq=page.seq)
            raise FeedStopped

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:  # noqa: N802
        def order(stamp: Stamp, id: str) -> messages.Pause:
            return messages.Pause(stamp, id, request.reason)

        return pb.PauseResponse(
            execution=await ask(self._behind, context, request.execution, request.request_id, order)
        )

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:  # noqa: N802
        execution = await ask(self._behind, context, request.execution, request.request_id, messages.Resume)
        return pb.ResumeResponse(execution=execution)

    async def Retry(self, request: pb.RetryRequest, context: Context) -> pb.RetryResponse:  # noqa: N802
        execution = await ask(self._behind, context, request.execution, request.request_id, messages.RetryFailed)
        return pb.RetryResponse(execution=execution)


def _filter(request: pb.ExecutionServiceListRequest) -> ExecutionFilter:
    return ExecutionFilter(
        workflow=request.workflow or None,
        statuses=tuple(sorted(set(request.statuses))),
        tag=request.tag or None,
        started_from_ms=from_timestamp(request.started_after) if request.HasField("started_after") else None,
        started_before_ms=from_timestamp(request.started_before) if request.HasField("started_before") else None,
        attributes=dict(request.input),
    )
