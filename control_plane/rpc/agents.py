"""AgentService: which agents have live workers, and how busy they are."""

from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.rpc.calls import Context
from control_plane.rpc.errors import answering
from control_plane.rpc.values import timestamp
from control_plane.service import ControlPlane


class AgentService(pb_grpc.AgentServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._behind = control_plane

    async def Get(  # noqa: N802
        self, request: pb.AgentServiceGetRequest, context: Context
    ) -> pb.AgentServiceGetResponse:
        async with answering(context):
            workers = self._behind.agents.workers(request.name)
        taking = [worker for worker in workers if not worker.draining]
        running = sum(worker.running for worker in taking)
        return pb.AgentServiceGetResponse(
            agent=pb.Agent(name=request.name, workers=len(taking), running=running),
            instances=[
                pb.AgentInstance(
                    worker=worker.worker,
                    running=worker.running,
                    draining=worker.draining,
                    started_at=timestamp(worker.started_at_ms),
                )
                for worker in workers
            ],
        )

    async def List(  # noqa: N802
        self, request: pb.AgentServiceListRequest, context: Context
    ) -> pb.AgentServiceListResponse:
        async with answering(context):
            agents = self._behind.agents.now()
        return pb.AgentServiceListResponse(
            agents=[pb.Agent(name=agent.name, workers=agent.workers, running=agent.running) for agent in agents]
        )
