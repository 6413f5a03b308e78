"""AgentService: which agents a tenant's steps can go to, and how busy they are."""

from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc
from control_plane.rpc.calls import Context
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import caller
from control_plane.rpc.values import timestamp
from control_plane.service import ControlPlane


class AgentService(pb_grpc.AgentServiceServicer):
    def __init__(self, control_plane: ControlPlane) -> None:
        self._behind = control_plane

    async def Get(  # noqa: N802
        self, request: pb.AgentServiceGetRequest, context: Context
    ) -> pb.AgentServiceGetResponse:
        async with answering(context):
            workers = self._behind.agents.workers(caller().tenant, request.name)
        taking = [worker for worker in workers if not worker.draining]
        running = sum(worker.running for worker in taking)
        return pb.AgentServiceGetResponse(
            agent=pb.Agent(
                name=request.name,
                workers=len(taking),
                running=running,
                shared=any(worker.shared for worker in workers),
            ),
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
            agents = self._behind.agents.now(caller().tenant)
        return pb.AgentServiceListResponse(
            agents=[
                pb.Agent(name=agent.name, workers=agent.workers, running=agent.running, shared=agent.shared)
                for agent in agents
            ]
        )
