"""/api/v1/agents: which agents a tenant's steps can go to, whether they have live workers, and how busy they are."""

from typing import Annotated, Any

from fastapi import Depends, Response

from agentflow.clock import rfc3339
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, keyed
from control_plane.api.request import Behind, Caller
from control_plane.identity.permissions import Permission
from control_plane.registry.agents import LiveAgent, LiveWorker

router = guarded_router(prefix="/api/v1/agents", tags=["agents"])

_LISTED = Listing(filters={"name": Filter("Its name.")}, sorts=("name",), default_sort="name")


@router.get("", responses=documented(422, ok=schemas.AgentList), openapi_extra=_LISTED.openapi())
@needs(Permission.AGENTS_READ)
async def list_agents(behind: Behind, caller: Caller, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Agents that some worker answers for now: your tenant's own, and those it shares with others."""
    name = page.filters.get("name")
    agents = [agent for agent in behind.agents.now(caller.tenant) if name is None or agent.name == name]
    shown, last = keyed(page, agents, lambda agent: (agent.name,))
    return answer(page.answer([agent_view(agent) for agent in shown], last, total=len(agents)))


@router.get("/{name}", responses=documented(404, ok=schemas.AgentDetail))
@needs(Permission.AGENTS_READ)
async def show(name: str, behind: Behind, caller: Caller) -> Response:
    """Who answers for an agent, how busy each of them is, and since when they were heard."""
    workers = behind.agents.workers(caller.tenant, name)
    taking = [worker for worker in workers if not worker.draining]
    shared = any(worker.shared for worker in workers)
    agent = LiveAgent(name, len(taking), sum(worker.running for worker in taking), shared)
    return answer({**agent_view(agent), "instances": [_worker_view(worker) for worker in workers]})


def _worker_view(worker: LiveWorker) -> dict[str, Any]:
    return {
        "worker": worker.worker,
        "running": worker.running,
        "health": "draining" if worker.draining else "ok",
        "started_at": rfc3339(worker.started_at_ms),
        "heard_s_ago": round(worker.heard_s_ago, 3),
    }


def agent_view(agent: LiveAgent) -> dict[str, Any]:
    return {
        "name": agent.name,
        "health": "ok" if agent.workers else "draining",
        "workers": agent.workers,
        "running": agent.running,
        "shared": agent.shared,
    }
